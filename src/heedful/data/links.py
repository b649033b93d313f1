"""Word links of a corpus: read in Pharaoh format, joined with their pairs, and checked.

A file has one line for each pair, ``0-0 1-2``: source word, target word, counted from 0. Words are
separated by white space.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product, zip_longest
from typing import NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.readers import read_lines

Link = tuple[int, int]
Sizes = tuple[int, int]

EXCHANGE = (
    "source and target are exchanged in the links or in the texts: give both in the same order"
)
# No text has as many words as a number with more digits; Python refuses to read very long ones.
_ITEM = re.compile(r"(\d{1,7})([-p])(\d{1,7})")


class LinkedPair(NamedTuple):
    """A text, its translation, and the links of their words."""

    source: str
    target: str
    links: tuple[Link, ...]

    def reversed(self) -> "LinkedPair":
        """The pair with source and target exchanged."""
        return LinkedPair(self.target, self.source, tuple((j, i) for i, j in self.links))


def pharaoh_items(line: str, where: str, number: int) -> list[tuple[int, int, str]]:
    """The links of a line, with ``-`` for sure and ``p`` for possible links.

    Raises:
        UserError: an item is not a link; the message has ``where`` and the line number.
    """
    items = []
    for item in line.split():
        match = _ITEM.fullmatch(item)
        if match is None:
            raise UserError(
                f"{where}, line {number}: '{item}' is not a link; "
                "write i-j (or ipj for a possible one)"
            )
        items.append((int(match[1]), int(match[3]), match[2]))
    return items


class RangeCheck:
    """Checks the links of all pairs, and explains links that are out of range.

    Args:
        first: the number of the first word.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.wrong: tuple[int, Link, Sizes] | None = None
        """The number of the first pair with a link out of range, the link, and the word counts."""
        self.has_word_zero = False
        self.links = 0
        self._pairs = 0
        self._fits = {(start, turn): True for start in (0, 1) for turn in (False, True)}

    def see(self, links: Iterable[Link], sizes: Sizes) -> None:
        """Check the links of the next pair."""
        self._pairs += 1
        for link in links:
            self.links += 1
            self.has_word_zero |= 0 in link
            for (start, turn), fits in self._fits.items():
                if fits or (start, turn) == (self.first, False):
                    there = _in_range(link, sizes[::-1] if turn else sizes, start)
                    self._fits[start, turn] = fits and there
                    if not there and (start, turn) == (self.first, False) and self.wrong is None:
                        self.wrong = (self._pairs, link, sizes)

    def explain(self, counting: str) -> str:
        """Explain the error: links counted from 1, exchanged sides, or another cause.

        Args:
            counting: advice for links that are counted from 1.
        """
        other = 1 - self.first
        if self._fits[other, False]:
            return f"all links are in range counted from {other}: {counting}"
        if self._fits[self.first, True]:
            return f"all links are in range the other way round: {EXCHANGE}"
        if self._fits[other, True]:
            return (
                f"all links are in range the other way round and counted from {other}: {EXCHANGE}, "
                f"and {counting}"
            )
        return "check that the lines of links and texts belong together"


def _in_range(link: Link, sizes: Sizes, first: int) -> bool:
    return all(0 <= word - first < size for word, size in zip(link, sizes, strict=True))


def read_linked(pairs: Iterable[Pair], path: str) -> Iterator[LinkedPair]:
    """Pairs with their links.

    Args:
        pairs: the unfiltered corpus.
        path: the file of links, plain or gzip.

    Raises:
        UserError: a line has invalid links, or the file does not have one line per pair.
    """
    counts = [0, 0]
    for pair, line in zip_longest(pairs, read_lines(path)):
        counts[0] += pair is not None
        counts[1] += line is not None
        if pair is not None and line is not None:
            items = pharaoh_items(line, path, counts[1])
            links = dict.fromkeys((i, j) for i, j, _ in items)
            yield LinkedPair(pair.source, pair.target, tuple(links))
    if counts[0] != counts[1]:
        raise UserError(
            f"{path} has {counts[1]:,} lines of links but the corpus has {counts[0]:,} pairs; give "
            "one line for each pair, in the same order"
        )


def check_links(pairs: Iterable[LinkedPair], path: str) -> None:
    """Read all pairs once and check that the words of every link exist.

    Raises:
        UserError: a link is out of range, or there are no links. The message has the probable
            cause: links counted from 1, exchanged sides, or links of another corpus.
    """
    check = RangeCheck(first=0)
    for pair in pairs:
        check.see(pair.links, (len(pair.source.split()), len(pair.target.split())))
    if check.wrong is not None:
        number, (i, j), (source, target) = check.wrong
        raise UserError(
            f"{path}, line {number}: link '{i}-{j}' is out of range for {source} source and "
            f"{target} target words counted from 0; "
            + check.explain("subtract 1 from every number: links for training are counted from 0")
        )
    if not check.links:
        raise UserError(
            f"{path} has no links; leave it out, or give a file written by heedful align"
        )
    if not check.has_word_zero:
        notice(
            f"{path} has no word 0: words are assumed to be counted from 0 because links are "
            "out of range otherwise"
        )


def token_links(
    links: Sequence[Link], source_words: Sequence[int], target_words: Sequence[int]
) -> list[Link]:
    """Links between all tokens of linked words.

    Args:
        links: between words.
        source_words: the index of the word of each source token; -1 for none.
        target_words: the same for target tokens.

    Example:
        >>> token_links([(0, 1)], [0, 0, 1], [0, 1])
        [(0, 1), (1, 1)]
    """
    sources, targets = _tokens_of(source_words), _tokens_of(target_words)
    found = [link for i, j in links for link in product(sources[i], targets[j])]
    return sorted(found)


def _tokens_of(words: Sequence[int]) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = defaultdict(list)
    for token, word in enumerate(words):
        tokens[word].append(token)
    return tokens
