"""Perplexity of a language model, with a sliding window.

Shapes: B windows, T tokens of the longest, D width, V vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, UNKNOWN
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import padded
from heedful.inference.inference_mode import ready
from heedful.models.language import LanguageModel

# Number of positions whose logits are computed at a time; all logits would need too much memory.
_PLACES = 512
# Texts that are encoded and batched together.
_TEXTS = 1_000


@dataclass(frozen=True)
class Perplexity:
    """The probability of texts, and the counts for perplexities."""

    log_probability: float
    """Natural logarithm of the probability of the texts: the sum over predicted tokens."""
    tokens: int
    """Number of predicted tokens, including ends of documents if they count."""
    words: int
    """Number of words, separated by white space."""
    lines: int
    """Number of line breaks in the texts."""
    bytes: int
    """Number of bytes of the texts in UTF-8."""
    unknown: int
    """Number of tokens that are unknown to the vocabulary."""
    documents: int

    @property
    def per_token(self) -> float:
        """``exp(−log p / tokens)``; comparable between models of one vocabulary only."""
        return _exp(-self.log_probability / max(1, self.tokens))

    @property
    def per_word(self) -> float:
        """``exp(−log p / words)``."""
        return _exp(-self.log_probability / max(1, self.words))

    @property
    def per_word_and_line(self) -> float:
        """``exp(−log p / (words + lines))``: the usual figure if the end of a line is a word."""
        return _exp(-self.log_probability / max(1, self.words + self.lines))

    @property
    def bits_per_byte(self) -> float:
        """``−log₂ p / bytes``; comparable between any models."""
        return -self.log_probability / math.log(2) / max(1, self.bytes)

    def to_json(self) -> dict[str, Any]:
        """All figures as a JSON object."""
        return {
            "perplexity_per_token": self.per_token,
            "perplexity_per_word": self.per_word,
            "perplexity_per_word_and_line": self.per_word_and_line,
            "bits_per_byte": self.bits_per_byte,
            **vars(self),
        }


class LanguagePredictor(Protocol):
    """A language model that is ready for use, such as a :class:`Generator`."""

    batch_tokens: int
    max_length: int
    vocabulary: Vocabulary
    model: LanguageModel
    device: torch.device
    products: str
    notify: Callable[[str], None]


class _Window(NamedTuple):
    """Tokens ``x₀ … x_n`` of which the last ``counted`` are predicted from those before."""

    tokens: list[int]
    counted: int


def perplexity(
    generator: LanguagePredictor,
    texts: Iterable[str],
    *,
    stride: int | None,
    joined: bool,
    ends: bool,
    advance: Callable[[int], None] | None,
) -> Perplexity:
    """See :meth:`heedful.inference.generator.Generator.perplexity`."""
    require_list(texts, "perplexity")
    context = generator.max_length
    step = max(1, context // 2) if stride is None else stride
    if not 1 <= step <= context:
        raise UserError(f"the stride must be between 1 and the context, {context:,}, not {step:,}")
    counting = _Counts()
    streams = _documents(generator, texts, counting, ends, advance or (lambda count: None))
    if joined:
        streams = iter([_joined(streams, ends)])
    windows = (window for stream in streams for window in _windows(stream, context, step))
    total = 0.0
    with ready(generator.model, generator.device, generator.products):
        for batch in _batches(windows, generator.batch_tokens):
            total += _log_probability(generator, batch)
            counting.add(tokens=sum(window.counted for window in batch))
    found = replace(counting.found, log_probability=total)
    if not found.tokens:
        raise UserError("the texts are empty; give texts to measure perplexity on")
    if found.unknown:
        generator.notify(
            f"{found.unknown:,} of {found.tokens:,} tokens are unknown to the vocabulary: the "
            "figures are lower than they would be if it had them"
        )
    return found


class _Counts:
    """The counts so far."""

    def __init__(self) -> None:
        self.found = Perplexity(0.0, 0, 0, 0, 0, 0, 0)

    def add(self, **more: int) -> None:
        sums = {name: getattr(self.found, name) + count for name, count in more.items()}
        self.found = replace(self.found, **sums)


def _documents(
    generator: LanguagePredictor,
    texts: Iterable[str],
    counting: _Counts,
    ends: bool,
    advance: Callable[[int], None],
) -> Iterator[list[int]]:
    """Each document with its boundaries; empty documents are left out."""
    block: list[str] = []

    def encoded() -> Iterator[list[int]]:
        for text, tokens in zip(block, generator.vocabulary.encode_batch(block), strict=True):
            counting.add(
                words=len(text.split()),
                lines=text.count("\n"),
                bytes=len(text.encode()),
                unknown=tokens.count(UNKNOWN),
                documents=1,
            )
            yield [END, *tokens, END] if ends else [END, *tokens]
            advance(1)

    for text in texts:
        if not text:
            advance(1)
            continue
        block.append(text)
        if len(block) == _TEXTS:
            yield from encoded()
            block = []
    yield from encoded()


def _joined(streams: Iterable[list[int]], ends: bool) -> list[int]:
    """One stream, in which the end of a document is the beginning of the next."""
    whole: list[int] = []
    for one in streams:
        whole += one[1:] if ends and whole else one
    return whole


def _windows(stream: Sequence[int], context: int, stride: int) -> Iterator[_Window]:
    """Windows with at most ``context`` input tokens, which together count each token once.

    Example:
        >>> [tuple(window) for window in _windows([3, 5, 6, 7, 8], 2, 1)]
        [([3, 5, 6], 2), ([5, 6, 7], 1), ([6, 7, 8], 1)]
    """
    reached = 0
    for first in range(0, max(1, len(stream)), stride):
        window = list(stream[first : first + context + 1])
        last = first + len(window) - 1
        if last > reached:
            yield _Window(window, last - reached)
            reached = last
        if last >= len(stream) - 1:
            return


def _batches(windows: Iterable[_Window], batch_tokens: int) -> Iterator[list[_Window]]:
    """Windows in batches: those of a block are sorted by length."""
    block: list[_Window] = []

    def batches() -> Iterator[list[_Window]]:
        batch: list[_Window] = []
        for window in sorted(block, key=lambda window: -len(window.tokens)):
            if batch and (len(batch) + 1) * len(batch[0].tokens) > batch_tokens:
                yield batch
                batch = []
            batch.append(window)
        if batch:
            yield batch

    for window in windows:
        block.append(window)
        if len(block) == _TEXTS:
            yield from batches()
            block = []
    yield from batches()


def _log_probability(generator: LanguagePredictor, batch: Sequence[_Window]) -> float:
    """The sum over the counted tokens of the windows."""
    model, device = generator.model, generator.device
    inputs = padded([window.tokens[:-1] for window in batch], device)  # [B, T]
    targets = padded([window.tokens[1:] for window in batch], device)
    counted = torch.zeros_like(targets, dtype=torch.bool)
    for row, window in enumerate(batch):
        last = len(window.tokens) - 1
        counted[row, last - window.counted : last] = True
    # Padding is at the end, so that no counted token attends to it.
    states, wanted = model.states(inputs)[counted], targets[counted]
    return float(chosen_log_probabilities(model, states, wanted).double().sum())


def chosen_log_probabilities(model: Any, states: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability ``[N]`` of each of ``tokens [N]`` after ``states [N, D]``."""
    parts = [
        model.logits(some).float().log_softmax(1).gather(1, chosen.unsqueeze(1)).squeeze(1)
        for some, chosen in zip(states.split(_PLACES), tokens.split(_PLACES), strict=True)
    ]
    return torch.cat(parts) if parts else states.new_zeros(0)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
