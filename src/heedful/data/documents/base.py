"""The base class of documents: returns segments, takes translations, keeps all other bytes."""

import gzip
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.data.protected.known import Chains
from heedful.data.readers.markup import NOT_XML


class Edit(NamedTuple):
    """New text for the characters or bytes from ``start`` up to ``end``."""

    start: int
    end: int
    text: str


class Document(ABC):
    """A file with targets to fill.

    Attributes:
        name: what errors and notices call it.
        segments: the sources whose target is empty, in order.
    """

    declares_encoding: ClassVar[bool] = True
    """Whether files of the format declare their encoding."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: list[str] = []
        self.contexts: list[str | None] = []
        """Of each segment, where the format has them: what tells those with one source apart."""
        self.spans: dict[str, Chains] = {}
        """Markup in segments that the format itself knows: it must be in their translations."""
        self.matches: Sequence[str | None] = ()
        """Of each segment that was filled, its kind of match in a memory, if it came from one."""
        self._filled: bytes | None = None

    def fill(
        self, translations: Sequence[str], matches: Sequence[str | None] | None = None
    ) -> None:
        """Put a translation into every empty target and mark it for review.

        Args:
            translations: one a segment.
            matches: the kind of each that comes from a translation memory (``exact``, ``context``),
                None for one that was made by a model. A match is marked as such, not for review.

        Raises:
            ValueError: there are not as many translations, or matches, as segments.
        """
        self.matches = [None] * len(self.segments) if matches is None else matches
        if not len(translations) == len(self.matches) == len(self.segments):
            raise ValueError(f"{len(translations)} translations for {len(self.segments)} segments")
        empty = sum(not translation.strip() for translation in translations)
        if empty:
            notice(f"{self.name}: {empty} empty translations left their targets empty")
        self._filled = self._with(translations)

    def write(self, path: Path) -> None:
        """Write the document, filled if it was; compressed if the name ends in ``.gz``.

        Raises:
            UserError: the file cannot be written; nothing is left behind.
        """
        data = self.contents()
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        with atomic_file(path) as file:
            file.write(data)

    def contents(self) -> bytes:
        """The document's bytes, uncompressed: filled if it was, else as they were."""
        return self._original() if self._filled is None else self._filled

    @abstractmethod
    def _original(self) -> bytes:
        """The file as it was, uncompressed."""

    @abstractmethod
    def _with(self, translations: Sequence[str]) -> bytes:
        """The file with its targets filled."""


def without_forbidden(text: str) -> tuple[str, int]:
    """A text without the characters that XML cannot hold, and how many they were."""
    return NOT_XML.subn("", text)
