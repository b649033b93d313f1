"""What every tokeniser of single texts can do, whoever made it."""

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """Text to numbers and back. PAD, UNKNOWN, BEGIN and END are 0 to 3 in every one."""

    size: int
    """Number of symbols."""
    mask: int | None
    """The symbol that stands for a hidden token; None in a vocabulary without one."""

    def encode(self, text: str) -> list[int]:
        """The tokens of ``text``, without BEGIN and END; none for an empty text."""
        ...

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """The tokens of each text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``; PAD, BEGIN and END have none. Any tokens give a string."""
        ...

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of tokens."""
        ...

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as a person reads it."""
        ...

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        ...

    def word_starts(self) -> list[int]:
        """The tokens that begin a word."""
        ...

    def fingerprint(self) -> str:
        """A hash of all that decides how text becomes tokens: equal means interchangeable."""
        ...
