"""Documents that are ZIP archives of XML: only the parts with translations are written anew."""

import copy
import io
import re
import zipfile
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document

FIRST = "mimetype"
"""The entry that readers of EPUB and OpenDocument expect first, and stored."""
_SMALL = 100 << 20
_RATIO = 100
"""An archive may expand to ``_SMALL`` bytes, or to ``_RATIO`` times its size."""
_SMALL_PART = 16 << 20
_PART_RATIO = 40
"""The same for a part that is parsed."""
_TAGS = 1_000_000
"""A part may have this many tags, or two for each byte of its archive."""
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""The errors of `zipfile` for broken archives."""


class Archive:
    """The entries of an archive, which are read when they are needed.

    Args:
        data: the bytes of the archive.
        name: the name in messages.

    Raises:
        UserError: it is no archive, is encrypted, expands to too many bytes, or has names that are
            unsafe or occur twice.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.name, self._size = name, len(data)
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except BROKEN as error:
            raise UserError(f"{name} is no ZIP archive, or a broken one: {error}") from error
        infos = self._archive.infolist()
        self.names = [info.filename for info in infos]
        """The names of all entries, in order."""
        expanded = sum(info.file_size for info in infos)
        if expanded > max(_SMALL, _RATIO * len(data)):
            raise UserError(f"{name} would expand to {expanded:,} bytes; such archives are refused")
        if any(info.flag_bits & 1 for info in infos):
            raise UserError(f"{name} is encrypted; remove its password first")
        for entry in self.names:
            if re.search(r"(?:^|/)\.\.(?:/|$)|^/|\\|\0|^\w:", entry):
                raise UserError(f"{name} has an entry with an unsafe name: {entry[:100]!r}")
        if len(set(self.names)) < len(self.names):
            raise UserError(f"{name} has several entries of the same name")

    def read(self, entry: str) -> bytes:
        """The bytes of an entry that is parsed.

        Raises:
            UserError: the entry is missing, broken or too large for its archive.
        """
        if entry not in self.names:
            raise UserError(f"{self.name} has no {entry}, which its format requires")
        size = self._archive.getinfo(entry).file_size
        if size > max(_SMALL_PART, _PART_RATIO * self._size):
            raise UserError(f"{self.name}: {entry} would expand to {size:,} bytes; it is refused")
        data = self._read(entry)
        if (tags := data.count(b"<")) > max(_TAGS, 2 * self._size):
            raise UserError(f"{self.name}: {entry} has {tags:,} tags; it is refused")
        return data

    def changed(self, parts: dict[str, bytes]) -> bytes:
        """The archive with other bytes in some of its entries."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as target:
            target.comment = self._archive.comment
            for info in sorted(self._archive.infolist(), key=lambda one: one.filename != FIRST):
                own = copy.copy(info)
                if info.filename == FIRST:
                    own.compress_type, own.extra = zipfile.ZIP_STORED, b""
                data = parts.get(info.filename)
                target.writestr(own, self._read(info.filename) if data is None else data)
        return out.getvalue()

    def _read(self, entry: str) -> bytes:
        try:
            return self._archive.read(entry)
        except BROKEN as error:
            raise UserError(f"{self.name}: {entry} is broken: {error}") from error


class ArchiveDocument(Document):
    """The texts of some parts of an archive.

    Args:
        data: the bytes of the archive.
        name: the name in messages.
    """

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(name)
        self._data = data
        self._archive = Archive(data, name)
        self._parts = dict(self.parts(self._archive))
        for part in self._parts.values():
            self.segments += part.segments
            self.contexts += part.contexts
            self.spans = part.spans | self.spans
        self._ends = list(accumulate(len(part.segments) for part in self._parts.values()))

    @abstractmethod
    def parts(self, archive: Archive) -> Iterator[tuple[str, Document]]:
        """The parts with texts, and their names in the archive."""

    def fill(
        self, translations: Sequence[str], matches: Sequence[str | None] | None = None
    ) -> None:
        """See `Document.fill`."""
        self.matches = [None] * len(self.segments) if matches is None else matches
        if not len(translations) == len(self.matches) == len(self.segments):
            raise ValueError(f"{len(translations)} translations for {len(self.segments)} segments")
        self._filled = self._with(translations)

    def accepts(self, place: int, translation: str) -> bool:
        start = 0
        for part, end in zip(self._parts.values(), self._ends, strict=True):
            if place < end:
                return part.accepts(place - start, translation)
            start = end
        raise IndexError(place)

    def _original(self) -> bytes:
        return self._data

    def _with(self, translations: Sequence[str]) -> bytes:
        changed: dict[str, bytes] = {}
        reported: Counter[str] = Counter()
        start = 0
        for (name, part), end in zip(self._parts.items(), self._ends, strict=True):
            part.reports = lambda count, text: reported.update({text: count})
            part.fill(translations[start:end], self.matches[start:end])
            if part.contents() != part._original():
                changed[name] = part.contents()
            start = end
        for text, count in reported.items():
            self.report(count, text)
        return self._archive.changed(changed) if changed else self._data
