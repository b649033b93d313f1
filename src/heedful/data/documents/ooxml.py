"""Office Open XML: DOCX, PPTX and XLSX. The words of a paragraph are in runs with a style each."""

import html
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.archive import Archive, ArchiveDocument
from heedful.data.documents.base import Document
from heedful.data.documents.inline_parts import InlinePart
from heedful.data.documents.inline_pieces import Fragment, Markup, Piece, Words
from heedful.data.readers.markup import ATTRIBUTE_ESCAPES, ESCAPES

if TYPE_CHECKING:
    from lxml import etree

_NAMESPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "x",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "x",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://purl.oclc.org/ooxml/drawingml/chart": "c",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "t",
}
_PARAGRAPHS = frozenset({"w:p", "a:p", "x:si", "x:is", "x:text"})
_RUNS = frozenset({"w:r", "a:r", "x:r"})
_TEXTS = frozenset({"w:t", "a:t", "x:t"})
_PLAIN = frozenset({"c:v", "t:text"})
"""Texts without styles: names in charts, and comments of newer versions of Excel."""
_NUMBERS = frozenset({"c:numCache", "c:numLit"})
_PROPERTIES = frozenset({"w:pPr", "a:pPr", "a:endParaRPr"})
_CONTAINERS = frozenset({
    "w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdt", "w:dir", "w:bdo",
})  # fmt: skip
_WHOLE = frozenset({"w:fldSimple", "a:fld"})
_DROPPED = frozenset({
    "w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen", "x:rPh", "x:phoneticPr",
})  # fmt: skip
"""Notes of the program about the old text, and how it is read aloud."""
_RANGE = re.compile(r"(w:\w+)(?:Range)?(Start|End)$")
_FIELDS = re.compile(r"\s*(?:HYPERLINK|TOC|REF)\b", re.IGNORECASE)
"""Fields whose results are translated."""
_NO_STYLE = re.compile(
    r"<(?:\w+:)?(?:lang|noProof)\b[^<>]*/>"
    r"""|\s(?:lang|altLang|dirty|err|smtClean|noProof|bmk|[\w:]*rsid\w*)="[^"]*\""""
)
_EMPTY = re.compile(r"<(?:\w+:)?rPr\s*(?:/>|>\s*</(?:\w+:)?rPr\s*>)")
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""A character that workbooks write by its number, such as a line break in a column's name."""
_DIRECT = "\0"
"""The style of words of a cell that has no runs."""


class _Field(NamedTuple):
    """A field that is being read: where it begins, and its instruction."""

    start: int
    instruction: list[str]
    separated: list[int]


