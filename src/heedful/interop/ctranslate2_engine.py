"""CTranslate2 as an engine: it searches with an exported folder; heedful computes the scores.

CTranslate2 normalizes probabilities over the symbols that may be written, heedful over all symbols.
Its length penalty differs, and finished hypotheses leave the beam. Its hypotheses are therefore
scored again with teacher forcing; docs/interop.md lists what is equal.
Shapes: S source tokens, T target tokens.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.device import has_fast_bfloat16
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.decoding import Hypothesis, SearchOptions, length_penalty
from heedful.inference.engine import Outcome
from heedful.interop.ctranslate2_facts import Facts, read_symbols, require_ctranslate2

_IMPOSSIBLE = -1e9
"""Log-probabilities below this belong to outputs with a symbol that is never written."""
_BATCH = 32
"""Maximum number of sentences in a worker's batch."""


class _Raw(NamedTuple):
    """A hypothesis from CTranslate2."""

    tokens: list[int]
    """The tokens without END."""
    ended: bool
    """Whether the model wrote END; otherwise the limit ended the hypothesis."""
    total: float
    """CTranslate2's log-probability."""

    @property
    def length(self) -> int:
        """Number of tokens, including an END that was written or is added."""
        return len(self.tokens) + 1


class CTranslate2Engine:
    """A loaded export.

    Args:
        folder: the folder that ``heedful export ctranslate2`` wrote.
        facts: the facts of the folder.
        device: ``cpu`` or ``cuda``.
        compute_type: CTranslate2's name for the data type of matrix products.
        threads: number of workers, with one thread each.

    Raises:
        UserError: the package is not installed, or the folder cannot be loaded.
    """

    def __init__(
        self, folder: Path, facts: Facts, *, device: str, compute_type: str, threads: int
    ) -> None:
        ctranslate2 = require_ctranslate2()
        self.facts, self.threads = facts, threads
        try:
            self._model = ctranslate2.Translator(
                str(folder),
                device,
                compute_type=compute_type,
                inter_threads=threads if device == "cpu" else 1,
                intra_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{folder}: CTranslate2 cannot load it: {reason}") from error
        self._source, self._target = read_symbols(folder)
        self._number_of = {name: number for number, name in enumerate(self._target)}

    @property
    def architecture(self) -> str:
        return "Transformer"

    @property
    def parameters(self) -> int:
        return self.facts.parameters

    @property
    def max_length(self) -> int:
        return self.facts.max_length

    @property
    def device(self) -> str:
        return str(self._model.device)

    @property
    def compute_type(self) -> str:
        """The data type of matrix products, by CTranslate2's name."""
        return str(self._model.compute_type)

    def check(self, options: SearchOptions) -> None:
        if options.sample:
            raise UserError(
                "CTranslate2 samples with its own random numbers, whatever the seed and the line; "
                "sample with --engine torch"
            )
        if options.forced_length is not None and options.forced_length >= self.max_length:
            raise UserError(
                f"forced_length {options.forced_length}: the model's limit is {self.max_length:,}"
            )

    def search(
        self,
        sequences: Sequence[Sequence[int]],
        options: SearchOptions,
        limits: Sequence[int],
        *,
        scores: bool,
        weights: bool,
    ) -> list[Outcome]:
        sources = [[self._source[token] for token in tokens] for tokens in sequences]
        found = self._within(sources, options, limits)
        chosen = [self._best(one, options, limit) for one, limit in zip(found, limits, strict=True)]
        ranked = [
            sorted(own, key=lambda one: -one.score)[: options.nbest]
            for own in self._scored(sources, chosen, options, every=scores)
        ]
        rows: list[Tensor | None] = [None] * len(ranked)
        if weights:
            rows = list(self._weights(sources, [own[0].tokens for own in ranked]))
        return [Outcome(*each) for each in zip(ranked, rows, strict=True)]

    def _within(
        self,
        sources: list[list[str]],
        options: SearchOptions,
        limits: Sequence[int],
    ) -> list[list[_Raw]]:
        """The hypotheses of each source, none longer than its limit.

        CTranslate2 has one limit per batch: the longest. If a hypothesis reaches its own limit, the
            search
        would differ, so these few sources are searched again.
        """
        found = self._translated(sources, options, max(limits))
        if options.forced_length is not None:
            return found
        again: dict[int, list[int]] = {}
        for row, (own, limit) in enumerate(zip(found, limits, strict=True)):
            if limit < max(limits) and any(one.length >= limit for one in own):
                again.setdefault(limit, []).append(row)
        for limit, rows in again.items():
            renewed = self._translated([sources[row] for row in rows], options, limit)
            for row, own in zip(rows, renewed, strict=True):
                found[row] = own
        return found

    def _translated(
        self, sources: list[list[str]], options: SearchOptions, limit: int
    ) -> list[list[_Raw]]:
        """Run CTranslate2's search; ``limit`` includes END, which is not written at the limit."""
        forced, greedy = options.forced_length, options.beam == 1
        # Without a penalty it stops when the best has ended, otherwise when ``beam`` outputs have.
        without = options.length_penalty == 0
        results = self._model.translate_batch(
            sources,
            beam_size=options.beam,
            num_hypotheses=options.nbest if without else options.beam,
            length_penalty=0 if without else 1,
            max_decoding_length=limit - 1 if forced is None else forced,
            min_decoding_length=forced or 0,
            disable_unk=True,
            suppress_sequences=[[self._target[token]] for token in (PAD, BEGIN)],
            return_end_token=True,
            return_scores=not greedy,
            max_input_length=0,
            max_batch_size=_BATCH,
        )
        return [self._read(result, greedy, without) for result in results]

    def _read(self, result: Any, greedy: bool, without_penalty: bool) -> list[_Raw]:
        raw = []
        for rank, names in enumerate(result.hypotheses):
            tokens = [self._number_of[name] for name in names]
            total = 0.0
            if not greedy and result.scores:
                total = result.scores[rank] * (1 if without_penalty else max(1, len(tokens)))
            # A source without tokens is not searched: its output is empty and finished.
            ended = not tokens or tokens[-1] == END
            raw.append(_Raw(tokens[:-1] if ended else tokens, ended, total))
        possible = [one for one in raw if one.total > _IMPOSSIBLE]
        return possible or raw[:1]

    def _best(self, found: list[_Raw], options: SearchOptions, limit: int) -> list[_Raw]:
        """The candidates for the best by heedful's score: all, if the limit ended some of them."""
        if options.forced_length is None and any(
            not one.ended and one.length == limit for one in found
        ):
            return found
        ranked = sorted(
            found,
            key=lambda one: -one.total / length_penalty(one.length, options.length_penalty),
        )
        return ranked[: options.nbest]

    def _scored(
        self,
        sources: list[list[str]],
        chosen: list[list[_Raw]],
        options: SearchOptions,
        *,
        every: bool,
    ) -> list[list[Hypothesis]]:
        """The hypotheses with log-probabilities of tokens, normalized over all symbols.

        They are NaN unless ``every`` is true or they are needed to choose between candidates.
        """
        needed = [own if every or len(own) > options.nbest else [] for own in chosen]
        results = iter(
            self._model.score_batch(
                [source for source, own in zip(sources, needed, strict=True) for _ in own],
                [[self._target[token] for token in one.tokens] for own in needed for one in own],
                max_input_length=0,
                max_batch_size=_BATCH,
            )
            if any(needed)
            else ()
        )
        forced = options.forced_length is not None  # END is forced, and does not count

        def hypothesis(one: _Raw, scored: bool) -> Hypothesis:
            count = one.length - forced
            scores = next(results).log_probs[:count] if scored else [math.nan] * count
            return Hypothesis.finished(one.tokens, scores, options.length_penalty)

        return [
            [hypothesis(one, bool(wanted)) for one in own]
            for own, wanted in zip(chosen, needed, strict=True)
        ]

    def _weights(
        self, sources: list[list[str]], targets: Sequence[Sequence[int]]
    ) -> Iterator[Tensor]:
        """The attention ``[T, S]`` of given outputs, by the alignment rule.

        The outputs are generated again as forced prefixes, with one more step, in which the last
        token is fed in. (The attention from the search itself is that of another source in a beam's
        first step, and lacks the last row if the limit ended an output.)
        """
        longest = max(len(target) for target in targets)
        results = self._model.translate_batch(
            sources,
            [[self._target[token] for token in target] for target in targets],
            beam_size=1,
            max_decoding_length=longest + 1,
            return_end_token=True,
            return_attention=True,
            max_input_length=0,
            max_batch_size=_BATCH,
        )
        shift = self.facts.alignment.shift
        for source, target, result in zip(sources, targets, results, strict=True):
            rows = result.attention[0][shift : shift + len(target)] if target else []
            yield torch.tensor(rows) if rows else torch.zeros(0, len(source))


def choose_compute_type(
    quantization: str | None, precision: str, device: str, usual: str = "float32"
) -> str:
    """CTranslate2's name for the data type of matrix products.

    Args:
        quantization: the value of ``--quantization``; takes precedence.
        precision: ``float32``, which is the default, ``bfloat16``, ``float16``, ``int8``, or
            ``auto``, the faster of bfloat16 and float32.
        device: ``cpu`` or ``cuda``.
        usual: the default; replaced by the nearest type that the device supports.

    Raises:
        UserError: both are given and differ, or the device does not support the type.
    """
    supported = set(require_ctranslate2().get_supported_compute_types(device))
    if quantization is not None and precision not in ("float32", quantization):
        raise UserError(
            f"--quantization {quantization} and --precision {precision} both set the data type; "
            "leave one out"
        )
    if precision == "auto":
        fast = "bfloat16" in supported and has_fast_bfloat16(torch.device(device))
        precision = "bfloat16" if fast else "float32"
        notice(
            f"--precision auto: {precision}, or the nearest that CTranslate2 supports on {device}"
        )
    wanted = quantization or (precision if precision != "float32" else usual)
    if wanted in supported:
        return wanted
    if quantization is None and precision == "float32":
        notice(f"CTranslate2 does not support {usual} on {device}: using the nearest data type")
        return "default"
    raise UserError(
        f"CTranslate2 does not support {wanted} on this {device}; it supports "
        f"{', '.join(sorted(supported))}"
    )


def choose_engine_device(name: str) -> str:
    """The device, ``cpu`` or ``cuda``, for ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UserError: CTranslate2 does not support the device.
    """
    ctranslate2: ModuleType = require_ctranslate2()
    available = {"cpu": True, "cuda": ctranslate2.get_cuda_device_count() > 0}
    if name == "auto":
        return "cuda" if available["cuda"] else "cpu"
    if not available.get(name):
        raise UserError(f"CTranslate2 has no {name} device here; use --device auto or cpu")
    return name
