"""``.strings`` files of iOS and macOS: ``"key" = "text";``."""

import re
from typing import ClassVar

from heedful.data.documents.base import joined_surrogates
from heedful.data.documents.text_spans import TextSpanDocument

_SKIPPED = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[\w.\-]+)\s*(?:=\s*"((?:[^"\\]|\\.)*)"\s*)?;', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class AppleStringsDocument(TextSpanDocument):
    """The texts of a ``.strings`` file."""

    encodings: ClassVar[tuple[str, ...]] = ("utf-8",)

    def find(self) -> None:
        place = 0
        while place < len(self.text):
            skipped = _SKIPPED.match(self.text, place)
            if skipped:
                place = skipped.end()
                continue
            entry = _ENTRY.match(self.text, place)
            if entry is None:
                raise self.broken(place, 'expected "key" = "text";')
            if entry[1] is not None:
                self.add(*entry.span(1), joined_surrogates(_ESCAPE.sub(_unescaped, entry[1])))
            place = entry.end()

    def escaped(self, place: int, translation: str) -> str:
        return "".join(_WRITTEN.get(character, character) for character in translation)


def _unescaped(found: "re.Match[str]") -> str:
    return chr(int(found[1], 16)) if found[1] else _NAMED.get(found[2], found[2])
