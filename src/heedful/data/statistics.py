"""Statistics of a corpus: counts and lengths, in one pass with little memory."""

from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

from heedful.data.examples import Pair
from heedful.data.filters import HashSet, count_words, hash_pair

PERCENTILES = (50, 90, 99)


class SideStatistics(TypedDict):
    """Statistics of one side of a corpus; a word is a run of characters without white space."""

    words: int
    characters: int
    empty: int
    mean_words: float
    median_words: int
    words_90_percent: int
    words_99_percent: int
    most_words: int
    most_characters: int


class CorpusStatistics(TypedDict):
    """Statistics of a corpus; ``ratio`` is target words per source word, as filters count words."""

    pairs: int
    duplicates: int
    identical: int
    mean_ratio: float
    source: SideStatistics
    target: SideStatistics


class _Side:
    def __init__(self) -> None:
        self.lengths: Counter[int] = Counter()
        self.characters = 0
        self.empty = 0
        self.most_characters = 0
        self.ratio_words = 0.0

    def add(self, text: str) -> None:
        self.lengths[len(text.split())] += 1
        self.characters += len(text)
        self.empty += not text.strip()
        self.most_characters = max(self.most_characters, len(text))
        self.ratio_words += count_words(text)

    def result(self) -> SideStatistics:
        words = sum(length * count for length, count in self.lengths.items())
        total = self.lengths.total()
        half, ninety, all_but_one = (percentile(self.lengths, part) for part in PERCENTILES)
        return {
            "words": words,
            "characters": self.characters,
            "empty": self.empty,
            "mean_words": round(words / total, 2) if total else 0.0,
            "median_words": half,
            "words_90_percent": ninety,
            "words_99_percent": all_but_one,
            "most_words": max(self.lengths, default=0),
            "most_characters": self.most_characters,
        }


def corpus_statistics(pairs: Iterable[Pair]) -> CorpusStatistics:
    """Compute statistics of a stream of pairs; memory holds a hash of each distinct pair."""
    source, target = _Side(), _Side()
    seen = HashSet()
    count = duplicates = identical = 0
    for pair in pairs:
        count += 1
        duplicates += not seen.add(hash_pair(pair))
        identical += pair.source.strip() == pair.target.strip() != ""
        source.add(pair.source)
        target.add(pair.target)
    ratio = target.ratio_words / source.ratio_words if source.ratio_words else 0.0
    return {
        "pairs": count,
        "duplicates": duplicates,
        "identical": identical,
        "mean_ratio": round(ratio, 3),
        "source": source.result(),
        "target": target.result(),
    }


def percentile(counts: Counter[int], part: int) -> int:
    """The smallest value that is not below ``part`` per cent of the values.

    Example:
        >>> percentile(Counter([1, 2, 3, 4]), 50)
        2
    """
    needed = counts.total() * part / 100
    reached = 0
    for value in sorted(counts):
        reached += counts[value]
        if reached >= needed:
            return value
    return 0
