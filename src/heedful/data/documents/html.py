"""HTML and XHTML: the texts of block elements, and attributes with text for readers."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple
from xml.parsers import expat

from heedful.basics.errors import UserError
from heedful.data.documents.base import without_forbidden
from heedful.data.documents.html_tokens import Attribute, Token, tokens
from heedful.data.documents.marked import WHITE_SPACE, Code, Marked, MarkedDocument
from heedful.data.documents.marked_items import RAW, Item, segment_of
from heedful.data.protected.rules import VOID
from heedful.data.readers.kinds import extension, xml_encoding
from heedful.data.readers.text import codec_name

INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "img", "ins", "kbd", "mark", "math", "nobr", "q", "rb", "rp", "rt", "rtc",
    "ruby", "s", "samp", "script", "small", "span", "strike", "strong", "style", "sub", "sup",
    "svg", "time", "tt", "u", "var", "wbr",
})  # fmt: skip
"""Inline elements; custom elements (with a hyphen) are also inline."""
SKIPPED = frozenset({"code", "math", "pre", "script", "style", "svg", "xmp"})
"""Elements whose texts are not translated."""
_NO_WORDS = frozenset({"math", "script", "style", "svg"})
ATTRIBUTES = frozenset({
    "title", "alt", "placeholder", "label", "summary", "aria-label", "aria-description",
    "aria-placeholder", "aria-roledescription", "aria-valuetext",
})  # fmt: skip
"""Attributes with text for readers."""
META = frozenset({
    "description", "keywords", "og:title", "og:description", "og:image:alt", "twitter:title",
    "twitter:description", "twitter:image:alt",
})  # fmt: skip
"""``meta`` elements with text for readers."""
_BUTTONS = frozenset({"submit", "button", "reset"})
_PARAGRAPH_ENDS = frozenset({
    "address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div",
    "dl", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hgroup", "hr", "main", "menu", "nav", "ol", "p", "pre", "section", "table",
    "ul",
})  # fmt: skip
_IMPLIED: dict[str, frozenset[str]] = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr", "td", "th"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
    "option": frozenset({"option"}),
}
"""A start tag → the elements that it closes if one of them is the innermost."""
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{#[^{}]*#\}")
_CHARSET = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_PLAIN = re.compile(r"&(?!(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);)|[<>]")
_SKIPPED_ITEM = "skipped"
_UNQUOTED = "unquoted"
"""The note of attributes without quotes; the note of others is their quote."""


class _Element(NamedTuple):
    name: str
    translated: bool
    preserved: bool


class HtmlDocument(MarkedDocument):
    """The texts of a page with inline tags, except ``translate="no"``, code and scripts.

    Expressions of template languages, in double braces or ``{% %}``, are also kept.
    """

    encodings: ClassVar[tuple[str, ...]] = ("utf-8", "cp1252")
    references: ClassVar[bool] = True

    def encodings_of(self, data: bytes) -> Sequence[str]:
        """By the XML declaration or ``meta``, else UTF-8, else windows-1252."""
        declared = xml_encoding(data[:1024])
        if declared == "utf-8" and (found := _CHARSET.search(data[:4096])):
            declared = found[1].decode("ascii")
        try:
            codec = codec_name(declared).removesuffix("-sig")
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from error
        if codec in ("iso8859-1", "ascii"):  # which browsers read as windows-1252
            return ("cp1252", "iso8859-1")
        if codec.startswith("utf-16") and b"\0" not in data[:2]:
            return ("utf-8",)  # as the standard has it: the declaration itself was read as ASCII
        return self.encodings if codec == "utf-8" else (codec,)

    def marked(self) -> Iterator[Marked]:
        yield from HtmlReader(self.text, self.is_xml()).segments()

    def is_xml(self) -> bool:
        """Whether the page is XHTML."""
        head = self.text[:1024]
        return extension(self.name) == ".xhtml" or head.lstrip().startswith("<?xml")

    def _with(self, translations: Sequence[str]) -> bytes:
        data = super()._with(translations)
        problem = _problem_of_xml(data) if self.is_xml() else ""
        if problem and not _problem_of_xml(self._original()):
            raise UserError(f"{self.name}: the translated page would be no XML: {problem}")
        return data

    def composed(self, one: Marked, parts: Sequence[str | Code]) -> str | None:
        return compose_html(self, one, parts)


def _problem_of_xml(page: bytes) -> str:
    """What keeps a page from being well-formed XML; empty for nothing."""
    try:
        expat.ParserCreate().Parse(page, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        return str(error)
    return ""


def compose_html(document: MarkedDocument, one: Marked, parts: Sequence[str | Code]) -> str:
    """Write a translation as HTML, with the character references of the segment.

    Args:
        document: the page, or a document that contains HTML.
        one: the segment.
        parts: the translation.
    """
    names = _REFERENCE.findall(document.text, one.start, one.end)
    escapes = {html.unescape(name): name for name in names} | _ESCAPES
    if one.note not in ("", RAW):  # an attribute
        quote = "'" if one.note == "'" else '"'
        escapes.setdefault(quote, f"&#{ord(quote)};")
    written = []
    for part in parts:
        if isinstance(part, Code):
            written.append(document.code(part))
            continue
        words, _ = without_forbidden(part)
        if one.note == RAW:
            written.append(_PLAIN.sub(lambda found: _ESCAPES[found[0]], words))
        else:
            written += [escapes.get(character, character) for character in words]
    text = "".join(written)
    return f'"{text}"' if one.note == _UNQUOTED else text


class HtmlReader:
    """Finds the segments of a page."""

    def __init__(self, text: str, is_xml: bool) -> None:
        self.text, self.is_xml = text, is_xml
        self.elements: list[_Element] = []
        self.names: Counter[str] = Counter()
        """The number of open elements of each name."""
        self.items: list[Item] = []

    def segments(self) -> Iterator[Marked]:
        """All segments, in the order of their ends."""
        for token in tokens(self.text, self.is_xml):
            if token.kind == "start":
                yield from self._start(token)
            elif token.kind == "end":
                yield from self._end(token)
            elif token.kind == "text" and self._inside.translated:
                self._add_words(token)
            else:
                kind = "whole" if token.kind == "text" else "alone"
                self._add(kind, token, self._inside.translated)
        yield from self._flush()

    @property
    def _inside(self) -> _Element:
        return self.elements[-1] if self.elements else _Element("", True, False)

    def _start(self, token: Token) -> Iterator[Marked]:
        name = token.name
        if name in _PARAGRAPH_ENDS and self._inside.name == "p":
            self.names[self.elements.pop().name] -= 1
        while self._inside.name in _IMPLIED.get(name, ()):
            self.names[self.elements.pop().name] -= 1
        is_inline = name in INLINE or "-" in name
        if not is_inline:
            yield from self._flush()
        outer = self._inside
        values = {one.name: self.text[one.start : one.end].casefold() for one in token.attributes}
        said = values.get("translate")
        is_translated = said in ("yes", "") or (
            outer.translated
            and said != "no"
            and name not in SKIPPED
            and "notranslate" not in values.get("class", "").split()
        )
        is_empty = name in VOID or (token.closed and (self.is_xml or name in ("svg", "math")))
        if is_inline:
            kind = "alone" if name in _NO_WORDS or (is_empty and is_translated) else "whole"
            is_open = is_translated and not is_empty
            self._add("open" if is_open else kind, token, outer.translated)
        if is_translated:
            yield from self._attributes(token, values)
        if not is_empty:
            preserved = outer.preserved or name in ("pre", "textarea")
            self.names[name] += 1
            self.elements.append(_Element(name, is_translated, preserved))

    def _end(self, token: Token) -> Iterator[Marked]:
        name = token.name
        if self.is_xml and name in VOID and self._ends_empty(token):
            return
        place = self._place_of(name)
        own = self._inside if place is None else self.elements[place]
        if name in INLINE or "-" in name:
            kind = "alone" if name in _NO_WORDS else "whole"
            if own.translated:
                kind = "alone" if place is None else "close"
            self._add(kind, token, own.translated)
        else:
            yield from self._flush()
        if place is not None:
            self.names.subtract(element.name for element in self.elements[place:])
            del self.elements[place:]

    def _ends_empty(self, token: Token) -> bool:
        """Whether an end tag such as ``</img>`` became a part of the start tag before it."""
        place = len(self.items) - 1
        if place > 0 and not (self.items[place].text or "x").strip():
            place -= 1  # white space between the two
        if place < 0 or self.items[place].kind not in ("alone", "whole"):
            return False
        self.items[place:] = [self.items[place]._replace(end=token.end)]
        return True

    def _place_of(self, name: str) -> int | None:
        """The index of the innermost open element with this name."""
        if not self.names[name]:
            return None
        found = range(len(self.elements) - 1, -1, -1)
        return next(place for place in found if self.elements[place].name == name)

    def _add(self, kind: str, token: Token, is_translated: bool) -> None:
        """Add markup; adjacent untranslated markup is merged."""
        last = self.items[-1] if self.items else None
        continues = last is not None and last.name == _SKIPPED_ITEM and last.end == token.start
        if last is not None and continues and not is_translated:
            kind = "whole" if "whole" in (kind, last.kind) else "alone"
            self.items[-1] = Item(kind, last.start, token.end, _SKIPPED_ITEM)
            return
        stays = kind == "whole" or token.name in _NO_WORDS or not is_translated
        self.items.append(
            Item(kind, token.start, token.end, _SKIPPED_ITEM if stays else token.name)
        )

    def _add_words(self, token: Token) -> None:
        """Add words; template expressions between them are markup."""
        at = token.start
        for found in _TEMPLATE.finditer(self.text, token.start, token.end):
            self._add_text(at, found.start())
            self.items.append(Item("whole", *found.span()))
            at = found.end()
        self._add_text(at, token.end)

    def _add_text(self, start: int, end: int) -> None:
        if start < end:
            if self.items and self.items[-1].kind == "words" and self.items[-1].end == start:
                start = self.items.pop().start
            own = self.text[start:end]
            if not self._inside.preserved:
                own = WHITE_SPACE.sub(" ", own)
            self.items.append(Item("words", start, end, text=html.unescape(own)))

    def _attributes(self, token: Token, values: dict[str, str]) -> Iterator[Marked]:
        is_meta = token.name == "meta" and (
            values.get("name") in META or values.get("property") in META
        )
        is_button = token.name == "input" and values.get("type") in _BUTTONS
        for one in token.attributes:
            is_own = one.name == ("content" if is_meta else "value" if is_button else "")
            if (is_own or one.name in ATTRIBUTES) and one.start < one.end:
                yield self._attribute(one)

    def _attribute(self, one: Attribute) -> Marked:
        pieces: list[str | Code] = []
        at = one.start
        for found in _TEMPLATE.finditer(self.text, one.start, one.end):
            pieces += [html.unescape(self.text[at : found.start()]), Code(found[0], *found.span())]
            at = found.end()
        pieces.append(html.unescape(self.text[at : one.end]))
        return Marked(one.start, one.end, tuple(filter(None, pieces)), note=one.quote or _UNQUOTED)

    def _flush(self) -> Iterator[Marked]:
        found = segment_of(self.text, self.items)
        self.items = []
        if found is not None:
            yield found
