"""Documents whose texts are replaced in place."""

import codecs
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document
from heedful.data.readers.text import bad_byte, codec_name

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextSpanDocument(Document):
    """A file of one language: every text is replaced by its translation.

    A subclass finds the texts and calls :meth:`add`. All other bytes are kept.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        encoding: encoding of the text; default: by its byte order mark, else that of the format.
    """

    declares_encoding: ClassVar[bool] = False
    encodings: ClassVar[tuple[str, ...]] = ("utf-8",)
    """The encodings of the format, tried in this order if the file has no byte order mark."""
    references: ClassVar[bool] = False
    """Whether characters that the encoding lacks can be written as references (``&#8212;``)."""

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(name)
        self._data = data
        self._mark, found = next(
            ((mark, codec) for mark, codec in _MARKS if data.startswith(mark)), (b"", None)
        )
        own = [codec_name(encoding).removesuffix("-sig")] if encoding else self.encodings_of(data)
        self._text, self._encoding = self._decode(
            data[len(self._mark) :], [found] if found else own
        )
        self._places: list[tuple[int, int]] = []
        self.find()

    @abstractmethod
    def find(self) -> None:
        """Call :meth:`add` for each text of ``self.text``.

        Raises:
            UserError: the file is invalid; the message has the line.
        """

    def encodings_of(self, data: bytes) -> Sequence[str]:
        """The encodings to try for a file without a byte order mark."""
        return self.encodings

    @abstractmethod
    def escaped(self, place: int, translation: str) -> str:
        """Escape a translation for the file."""

    @property
    def text(self) -> str:
        """The whole file."""
        return self._text

    def add(self, start: int, end: int, segment: str) -> None:
        """Add a text with its position; blank texts are skipped."""
        if segment.strip():
            self._places.append((start, end))
            self.segments.append(segment)
            self.contexts.append(None)

    def line_of(self, place: int) -> int:
        """The line number of a character, from 1."""
        return 1 + self._text.count("\n", 0, place)

    def broken(self, place: int, what: str) -> UserError:
        """The error for an invalid file."""
        return UserError(f"{self.name}:{self.line_of(place)}: {what}")

    def _decode(self, data: bytes, codecs_to_try: Sequence[str]) -> tuple[str, str]:
        for codec in codecs_to_try:
            try:
                text = data.decode(codec)
            except UnicodeDecodeError as error:
                if codec != codecs_to_try[-1]:
                    continue
                line = 1 + data[: error.start].count(b"\n")
                raise bad_byte(self.name, line, error, codec) from error
            if not codec.startswith("utf") and text.encode(codec) != data:
                raise UserError(
                    f"{self.name}: its {codec} text cannot be written unchanged; use UTF-8"
                )
            return text, codec
        raise AssertionError("no encoding to try")

    def _original(self) -> bytes:
        return self._data

    def _with(self, translations: Sequence[str]) -> bytes:
        return self._encoded(self._text_with(translations))

    def _text_with(self, translations: Sequence[str]) -> str:
        """The file with translations."""
        parts: list[str] = []
        last = 0
        for place, (start, end) in enumerate(self._places):
            parts.append(self._text[last:start])
            own = translations[place]
            parts.append(self.escaped(place, own) if own.strip() else self._text[start:end])
            last = end
        return "".join([*parts, self._text[last:]])

    def _encoded(self, text: str) -> bytes:
        """Encode a text for the file.

        Raises:
            UserError: the encoding does not have a character.
        """
        try:
            errors = "xmlcharrefreplace" if self.references else "strict"
            return self._mark + text.encode(self._encoding, errors)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise UserError(
                f"{self.name}: its encoding {self._encoding} has no {character!r}, which a "
                "translation needs; convert the file to UTF-8 first"
            ) from error
