"""Plain text: each line is a segment."""

import re

from heedful.data.documents.text_spans import TextSpanDocument

_LINE = re.compile(r"[^\r\n]+")
_BREAKS = re.compile(r"[\r\n]+")


class PlainDocument(TextSpanDocument):
    """The lines of a text."""

    def find(self) -> None:
        for found in _LINE.finditer(self.text):
            self.add(*found.span(), found[0])

    def escaped(self, place: int, translation: str) -> str:
        return _BREAKS.sub(" ", translation)
