"""Parts of office documents: XML whose paragraphs have words with styles."""

import re
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from heedful.data.documents.inline_pieces import (
    Codes,
    Fragment,
    Markup,
    Paragraph,
    Piece,
    Words,
    is_movable,
    joined,
    merged,
    trimmed,
)
from heedful.data.documents.marked import Code, Marked, MarkedDocument, one_line
from heedful.data.documents.xml import TAG, element_spans
from heedful.data.readers.kinds import xml_encoding
from heedful.data.readers.text import codec_name
from heedful.data.readers.xml import SAFE, broken, refuse_entities, refuse_references

if TYPE_CHECKING:
    from lxml import etree

_TAG = re.compile(TAG.pattern.decode())


class InlinePart(MarkedDocument):
    """A part of an archive whose paragraphs have words with styles."""

    declares_encoding: ClassVar[bool] = True
    references: ClassVar[bool] = True

    @abstractmethod
    def paragraphs(self, root: "etree._Element") -> Iterator[tuple["etree._Element", list[Piece]]]:
        """The paragraphs below an element with their words and markup; nested ones, too."""

    @abstractmethod
    def range_of(self, paragraph: "etree._Element") -> tuple[int, int]:
        """The part of a paragraph that its pieces are from, in characters."""

    @abstractmethod
    def written(self, words: str, style: str, paragraph: "etree._Element") -> str:
        """Words as XML."""

    def encodings_of(self, data: bytes) -> Sequence[str]:
        return (codec_name(xml_encoding(data[:1024])).removesuffix("-sig"),)

    def marked(self) -> Iterator[Marked]:
        self._paragraphs: list[Paragraph] = []
        root = self._parse(self.text)
        refuse_references(root, self.name)
        spans = _character_spans(self.text)
        self._spans = dict(zip(root.iter("*"), spans, strict=True))
        for element, pieces in self.paragraphs(root):
            inner, paragraph = trimmed(element, merged(pieces))
            if not any(isinstance(one, Words) and one.text.strip() for one in inner):
                continue
            if not is_movable(inner):
                continue
            codes = Codes(paragraph)
            codes.add(inner)
            start, end = self.range_of(element)
            note = str(len(self._paragraphs))
            self._paragraphs.append(paragraph)
            yield Marked(start, end, tuple(codes.pieces(start)), tuple(codes.chains()), note)
        del self._spans

    def composed(self, one: Marked, parts: Sequence[str | Code]) -> str | None:
        own = self._paragraphs[int(one.note)]
        found = [*own.before]
        styles = [own.style]
        for part in parts:
            if isinstance(part, str):
                found.append(Words(one_line(part), styles[-1]))
                continue
            markup = own.markup[part.text]
            is_closing = part.text.startswith("</")
            if is_closing:
                styles.pop()
            elif part.text in own.styles:
                styles.append(own.styles[part.text])
            if isinstance(markup, Markup):
                found.append(markup)
        found += own.after
        return "".join(self._piece(piece, own) for piece in joined(found))

    def span(self, element: "etree._Element") -> tuple[int, int]:
        """The place of an element in characters; while `paragraphs` runs."""
        return self._spans[element]

    def inside(self, element: "etree._Element") -> tuple[int, int]:
        """The place of the content of an element."""
        start, end = self.span(element)
        opening = _TAG.match(self.text, start)
        assert opening is not None
        if self.text[opening.end() - 2] == "/":
            return end, end
        return opening.end(), self.text.rindex("</", start, end)

    def whole(self, element: "etree._Element", kind: str = "alone") -> Markup:
        """An element as markup."""
        return Markup(kind, (Fragment("", *self.span(element)),))

    def _piece(self, piece: Piece, own: Paragraph) -> str:
        if isinstance(piece, Words):
            return self.written(piece.text, piece.style, own.element) if piece.text else ""
        return "".join(
            before + self._rendered(start, end, bisect_left(self._starts, start + 1)) + after
            for before, start, end, after in piece.fragments
        )

    def _with(self, translations: Sequence[str]) -> bytes:
        data = super()._with(translations)
        self._parse(data[len(self._mark) :].decode(self._encoding))
        return data

    def _parse(self, text: str) -> "etree._Element":
        from lxml import etree

        try:
            parser = etree.XMLParser(encoding="utf-8", **SAFE)
            root = etree.fromstring(text.encode("utf-8"), parser)
        except etree.XMLSyntaxError as error:
            raise broken(self.name, "XML", error) from error
        refuse_entities(root, self.name)
        return root


def _character_spans(text: str) -> list[tuple[int, int]]:
    """The places of all elements in characters."""
    data = text.encode("utf-8")
    spans = element_spans(data)
    if len(data) == len(text):
        return [(start, end) for start, end in spans]
    places: dict[int, int] = {}
    at = characters = 0
    for place in sorted({place for span in spans for place in span}):
        characters += len(data[at:place].decode("utf-8"))
        places[place] = characters
        at = place
    return [(places[start], places[end]) for start, end in spans]
