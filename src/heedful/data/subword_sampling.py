"""Subword regularisation: in training, words are segmented anew each time they are seen.

BPE dropout (Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization",
algorithm 1) leaves out merges at random. For unigram vocabularies, a segmentation x of a word is
drawn with probability P(x)^α / Σ P(x′)^α over all segmentations (Kudo 2018, "Subword
Regularization", section 3.2, with l = ∞).

Pieces do not extend over words, so words are sampled independently, from encoded texts. There are
64 draws of each word. A draw is a function of the word and its number, and the number is a function
of (seed, epoch, row, place in the row): the same in any process, and after an interruption.
"""

import heapq
import math
import random
from collections.abc import Callable

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.batching import mix
from heedful.data.columns import Column
from heedful.data.mapped import Integers, ranges
from heedful.data.tokeniser import Tokeniser

DRAWS = 64
"""Number of segmentations that are drawn for each word; several may be equal."""
_MOST_KEPT = 1 << 19
"""Maximum number of draws in memory, some 100 MB."""
_TOKEN = np.dtype("<u4")

Draw = Callable[[list[str], random.Random], list[str]]


class SubwordSampler:
    """Draws segmentations for the words of encoded texts.

    Placeholders, bytes and control symbols are never changed.

    Args:
        tokeniser: the vocabulary of the texts.
        strength: for BPE, the probability p that a merge is left out; for unigram vocabularies, α.

    Raises:
        UserError: the vocabulary has neither merges nor probabilities, because it is imported.
    """

    def __init__(self, tokeniser: Tokeniser, strength: float) -> None:
        if not isinstance(tokeniser, Tokeniser):
            raise UserError(
                "training.subword_dropout and training.subword_alpha need a vocabulary that "
                "heedful has trained; leave them out for imported vocabularies"
            )
        scores = tokeniser.scores()
        self._pieces = {token: piece for piece, (token, _) in scores.items()}
        self._tokens = {piece: token for piece, (token, _) in scores.items()}
        own = {piece: score for piece, (_, score) in scores.items()}
        self._draw: Draw
        if tokeniser.settings.kind == "bpe":
            self._draw = lambda pieces, source: draw_bpe("".join(pieces), own, strength, source)
        else:
            longest = max(map(len, own), default=1)
            self._draw = lambda pieces, source: draw_unigram(
                "".join(pieces), own, strength, source, longest
            )
        # Where words begin: at a piece with a space, and before and after all that is not a piece.
        whole = np.ones(tokeniser.size, bool)
        whole[list(self._pieces)] = False
        starting = whole.copy()
        starting[[token for token in tokeniser.word_starts() if token > END]] = True
        self._whole, self._starting = whole, starting
        self._kept: dict[bytes, dict[int, bytes]] = {}
        self._count = 0

    def sample(self, column: Column, rows: Integers, key: str, longest: int) -> Column:
        """Draw new segmentations for rows of tokens.

        Args:
            column: the tokens of B rows.
            rows: ``[B]`` the number of each row in the corpus.
            key: seed, epoch and column.
            longest: rows that would have more tokens than this are not changed.
        """
        values = column.values.astype(_TOKEN)
        starting = self._starting[values]
        starting[1:] |= self._whole[values[:-1]]
        starting[column.starts[column.lengths > 0]] = True
        words = np.flatnonzero(starting)
        owners = np.repeat(np.arange(len(rows)), column.lengths)[words]
        firsts = np.searchsorted(owners, np.arange(len(rows)))
        places = (rows[owners] << 24) + np.arange(len(words)) - firsts[owners]
        numbers = mix(places.astype(np.uint64), key) % np.uint64(DRAWS)
        raw, size = values.tobytes(), _TOKEN.itemsize
        edges = [*(words * size).tolist(), len(raw)]
        drawn = [
            self._word(raw[first:end], number)
            for first, end, number in zip(edges, edges[1:], numbers.tolist(), strict=False)
        ]
        lengths = np.fromiter(map(len, drawn), np.int64, len(drawn)) // size
        found = Column(
            np.frombuffer(b"".join(drawn), _TOKEN),
            np.bincount(owners, lengths, len(rows)).astype(np.int64),
        )
        return _limited(found, column._replace(values=values), longest)

    def _word(self, word: bytes, number: int) -> bytes:
        """The draw of a word with this number."""
        draws = self._kept.get(word)
        if draws is None:
            draws = self._kept[word] = {}
        found = draws.get(number)
        if found is None:
            if self._count >= _MOST_KEPT:  # draws do not depend on what is kept
                self._kept, self._count = {word: draws}, len(draws)
            found = draws[number] = self._drawn(word, number)
            self._count += 1
        return found

    def _drawn(self, word: bytes, number: int) -> bytes:
        tokens = np.frombuffer(word, _TOKEN).tolist()
        if tokens[0] not in self._pieces:
            return word
        pieces = [self._pieces[token] for token in tokens]
        drawn = self._draw(pieces, random.Random(f"{number} {''.join(pieces)}"))
        if drawn == pieces:
            return word  # one object for all equal draws
        return np.array([self._tokens[piece] for piece in drawn], _TOKEN).tobytes()


