"""Pairs of segments of documents, to predict whether one follows the other.

Devlin et al. 2019, section 3.1 and appendix A.2: the first segment is a run of sentences; half of
the second segments are the sentences that follow, half are a run from another document.

Differences from the paper: every sentence is in exactly one pair of an epoch, in the first segment
or the one that follows. Such segments are never truncated. If the end of a document forces a random
second segment, a later pair gets a true one instead, so that both halves keep their size. A random
segment is about as long as a true one and begins with a sentence.

For the order of sentences (Lan et al. 2020, section 3.1), all second segments follow the first, and
half of the pairs are exchanged. A sentence that is left alone at the end of a document has no
second segment.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.batching import mix
from heedful.data.document_store import EncodedDocuments
from heedful.data.mapped import Integers
from heedful.data.order import Words

_TRIES = 4
"""Number of draws of a random segment; the first that fits is used."""

_LONGEST_RUN = 64
"""Maximum number of sentences of a random segment."""


class Segments(NamedTuple):
    """Examples: each has two runs of sentences of a corpus.

    Shapes: N examples.
    """

    first: Integers
    """[N, 2] the first sentence of the first segment, and the sentence after its last."""
    second: Integers
    """[N, 2] the same for the second segment; an empty run if there is none."""
    sizes: Integers
    """[N, 2] number of tokens of each segment, without BEGIN and END; fewer than in the second run
    if no random run was short enough."""
    random: NDArray[np.bool_]
    """[N] whether the second segment does not follow the first."""

    @property
    def decided(self) -> Integers:
        """[N] 1 if the second segment does not follow the first, 0 if it does, −1 if there is
        none."""
        label = self.random.astype(np.int64)
        return np.where(self.second[:, 0] == self.second[:, 1], -1, label)

    def of(self, chosen: Integers) -> "Segments":
        """Select examples."""
        return Segments(
            self.first[chosen], self.second[chosen], self.sizes[chosen], self.random[chosen]
        )


@dataclass(frozen=True)
class Rule:
    """Settings for segments.

    Attributes:
        room: maximum number of tokens of both segments.
        pairs: whether examples have a second segment.
        short: share of examples with a shorter, random length.
        order: whether all second segments follow, and half of the pairs are exchanged.
    """

    room: int
    pairs: bool = True
    short: float = 0.1
    order: bool = False


def segments(
    corpus: EncodedDocuments, stretches: Integers, rule: Rule, key: str, *, near: bool = False
) -> Segments:
    """The examples of stretches of documents, in order.

    Args:
        corpus: the documents.
        stretches: [n, 2] the first sentence of each stretch and the one after its last; a stretch
            is part of one document.
        rule: settings for segments.
        key: the key of the random numbers.
        near: whether random second segments begin in one of the stretches, if they have several
            documents; otherwise, anywhere in the corpus.
    """
    sentences = np.concatenate([np.arange(begin, end) for begin, end in stretches])
    lengths = corpus.sentences.lengths("tokens", sentences)
    draws = Draws(len(sentences), key)
    cut = _Cut(rule, draws)
    place = 0
    for begin, end in stretches.tolist():
        cut.stretch(begin, lengths[place : place + end - begin])
        place += end - begin
    first = np.array(cut.first, np.int64).reshape(-1, 2)
    second = np.array(cut.second, np.int64).reshape(-1, 2)
    sizes = np.array(cut.sizes, np.int64).reshape(-1, 2)
    random = np.array(cut.random, bool)
    if rule.order:
        first[random], second[random] = second[random], first[random].copy()
        sizes[random] = sizes[random][:, ::-1]
    elif random.any():
        budgets = np.array(cut.budgets, np.int64)[random]
        begins = _random_begins(corpus, first[random, 0], stretches if near else None, draws)
        found = _random_runs(corpus, begins, sizes[random, 0], budgets, rule.room)
        second[random], sizes[random, 1] = found
    return Segments(first, second, sizes, random)


class Draws:
    """Random numbers from 0 to 1, as a function of a key, a name and an index."""

    def __init__(self, count: int, key: str) -> None:
        self.count = count
        self.key = key

    def uniform(self, name: str, count: int | None = None) -> NDArray[np.float64]:
        """Random numbers [count] in [0, 1)."""
        places: Words = np.arange(self.count if count is None else count, dtype=np.uint64)
        bits = mix(places, f"{name} {self.key}") >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53


class _Cut:
    """Divides stretches into first segments and segments that follow.

    For random second segments, it sets only the number of tokens.
    """

    def __init__(self, rule: Rule, draws: Draws) -> None:
        self.rule = rule
        self.first: list[tuple[int, int]] = []
        self.second: list[tuple[int, int]] = []
        self.sizes: list[tuple[int, int]] = []
        self.random: list[bool] = []
        self.budgets: list[int] = []
        self._owed = 0
        self._shorten = (draws.uniform("shorten") < rule.short).tolist()
        self._target = draws.uniform("target").tolist()
        self._part = draws.uniform("part").tolist()
        self._follows = (draws.uniform("follows") < 0.5).tolist()

    def stretch(self, begin: int, lengths: Integers) -> None:
        """Divide a stretch with the first sentence ``begin`` into examples."""
        ends = [0, *np.cumsum(lengths).tolist()]
        count = len(lengths)
        place = 0
        while place < count:
            number = len(self.first)
            target = self.rule.room
            if self._shorten[number]:
                target = 2 + int(self._target[number] * (target - 1))
            end = bisect_right(ends, ends[place] + target) - 1
            if not self.rule.pairs:
                end = max(end, place + 1)
                self._add(begin, ends, (place, end, end), False, 0)
                place = end
                continue
            end = min(max(end, place + 2), count)
            if self.rule.order:
                place = self._ordered(begin, ends, (place, end), number)
                continue
            follows = end - place > 1 and self._does_follow(number)
            middle = end
            if end - place > 1:
                middle = place + 1 + int(self._part[number] * (end - place - 1))
            self._owed += end - place == 1
            # As long as the one that would follow; at the end of a stretch, of any length.
            budget = ends[end] - ends[middle]
            if end == middle:
                budget = int(self._part[number] * (target - budget))
            self._add(begin, ends, (place, middle, end if follows else middle), not follows, budget)
            place = end if follows else middle

    def _ordered(self, begin: int, ends: list[int], places: tuple[int, int], number: int) -> int:
        """Add two segments that follow each other, and return the end of the second.

        Whether they are exchanged is random. The last sentence of a stretch is not left alone if
        the segments have more than two sentences.
        """
        place, end = places
        if len(ends) - 1 - end == 1 and end - place > 2:
            end -= 1
        middle = end
        if end - place > 1:
            middle = place + 1 + int(self._part[number] * (end - place - 1))
        exchanged = middle < end and not self._follows[number]
        self._add(begin, ends, (place, middle, end), exchanged, 0)
        return end

    def _does_follow(self, number: int) -> bool:
        if self._follows[number]:
            return True
        # A pair that follows in the place of a random one moves the balance by two.
        if self._owed >= 2:
            self._owed -= 2
            return True
        return False

    def _add(
        self, begin: int, ends: list[int], places: tuple[int, int, int], random: bool, budget: int
    ) -> None:
        start, middle, end = places
        self.first.append((begin + start, begin + middle))
        self.second.append((begin + middle, begin + end))
        self.sizes.append((ends[middle] - ends[start], ends[end] - ends[middle]))
        self.random.append(random)
        self.budgets.append(budget)


def _random_begins(
    corpus: EncodedDocuments, sentences: Integers, stretches: Integers | None, draws: Draws
) -> Integers:
    """Random sentences of other documents.

    Args:
        corpus: the documents.
        sentences: [n] a sentence of each document to exclude.
        stretches: [m, 2] those of which sentences are drawn; None for the whole corpus.
        draws: the random numbers.

    Returns:
        Sentences [tries, n].
    """
    count = len(sentences)
    document = np.searchsorted(corpus.starts, sentences, side="right") - 1
    own, after = corpus.starts[document], corpus.starts[document + 1]
    chances = draws.uniform("begin", count * _TRIES).reshape(_TRIES, count)
    drawn = whole = np.array([[0, len(corpus.sentences)]])
    if stretches is not None:
        drawn = stretches[np.argsort(stretches[:, 0])]
        if drawn[-1, 0] < corpus.starts[np.searchsorted(corpus.starts, drawn[0, 0], "right")]:
            drawn = whole  # the stretches are those of one document
    # Places in the concatenated stretches, in which a document's sentences follow one another.
    sizes = drawn[:, 1] - drawn[:, 0]
    ends = np.cumsum(sizes)

    def place_of(sentence: Integers) -> Integers:
        within = np.searchsorted(drawn[:, 0], sentence, side="right") - 1
        passed = np.clip(sentence - drawn[within, 0], 0, sizes[within])
        found: Integers = np.where(within < 0, 0, (ends - sizes)[within] + passed)
        return found

    own, after = place_of(own), place_of(after)
    places = (chances * (ends[-1] - (after - own))).astype(np.int64)
    places += np.where(places >= own, after - own, 0)
    within = np.searchsorted(ends, places, side="right")
    begins: Integers = drawn[within, 0] + places - (ends - sizes)[within]
    return begins


def _random_runs(
    corpus: EncodedDocuments, begins: Integers, sizes: Integers, budgets: Integers, room: int
) -> tuple[Integers, Integers]:
    """Runs of sentences.

    Args:
        corpus: the documents.
        begins: [tries, n] sentences with which they may begin.
        sizes: [n] tokens of the first segments.
        budgets: [n] wanted numbers of tokens of the runs.
        room: maximum number of tokens of both segments.

    Returns:
        The runs [n, 2], and their numbers of tokens [n].
    """
    count = begins.shape[1]
    lengths = corpus.sentences.lengths("tokens", begins.ravel()).reshape(_TRIES, count)
    most = room - sizes
    fits = lengths <= most
    chosen = np.where(fits.any(axis=0), fits.argmax(axis=0), 0)
    begin = begins[chosen, np.arange(count)]

    last = corpus.starts[np.searchsorted(corpus.starts, begin, side="right")]
    run = begin[:, None] + np.arange(_LONGEST_RUN)
    inside = run < last[:, None]
    run = np.where(inside, run, begin[:, None])
    of_run = corpus.sentences.lengths("tokens", run.ravel()).reshape(run.shape)
    total = np.cumsum(of_run, axis=1)
    # The number of tokens nearest to the budget: not exceeding it would make runs shorter.
    taken = inside & (total <= most[:, None]) & (total - of_run / 2 <= budgets[:, None])
    taken[:, 0] = True
    number = taken.sum(axis=1)  # taken is a prefix: totals only grow, and ``inside`` is one
    tokens = np.minimum(total[np.arange(count), number - 1], most)
    return np.stack([begin, begin + number], axis=1), tokens
