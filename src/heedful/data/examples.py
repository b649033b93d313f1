"""Examples: one item of a corpus."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A text and its translation, without their line ends."""

    source: str
    target: str