class OoxmlPart(InlinePart):
    """A part with paragraphs of Word, of drawings, or with the texts of cells.

    Args:
        data: the bytes of the part.
        name: the name in messages.
        kept: texts of cells that are not translated, such as names that formulas refer to; as
            `_plain` has them.
    """

    def __init__(self, data: bytes, name: str, kept: Collection[str] = ()) -> None:
        self._kept = kept
        self._raw: dict[str, str] = {}
        """A style without what differs between runs that look alike → its XML, which begins with
        the namespaces that the run declares, and ``>``."""
        super().__init__(data, name)

    def paragraphs(self, root: "etree._Element") -> Iterator[tuple["etree._Element", list[Piece]]]:
        for child in root:
            name = _name(child)
            if name in _PARAGRAPHS or name in _PLAIN:
                pieces: list[Piece] = [Words(child.text or "", _DIRECT)] if name in _PLAIN else []
                yield from self._children(child, pieces, [])
                if not self._is_kept(child, pieces):
                    yield child, pieces
            elif name not in _NUMBERS:
                yield from self.paragraphs(child)

    def range_of(self, paragraph: "etree._Element") -> tuple[int, int]:
        if _name(paragraph) in _PLAIN:
            return self.inside(paragraph)
        inside = [child for child in paragraph if _name(child) not in _PROPERTIES]
        return self.span(inside[0])[0], self.span(inside[-1])[1]

    def written(self, words: str, style: str, paragraph: "etree._Element") -> str:
        if _name(paragraph) in _PLAIN:
            return words.translate(ESCAPES)
        prefix = f"{paragraph.prefix}:" if paragraph.prefix else ""
        space = "" if _name(paragraph) == "a:p" else ' xml:space="preserve"'
        text = f"<{prefix}t{space}>{words.translate(ESCAPES)}</{prefix}t>"
        if style == _DIRECT:
            return text
        return f"<{prefix}r{self._raw.get(style, '>')}{text}</{prefix}r>"

    def _is_kept(self, paragraph: "etree._Element", pieces: Sequence[Piece]) -> bool:
        name = _name(paragraph)
        if name == "t:text":  # the persons in a comment are at places of its text
            return any(_name(one) == "t:mentions" for one in paragraph.itersiblings())
        words = "".join(one.text for one in pieces if isinstance(one, Words))
        return name.startswith(("x:", "c:")) and _plain(words) in self._kept

    def _children(
        self, element: "etree._Element", pieces: list[Piece], fields: list[_Field]
    ) -> Iterator[tuple["etree._Element", list[Piece]]]:
        """Add the pieces of a paragraph or a container; returns the paragraphs inside of them."""
        for child in element:
            name = _name(child)
            if name in _RUNS:
                yield from self._run(child, pieces, fields)
            elif name in _TEXTS:
                pieces.append(Words(child.text or "", _DIRECT))
            elif name in _PROPERTIES or name in _DROPPED:
                continue
            elif name in _CONTAINERS:
                yield from self._container(child, pieces, fields)
            elif found := _RANGE.fullmatch(name):
                kind = "open" if found[2] == "Start" else "close"
                identity = f"{found[1]} {_attribute(child, 'id')}"
                pieces.append(Markup(kind, self.whole(child).fragments, identity))
            else:
                pieces.append(self.whole(child, "whole" if name in _WHOLE else "alone"))
                yield from self.paragraphs(child)

    def _container(
        self, element: "etree._Element", pieces: list[Piece], fields: list[_Field]
    ) -> Iterator[tuple["etree._Element", list[Piece]]]:
        inner = element
        for child in element:
            if _name(child) == "w:sdtContent":
                inner = child
        (start, end), (first, last) = self.span(element), self.inside(inner)
        if first == last or (inner is element and _name(element) == "w:sdt"):
            pieces.append(self.whole(element))
            return
        pieces.append(Markup("open", (Fragment("", start, first),)))
        yield from self._children(inner, pieces, fields)
        pieces.append(Markup("close", (Fragment("", last, end),)))

    def _run(
        self, run: "etree._Element", pieces: list[Piece], fields: list[_Field]
    ) -> Iterator[tuple["etree._Element", list[Piece]]]:
        prefix = f"{run.prefix}:" if run.prefix else ""
        declared = self._declared(run)
        raw, style = f"{declared}>", ""
        for child in run:
            name = _name(child)
            if name.endswith(":rPr"):
                own = self.text[slice(*self.span(child))]
                raw, style = f"{declared}>{own}", declared + _EMPTY.sub("", _NO_STYLE.sub("", own))
                self._raw.setdefault(style, raw)
            elif name in _TEXTS:
                pieces.append(Words(child.text or "", style))
            elif name == "w:ruby":
                for base in child:
                    if _name(base) == "w:rubyBase":
                        yield from self._children(base, pieces, fields)
            elif name == "w:noBreakHyphen":
                pieces.append(Words("\u2011", style))
            elif name not in _DROPPED:
                start, end = self.span(child)
                fragment = Fragment(f"<{prefix}r{raw}", start, end, f"</{prefix}r>")
                self._special(child, fragment, pieces, fields)
                yield from self.paragraphs(child)

    def _declared(self, run: "etree._Element") -> str:
        """The namespaces that a run, or what it stands in, declares and its paragraph does not."""
        found = ""
        element: etree._Element | None = run
        while element is not None and _name(element) not in _PARAGRAPHS:
            start = self.span(element)[0]
            found += self.text[start : self.text.index(">", start)]
            element = element.getparent()
        if "xmlns" not in found or element is None:
            return ""
        new = sorted(
            (f"xmlns:{prefix}" if prefix else "xmlns", uri.translate(ATTRIBUTE_ESCAPES))
            for prefix, uri in run.nsmap.items() - element.nsmap.items()
        )
        return "".join(f' {name}="{uri}"' for name, uri in new)

    def _special(
        self,
        element: "etree._Element",
        fragment: Fragment,
        pieces: list[Piece],
        fields: list[_Field],
    ) -> None:
        """Add what a run has besides words; fields become one piece, or a pair."""
        name = _name(element)
        kind = _attribute(element, "fldCharType") if name == "w:fldChar" else ""
        pieces.append(Markup("alone", (fragment,), fixed=name in ("w:fldChar", "w:instrText")))
        if kind == "begin":
            fields.append(_Field(len(pieces) - 1, [], []))
        elif fields and name == "w:instrText":
            fields[-1].instruction.append(element.text or "")
        elif fields and kind == "separate":
            fields[-1].separated.append(len(pieces) - 1)
        elif fields and kind == "end":
            self._end_field(element, fields.pop(), pieces)

    def _end_field(self, element: "etree._Element", own: _Field, pieces: list[Piece]) -> None:
        """Join the pieces of a field, or those before and behind its result."""
        paragraph = next(one for one in element.iterancestors() if _name(one) in _PARAGRAPHS)

        def joined(start: int, end: int) -> tuple[Fragment, ...] | None:
            found: list[Fragment] = []
            depth = 0
            for piece in pieces[start:end]:
                if isinstance(piece, Words):
                    found.append(Fragment(self.written(*piece, paragraph), 0, 0))
                    continue
                if not piece.name:
                    depth += {"open": 1, "close": -1}.get(piece.kind, 0)
                found += piece.fragments
                if depth < 0:
                    return None
            return None if depth else tuple(found)

        start, end = own.start, len(pieces)
        if own.separated and _FIELDS.match("".join(own.instruction)):
            middle = own.separated[0] + 1
            opening, closing = joined(start, middle), joined(end - 1, end)
            if opening is not None and closing is not None and joined(middle, end - 1) is not None:
                pieces[start:] = [
                    Markup("open", opening), *pieces[middle : end - 1], Markup("close", closing)
                ]  # fmt: skip
            return
        whole = joined(start, end)
        if whole is not None:
            pieces[start:] = [Markup("whole", whole)]


