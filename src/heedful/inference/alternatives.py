"""Translations with a given beginning, and alternative words at a position.

Shapes: B sources, P tokens of the beginning, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.decoding import ForcedPrefix, Hypothesis, SearchOptions, search
from heedful.inference.assembly import PartResult, assemble
from heedful.inference.batches import source_of
from heedful.inference.searcher import Searcher
from heedful.inference.splitting import Part
from heedful.inference.translation import Translation
from heedful.models.pairs import Source

# Different tokens may begin the same word, so try more tokens than requested words.
_TRIED = 2


@dataclass(frozen=True)
class Alternative:
    """An alternative word at a position of a translation."""

    word: str
    """The word, as in `str.split`; empty if the translation ends instead."""
    text: str
    """The best translation with this word."""
    log_probability: float
    """Natural logarithm of that translation's probability."""
    probability: float
    """Probability of the word's first token, given the tokens before it, in [0, 1]."""


def continue_from(
    translator: Searcher, text: str, prefix: str, *, options: SearchOptions, alignments: bool
) -> Translation:
    """See :meth:`heedful.inference.Translator.continue_from`."""
    if options.sample:
        raise UserError("sampling is not available with a given beginning; use beam search")
    if alignments:
        translator.require_alignments()
    begun = _PrefixSearch(translator, text, prefix)
    allowed = begun.word_starts if prefix[-1:].isspace() else None
    with translator.ready():
        source, found = begun.search([begun.prefix], options, allowed)
        soft = None
        if alignments:
            written = [found[0][0].tokens]
            soft = translator.align(source, [begun.source], written, [text])[0]
    return begun.translation(found[0], soft, options)


def alternatives(translator: Searcher, text: str, prefix: str, count: int) -> list[Alternative]:
    """See :meth:`heedful.inference.Translator.alternatives`."""
    if count < 1:
        raise UserError(f"count must be at least 1, not {count}")
    begun = _PrefixSearch(translator, text, prefix)
    options = translator.options.model_copy(
        update={"nbest": 1, "sample": False, "temperature": 1.0, "top_k": None, "top_p": 1.0}
    )
    before = len(prefix.split())
    with translator.ready():
        tokens, probabilities = begun.likeliest(_TRIED * count)
        _, found = begun.search([[*begun.prefix, token] for token in tokens], options)
    words: dict[str, Alternative] = {}
    for hypotheses, probability in zip(found, probabilities, strict=True):
        one = begun.translation(hypotheses, None, options)
        following = one.text.split()[before:]
        word = following[0] if following else ""
        if word not in words:
            words[word] = Alternative(word, one.text, one.log_probability, probability)
    return list(words.values())[:count]


class _PrefixSearch:
    """A text and the beginning of its translation, as tokens."""

    def __init__(self, translator: Searcher, text: str, prefix: str) -> None:
        self.translator, self.text = translator, text
        self.protection = translator.protection.for_prefixes()
        (self.source,) = self.protection.encode([text])
        self.prefix = self.protection.encode_prefix(text, prefix.rstrip())
        if not text.strip():
            raise UserError("the text is empty; give one to translate")
        limit = translator.max_length
        if len(self.source) >= limit:
            raise UserError(
                f"the text has {len(self.source):,} tokens, more than the model's {limit - 1:,}, "
                "and is not split if a beginning is given; give a shorter text"
            )
        longest = int(translator.output_limits(source_of([self.source], translator.device))[0])
        # One token more than the beginning, and END.
        if len(self.prefix) + 2 > longest:
            raise UserError(
                f"the beginning has {len(self.prefix):,} tokens, more than the longest translation "
                f"of this text, {longest - 1:,}; give a shorter beginning"
            )

    @property
    def word_starts(self) -> Tensor:
        """Booleans ``[V]``: the tokens that begin a word."""
        tokeniser = self.translator.tokenisers.target
        allowed = torch.zeros(tokeniser.size, dtype=torch.bool, device=self.translator.device)
        allowed[tokeniser.word_starts()] = True
        return allowed

    def likeliest(self, count: int) -> tuple[list[int], list[float]]:
        """The likeliest tokens that begin a word after the beginning, and their probabilities."""
        model, device = self.translator.decodable, self.translator.device
        prefix = torch.tensor([self.prefix], dtype=torch.long, device=device)
        begun = ForcedPrefix(model, prefix)
        logits, _ = begun.step(prefix[:, :0], begun.start(source_of([self.source], device)))
        probabilities = logits.float().softmax(1)[0].masked_fill(~self.word_starts, 0.0)
        best = probabilities.topk(min(count, int(self.word_starts.sum())))
        return best.indices.tolist(), best.values.tolist()

    def search(
        self,
        beginnings: Sequence[Sequence[int]],
        options: SearchOptions,
        allowed: Tensor | None = None,
    ) -> tuple[Source, list[list[Hypothesis]]]:
        """The hypotheses that begin with each prefix (all of one length), prefixes included."""
        device = self.translator.device
        source = source_of([self.source] * len(beginnings), device)
        given = torch.tensor(beginnings, dtype=torch.long, device=device)
        continued = ForcedPrefix(self.translator.decodable, given, allowed)
        limits = self.translator.output_limits(source) - given.shape[1]
        found = search(continued, source, rows=len(beginnings), options=options, max_lengths=limits)
        whole = []
        for row, hypotheses in enumerate(found):
            before = continued.log_probabilities[row].tolist()
            share = float(continued.allowed_log_probability[row])
            joined = [
                Hypothesis.finished(
                    [*beginnings[row], *one.tokens],
                    [*before, first + share, *rest],
                    options.length_penalty,
                )
                for one in hypotheses
                for first, *rest in [one.token_log_probabilities]
            ]
            whole.append(sorted(joined, key=lambda one: -one.score))
        return source, whole

    def translation(
        self, hypotheses: list[Hypothesis], soft: Tensor | None, options: SearchOptions
    ) -> Translation:
        """The translation of the best hypothesis, with the others as its alternatives."""
        return assemble(
            self.text,
            [Part("", self.text)],
            [PartResult(hypotheses, soft, at_limit=False)],
            self.protection,
            options.length_penalty,
            self.translator.link_threshold,
        )
