"""PO documents: empty ``msgstr`` are filled and their entries flagged ``fuzzy``."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document
from heedful.data.readers.catalogue import (
    Entry,
    Header,
    Obsolete,
    parse_catalogue,
    parse_header,
)
from heedful.data.readers.languages import not_in_file
from heedful.data.readers.po import declared_charset, is_turned
from heedful.data.readers.text import bad_byte, codec_name

ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\n": "\\n",
        "\t": "\\t",
        "\r": "\\r",
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\v": "\\v",
    }
)


class Slot(NamedTuple):
    """An empty ``msgstr`` and its segment."""

    entry: Entry
    form: int
    segment: int


_SEPARATOR = "\x04"


class PoDocument(Document):
    """The entries with an empty ``msgstr``; a plural form is filled from its source.

    Forms of an entry with the same source share a segment.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        source: the source language.
        target: the target language.
        encoding: encoding of the text; default: that of the header.
        header: the header that holds at the beginning, for a part of a file.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        source: str | None,
        target: str | None,
        encoding: str | None,
        header: Header | None = None,
    ) -> None:
        super().__init__(name)
        self._data = data
        said = codec_name(encoding or declared_charset(data[: 1 << 16]))
        # The mark, if any, stays: it is written back by the same codec.
        has_mark = data.startswith(b"\xef\xbb\xbf")
        self._encoding = said if has_mark else said.removesuffix("-sig")
        self._lines = self._decode().split("\n")
        self._slots: list[Slot] = []
        self.header = header or Header()
        """The header that holds at the end of the file."""
        for entry in parse_catalogue((line.removesuffix("\r") for line in self._lines), name):
            if isinstance(entry, Obsolete):
                continue
            if entry.is_header:
                self.header = parse_header(entry)
                if is_turned(name, self.header, source, target):
                    raise not_in_file(str(target), name, [self.header.language])
            else:
                self._add(entry, self.header)

    def _add(self, entry: Entry, header: Header) -> None:
        places: dict[str, int] = {}
        for form, text in entry.strings.items():
            source = header.source_of(entry, form)
            if text or not source.strip():
                continue
            if source not in places:
                places[source] = len(self.segments)
                self.segments.append(source)
                self.contexts.append(entry.context)
            self._slots.append(Slot(entry, form, places[source]))

    def _original(self) -> bytes:
        return self._data

    def _with(self, translations: Sequence[str]) -> bytes:
        lines: list[str | None] = list(self._lines)
        flagged: set[int] = set()
        kinds_of: defaultdict[int, set[str | None]] = defaultdict(set)
        for slot in self._slots:
            kinds_of[slot.entry.line].add(self.matches[slot.segment])
        for entry, form, segment in self._slots:
            if not translations[segment].strip():
                continue
            first, last = entry.spans[form]
            keyword = "msgstr" if entry.plural is None else f"msgstr[{form}]"
            ending = "\r" if self._lines[first - 1].endswith("\r") else ""
            text = _like(translations[segment], self.segments[segment])
            lines[first - 1] = "\n".join(line + ending for line in _quoted(keyword, text))
            lines[first:last] = [None] * (last - first)
            if entry.line not in flagged:
                flagged.add(entry.line)
                kinds = kinds_of[entry.line]
                if None in kinds:
                    self._flag(entry, lines, ending)
                else:
                    comment = f"# {' and '.join(sorted(map(str, kinds)))} match in the memory"
                    first = self._first_comment_line(entry)
                    lines[first] = f"{comment}{ending}\n{lines[first]}"
        return self._encode("\n".join(line for line in lines if line is not None))

    def _flag(self, entry: Entry, lines: list[str | None], ending: str) -> None:
        if "fuzzy" in entry.flags:
            return
        if entry.flag_line is not None:
            indentation, _, flags = self._lines[entry.flag_line - 1].partition("#,")
            flags = flags.lstrip(" \t")
            comma = ", " if flags.strip() else ""
            lines[entry.flag_line - 1] = f"{indentation}#, fuzzy{comma}{flags}"
            return
        place = entry.line - 1
        # Flags stand before the lines that tell the previous message (#|).
        while place > 0 and self._lines[place - 1].lstrip().startswith("#|"):
            place -= 1
        lines[place] = f"#, fuzzy{ending}\n{lines[place]}"

    def _first_comment_line(self, entry: Entry) -> int:
        """The index of the first line of an entry, including its comments."""
        place = entry.line - 1
        while place > 0 and re.match(r"\s*#(?!~)", self._lines[place - 1]):  # #~: an obsolete one
            place -= 1
        return place

    def _decode(self) -> str:
        try:
            return self._data.decode(self._encoding)
        except UnicodeDecodeError as error:
            line = 1 + self._data[: error.start].count(b"\n")
            raise bad_byte(self.name, line, error, self._encoding) from error

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise UserError(
                f"{self.name}: its charset {self._encoding} has no {character!r}, which a "
                "translation needs; convert the catalogue to UTF-8 first"
            ) from error


def _like(translation: str, source: str) -> str:
    """A translation with the line feeds that its source has at both ends.

    msgfmt refuses catalogues in which they differ, and its own separator of contexts in a text.
    """
    translation = translation.replace(_SEPARATOR, "")
    first = len(source) - len(source.lstrip("\n"))
    last = len(source) - len(source.rstrip("\n"))
    return "\n" * first + translation.strip("\n") + "\n" * last


def _quoted(keyword: str, text: str) -> Iterator[str]:
    *ended, rest = text.split("\n")
    pieces = [piece + "\n" for piece in ended] + ([rest] if rest else [])
    if len(pieces) <= 1:
        yield f'{keyword} "{text.translate(ESCAPES)}"'
        return
    yield f'{keyword} ""'
    for piece in pieces:
        yield f'"{piece.translate(ESCAPES)}"'
