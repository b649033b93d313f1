"""The base class of documents: returns segments and inserts translations."""

import gzip
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.data.protected.known import Chains
from heedful.data.readers.markup import NOT_XML


class Edit(NamedTuple):
    """The replacement of the characters or bytes from ``start`` to ``end`` (exclusive)."""

    start: int
    end: int
    text: str


class Entry(NamedTuple):
    """A source in a bilingual file.

    Attributes:
        name: identifies the entry for readers, such as a line of the file.
        source: the text to translate.
        target: its translation; empty if there is none.
    """

    name: str
    source: str
    target: str


class Document(ABC):
    """A file with targets to fill in.

    Attributes:
        name: the name in messages.
        segments: sources with an empty target, in order.
        entries: all sources with their targets, if the format is ``bilingual``.
    """

    declares_encoding: ClassVar[bool] = True
    """Whether files of the format declare their encoding."""
    bilingual: ClassVar[bool] = False
    """Whether ``entries`` has the sources and targets of the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: list[str] = []
        self.entries: list[Entry] = []
        self.contexts: list[str | None] = []
        """The context of each segment, if the format has any: it distinguishes equal sources."""
        self.spans: dict[str, Chains] = {}
        """Markup in segments that the format defines; translations must contain it."""
        self.matches: Sequence[str | None] = ()
        """The kind of memory match of each filled segment; None for others."""
        self.reports: Callable[[int, str], None] | None = None
        """Called with a number and a text instead of printing them as a notice."""
        self._filled: bytes | None = None

    @property
    def count(self) -> int:
        """The number of segments."""
        return len(self.segments)

    @property
    def is_for_translation(self) -> bool:
        """Whether the file shows that its texts are for readers, and not a program's settings."""
        return True

    def fill(
        self, translations: Sequence[str], matches: Sequence[str | None] | None = None
    ) -> None:
        """Insert a translation in every empty target and mark it for review.

        Args:
            translations: one translation per segment.
            matches: the kind of match (``exact``, ``context``) of translations from a memory, None
                for those of a model. A match is marked as a match, not for review.

        Raises:
            ValueError: the number of translations or matches is not that of segments.
        """
        self.matches = [None] * len(self.segments) if matches is None else matches
        if not len(translations) == len(self.matches) == len(self.segments):
            raise ValueError(f"{len(translations)} translations for {len(self.segments)} segments")
        empty = sum(not translation.strip() for translation in translations)
        if empty:
            self.report(empty, "empty translations left their targets empty")
        self._filled = self._with(translations)

    def report(self, count: int, text: str) -> None:
        """Print a notice, or tell it to whom the document belongs to."""
        if self.reports is not None:
            self.reports(count, text)
        else:
            notice(f"{self.name}: {count} {text}")

    def accepts(self, place: int, translation: str) -> bool:
        """Whether the translation of a segment has the markup of the segment.

        Others are not written by formats that know the markup in their texts.
        """
        return True

    def pieces(self, place: int) -> list[str]:
        """A segment as words and markup in turn, which begins and ends with words."""
        text = self.segments[place]
        pieces, at = [], 0
        for start, end in sorted(span for chain in self.spans.get(text, ()) for span in chain):
            pieces += [text[at:start], text[start:end]]
            at = end
        return [*pieces, text[at:]]

    def write(self, path: Path) -> None:
        """Write the document; compressed if the name ends in ``.gz``.

        Raises:
            UserError: the file cannot be written; no incomplete file remains.
        """
        data = self.contents()
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        with atomic_file(path) as file:
            file.write(data)

    def contents(self) -> bytes:
        """The uncompressed bytes of the document, with the inserted translations."""
        return self._original() if self._filled is None else self._filled

    @abstractmethod
    def _original(self) -> bytes:
        """The original file, uncompressed."""

    @abstractmethod
    def _with(self, translations: Sequence[str]) -> bytes:
        """The file with translations in its targets."""


def without_forbidden(text: str) -> tuple[str, int]:
    """Remove characters that XML does not allow; also returns their number."""
    return NOT_XML.subn("", text)


def joined_surrogates(text: str) -> str:
    """Join escaped surrogate pairs to characters; others become U+FFFD.

    Example:
        >>> joined_surrogates(chr(0xD83D) + chr(0xDE00)) == chr(0x1F600)
        True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
