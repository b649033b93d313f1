"""The overlap of held-out data with training data."""

from collections import Counter
from collections.abc import Iterable


def count_overlap(train: Iterable[str], held_out: Iterable[str]) -> int:
    """How many held-out sources also stand in training; empty ones do not count.

    Sources are equal when they are so without the white space around them. The held-out sources
    are kept in memory, training is streamed.

    Example:
        >>> count_overlap(["a ", "b", "b"], ["b", " b", "c", ""])
        2
    """
    wanted = Counter(text.strip() for text in held_out)
    del wanted[""]
    found = 0
    for text in train:
        if not wanted:
            break
        found += wanted.pop(text.strip(), 0)
    return found
