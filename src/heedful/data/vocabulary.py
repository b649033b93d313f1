"""The interface of all vocabularies of single texts."""

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """Converts texts to tokens and back. PAD, UNKNOWN, BEGIN and END are always 0 to 3."""

    size: int
    """Number of symbols."""
    mask: int | None
    """The mask symbol; None in a vocabulary without one."""

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens."""
        ...

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN and END give no text. Any tokens give a string."""
        ...

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        ...

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token."""
        ...

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        ...

    def word_starts(self) -> list[int]:
        """The tokens that begin a word."""
        ...

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        ...