def _limited(found: Column, column: Column, longest: int) -> Column:
    """``found``, with the rows of ``column`` in place of those that are too long."""
    long = found.lengths > np.maximum(longest, column.lengths)
    if not long.any():
        return found
    lengths = np.where(long, column.lengths, found.lengths)
    starts = np.where(long, len(found.values) + column.starts, found.starts)
    return Column(np.concatenate([found.values, column.values])[ranges(starts, lengths)], lengths)


def draw_bpe(
    word: str, scores: dict[str, float], dropout: float, source: random.Random
) -> list[str]:
    """Segment a word by BPE with dropout (Provilkov et al. 2020, algorithm 1).

    At each step, every possible merge is left out with probability ``dropout``, and the best of the
    others is applied. If all are left out, the word stays as it is.

    Args:
        word: the characters.
        scores: the score of each piece; the pair whose piece has the highest score is merged first,
            of equal ones the leftmost.
        dropout: the probability p.
        source: the random numbers.

    Example:
        >>> scores = {"ab": -1.0, "abc": -2.0}
        >>> draw_bpe("abc", scores, 0.0, random.Random(1))
        ['abc']
        >>> draw_bpe("abc", scores, 1.0, random.Random(1))
        ['a', 'b', 'c']
    """
    pieces: list[str] = list(word)
    after = [*range(1, len(pieces)), -1]
    before = list(range(-1, len(pieces) - 1))
    queue: list[tuple[float, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            merged = pieces[left] + pieces[right]
            score = scores.get(merged)
            if score is not None:
                heapq.heappush(queue, (-score, left, merged))

    for left, right in enumerate(after):
        offer(left, right)
    skipped: list[tuple[float, int, str]] = []
    while queue:
        best = heapq.heappop(queue)
        _, left, merged = best
        right = after[left] if pieces[left] else -1
        if right < 0 or pieces[left] + pieces[right] != merged:
            continue  # one of its halves was merged with another
        if source.random() < dropout:
            skipped.append(best)
            continue
        for one in skipped:  # each step may apply what an earlier one left out
            heapq.heappush(queue, one)
        skipped.clear()
        pieces[left], pieces[right] = merged, ""
        after[left] = after[right]
        if after[left] >= 0:
            before[after[left]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [piece for piece in pieces if piece]


def draw_unigram(
    word: str, scores: dict[str, float], alpha: float, source: random.Random, longest: int
) -> list[str]:
    """Draw a segmentation x of a word with probability P(x)^α / Σ P(x′)^α (Kudo 2018).

    Forward filtering and backward sampling over all segmentations.

    Args:
        word: the characters.
        scores: the log-probability of each piece.
        alpha: α; 0 draws all segmentations alike, a high value the most probable one.
        source: the random numbers.
        longest: maximum number of characters of a piece.

    Example:
        >>> draw_unigram("ab", {"a": -9.0, "b": -9.0, "ab": -1.0}, 50.0, random.Random(1), 2)
        ['ab']
    """
    sums = [0.0]
    arcs: list[list[tuple[int, float]]] = [[]]
    for end in range(1, len(word) + 1):
        own = [
            (start, sums[start] + alpha * scores[word[start:end]])
            for start in range(max(0, end - longest), end)
            if word[start:end] in scores and sums[start] > -math.inf
        ]
        top = max((value for _, value in own), default=-math.inf)
        total = sum(math.exp(value - top) for _, value in own) if own else 0.0
        sums.append(top + math.log(total) if own else -math.inf)
        arcs.append(own)
    pieces: list[str] = []
    end = len(word)
    while end:
        starts = [start for start, _ in arcs[end]]
        weights = [math.exp(value - sums[end]) for _, value in arcs[end]]
        start = source.choices(starts, weights)[0]
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]
