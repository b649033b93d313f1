"""Texts with gaps, and what was there: the examples of denoising pre-training.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 3.1.4: random spans of a text are replaced, each by another sentinel; the
target lists the sentinels, each with the tokens of its span, and ends with one more sentinel.

Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language
Generation, Translation, and Comprehension", section 2.2: spans whose lengths are from a Poisson
distribution are replaced by one mask each; a span of length 0 inserts a mask. Sentences are
permuted. The target is the text.

The noise of a row is a function of (seed, epoch, row), so that it differs in every epoch and is the
same after an interruption.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from heedful.data.columns import Column, Columns
from heedful.data.mapped import Integers

Tokens = list[int]
NoiseKind = Literal["spans", "infilling"]


class Example(NamedTuple):
    """A text with gaps, and the text that is to be written."""

    source: Tokens
    target: Tokens


@dataclass(frozen=True)
class Noise:
    """How texts are changed.

    Attributes:
        kind: ``spans`` or ``infilling``.
        share: share of the tokens that are replaced.
        mean_length: mean length of a span in tokens.
        permute: whether sentences are permuted.
        sentinels: the sentinels, in order; the mask of ``infilling`` is the first one.
        lead: tokens before a sentinel that is the first token of a text, as the tokeniser has them.
        before: tokens before each text.
    """

    kind: NoiseKind
    share: float
    mean_length: float
    permute: bool
    sentinels: Sequence[int]
    lead: Sequence[int] = ()
    before: Sequence[int] = ()

    def example(self, tokens: Tokens, begins: Sequence[int], key: str) -> Example:
        """The example of a text.

        Args:
            tokens: the text, with at least one token.
            begins: the places where sentences begin; the first is 0.
            key: determines the noise.

        Example:
            >>> noise = Noise("spans", 0.4, 2.0, False, [101, 102, 103])
            >>> noise.example([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0], "a key")
            Example(source=[1, 2, 3, 4, 101, 8, 9, 102], target=[101, 5, 6, 7, 102, 10, 103])
        """
        draws = random.Random(key)
        changed = _permuted(tokens, begins, draws) if self.permute else tokens
        if self.kind == "spans":
            found = hide_spans(changed, self.share, self.mean_length, self.sentinels, draws)
        else:
            mask = self.sentinels[0]
            found = Example(infill(changed, self.share, self.mean_length, mask, draws), tokens)
        return Example(*(self._begun(side) for side in found))

    def most_sentinels(self, length: int) -> int:
        """The number of sentinels that a text of ``length`` tokens needs at most."""
        if self.kind == "infilling":
            return 1
        return _counts(length, self.share, self.mean_length)[1] + 1

    def _begun(self, side: Tokens) -> Tokens:
        lead = self.lead if side[0] in self.sentinels else ()
        return [*self.before, *lead, *side]


def hide_spans(
    tokens: Tokens, share: float, mean: float, sentinels: Sequence[int], draws: random.Random
) -> Example:
    """Replace random spans by sentinels.

    The text begins with a span that is kept; kept and hidden spans alternate. All divisions into
    spans of at least one token are equally probable.

    Args:
        tokens: the text.
        share: share of hidden tokens.
        mean: mean length of a hidden span.
        sentinels: one more than there are hidden spans.
        draws: the random numbers.
    """
    hidden, count = _counts(len(tokens), share, mean)
    lengths = _division(hidden, count, draws)
    kept = _division(len(tokens) - hidden, count, draws)
    source: Tokens = []
    target: Tokens = []
    place = 0
    for sentinel, before, length in zip(sentinels, kept, lengths, strict=False):
        end = place + before
        source += [*tokens[place:end], sentinel]
        target += [sentinel, *tokens[end : end + length]]
        place = end + length
    return Example(source, [*target, sentinels[count]])


def _counts(length: int, share: float, mean: float) -> tuple[int, int]:
    """The number of hidden tokens, and of hidden spans."""
    if length == 1:
        return 1, 1
    hidden = min(max(round(length * share), 1), length - 1)
    return hidden, min(max(round(hidden / mean), 1), length - hidden)


def _division(total: int, count: int, draws: random.Random) -> list[int]:
    """``count`` numbers of at least 1 with this sum; one 0 if the sum is 0."""
    if not total:
        return [0]
    cuts = [0, *sorted(draws.sample(range(1, total), count - 1)), total]
    return [end - start for start, end in itertools.pairwise(cuts)]


def infill(tokens: Tokens, share: float, mean: float, mask: int, draws: random.Random) -> Tokens:
    """Replace random spans by one mask each, and insert masks for spans of length 0.

    Two spans that are replaced are not adjacent, if there is room. The result is not longer than
    the text.

    Args:
        tokens: the text.
        share: share of replaced tokens.
        mean: mean λ of the Poisson distribution of the lengths.
        mask: the mask.
        draws: the random numbers.
    """
    wanted = max(round(len(tokens) * share), 1)
    lengths: list[int] = []
    left, empty = wanted, 0
    while left:
        length = min(_poisson(mean, draws), left)
        left -= length
        if length:
            lengths.append(length)
        else:
            empty += 1
    draws.shuffle(lengths)  # the last one may have been cut
    kept = len(tokens) - wanted
    gaps = range(kept + 1)
    apart = len(lengths) <= len(gaps)
    places = draws.sample(gaps, len(lengths)) if apart else draws.choices(gaps, k=len(lengths))
    spans = list(zip(sorted(places), lengths, strict=True))
    spans += [(draws.choice(gaps), 0) for _ in range(min(empty, wanted - len(lengths)))]
    found: Tokens = []
    place = copied = 0
    for gap, length in sorted(spans, key=lambda span: span[0]):
        found += [*tokens[place : place + gap - copied], mask]
        place += gap - copied + length
        copied = gap
    return found + tokens[place:]


def _poisson(mean: float, draws: random.Random) -> int:
    """A number from a Poisson distribution (Knuth, "The Art of Computer Programming", 3.4.1)."""
    limit, count, product = math.exp(-mean), 0, draws.random()
    while product > limit:
        count += 1
        product *= draws.random()
    return count


def _permuted(tokens: Tokens, begins: Sequence[int], draws: random.Random) -> Tokens:
    """The sentences of a text in random order."""
    ends = [*begins[1:], len(tokens)]
    sentences = [tokens[start:end] for start, end in zip(begins, ends, strict=True)]
    draws.shuffle(sentences)
    return [token for sentence in sentences for token in sentence]


def corrupted(columns: Columns, rows: Integers, key: str, noise: Noise) -> Columns:
    """Sources and targets for rows of texts.

    Args:
        columns: ``tokens``, and ``begins``, the places where sentences begin.
        rows: the number of each row.
        key: seed and epoch as text.
        noise: how texts are changed.
    """
    texts, begins = (_lists(columns[name]) for name in ("tokens", "begins"))
    found = [
        noise.example(text, begin, f"{key} {row}")
        for text, begin, row in zip(texts, begins, rows.tolist(), strict=True)
    ]
    return {
        "source": _column([example.source for example in found]),
        "target": _column([example.target for example in found]),
    }


def _lists(column: Column) -> list[Tokens]:
    values = column.values.tolist()
    ends = column.lengths.cumsum().tolist()
    return [values[end - size : end] for end, size in zip(ends, column.lengths, strict=True)]


def _column(rows: list[Tokens]) -> Column:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    joined = [token for row in rows for token in row]
    return Column(np.fromiter(joined, np.int64, len(joined)), lengths)