class OfficeDocument(ArchiveDocument):
    """The texts of a DOCX, PPTX or XLSX file."""

    texts: ClassVar[re.Pattern[str]]
    """The names of parts with texts."""
    main: ClassVar[re.Pattern[str]]
    """The name of a part that every file has."""

    def parts(self, archive: Archive) -> Iterator[tuple[str, Document]]:
        if not any(map(self.main.fullmatch, archive.names)):
            raise UserError(f"{self.name} is no document of its format: it lacks its main part")
        kept = self.kept(archive)
        for name in filter(self.texts.fullmatch, archive.names):
            data = archive.read(name)
            if not name.startswith("xl/worksheets/") or b"inlineStr" in data:
                yield name, OoxmlPart(data, f"{self.name}: {name}", kept)

    def kept(self, archive: Archive) -> frozenset[str]:
        """Texts of cells that must stay."""
        return frozenset()


class WordDocument(OfficeDocument):
    """The texts of a DOCX file, with headers, footers, notes, comments, charts and diagrams."""

    main = re.compile(r"word/document\d*\.xml")
    texts = re.compile(
        r"word/(?:(?:document|header|footer|footnotes|endnotes|comments)\d*"
        r"|charts/chart\d+|drawings/drawing\d+|diagrams/(?:data|drawing)\d+)\.xml"
    )


class SlidesDocument(OfficeDocument):
    """The texts of a PPTX file: slides, notes, charts and diagrams."""

    main = re.compile(r"ppt/presentation\.xml")
    texts = re.compile(
        r"ppt/(?:slides/slide|notesSlides/notesSlide|charts/chart|drawings/drawing"
        r"|diagrams/(?:data|drawing))\d+\.xml"
    )


class SheetsDocument(OfficeDocument):
    """The texts of an XLSX file: cells, comments, drawings and charts.

    Names of table columns stay, because formulas refer to them and cells must have the same text.
    """

    main = re.compile(r"xl/workbook\d*\.xml")
    texts = re.compile(
        r"xl/(?:sharedStrings|comments\d*|comments/comment\d+|threadedComments/threadedComment\d+"
        r"|worksheets/sheet\d+|drawings/drawing\d+|charts/chart\d+|diagrams/(?:data|drawing)\d+)\.xml"
    )
    _tables = re.compile(r"xl/(?:tables/|pivotCache/pivotCacheDefinition)[^/]*\.xml")
    _column = re.compile(r"<(?:\w+:)?(?:tableColumn|cacheField)\b[^<>]*?\sname=\"([^\"]*)\"")

    def kept(self, archive: Archive) -> frozenset[str]:
        """See `OfficeDocument.kept`."""
        return frozenset(
            _plain(html.unescape(name))
            for part in filter(self._tables.fullmatch, archive.names)
            for name in self._column.findall(archive.read(part).decode("utf-8", "replace"))
        )


def _plain(text: str) -> str:
    """A text of a workbook without escapes, and with single spaces as its white space."""
    return " ".join(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).split())


def _name(element: "etree._Element") -> str:
    """The name of an element with the usual prefix; empty in other namespaces."""
    namespace, _, local = str(element.tag)[1:].partition("}")
    prefix = _NAMESPACES.get(namespace)
    return f"{prefix}:{local}" if prefix else ""


def _attribute(element: "etree._Element", local: str) -> str:
    """An attribute in any namespace; empty if there is none."""
    found = element.attrib.items()
    return next((str(own) for key, own in found if str(key).rpartition("}")[2] == local), "")
