"""Examples: one item of a corpus."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A text and its translation, without their line ends."""

    source: str
    target: str


class Labelled(NamedTuple):
    """A text, or two that are judged together, and what it was labelled as."""

    texts: tuple[str, ...]
    label: str


class Tagged(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
