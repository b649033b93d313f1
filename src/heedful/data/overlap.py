"""The overlap of held-out data with training data."""

from collections import Counter
from collections.abc import Iterable


def count_overlap(train: Iterable[str], held_out: Iterable[str]) -> int:
    """The number of held-out sources that also occur in training data; empty sources do not count.

    White space around sources is ignored. Held-out sources are in memory; training data is
    streamed.

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
