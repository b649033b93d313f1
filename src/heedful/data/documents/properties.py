"""Java ``.properties`` files: keys and texts, with escapes and continued lines."""

import re
from typing import ClassVar

from heedful.data.documents.base import joined_surrogates
from heedful.data.documents.text_spans import TextSpanDocument

_ENTRY = re.compile(
    r"[ \t\f]*(?![#!\r\n])(?:[^\s=:\\]|\\(?:\r\n|.|\n))+[ \t\f]*(?:[=:][ \t\f]*)?"
    r"((?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*)"
)
_COMMENT = re.compile(r"[ \t\f]*[#!][^\r\n]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(?:\r\n|\r|\n)[ \t\f]*|([\s\S]))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}


class PropertiesDocument(TextSpanDocument):
    """The texts of a ``.properties`` file; characters are escaped if the file escapes them."""

    encodings: ClassVar[tuple[str, ...]] = ("utf-8", "iso-8859-1")

    def find(self) -> None:
        place = 0
        self._ascii = self.text.isascii() or self._encoding == "iso-8859-1"
        while place < len(self.text):
            comment = _COMMENT.match(self.text, place)
            entry = None if comment else _ENTRY.match(self.text, place)
            if entry is not None:
                self.add(*entry.span(1), joined_surrogates(_ESCAPE.sub(_unescaped, entry[1])))
            end = comment.end() if comment else entry.end() if entry else place
            line_end = _LINE_END.search(self.text, end)
            place = len(self.text) if line_end is None else line_end.end()

    def escaped(self, place: int, translation: str) -> str:
        text = "".join(_WRITTEN.get(character, character) for character in translation)
        if text[:1] == " ":
            text = "\\" + text
        if not self._ascii:
            return text
        units = text.encode("utf-16-be", "surrogatepass")
        codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
        return "".join(chr(code) if code < 128 else f"\\u{code:04X}" for code in codes)


def _unescaped(found: "re.Match[str]") -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return _NAMED.get(found[2], found[2]) if found[2] else ""
