"""HTML and XHTML: the texts of block elements, and attributes that people read."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from heedful.data.documents.base import without_forbidden
from heedful.data.documents.html_tokens import Attribute, Token, tokens
from heedful.data.documents.marked import WHITE_SPACE, Code, Marked, MarkedDocument
from heedful.data.protected.rules import VOID
from heedful.data.readers.kinds import extension, xml_encoding
from heedful.data.readers.text import codec_name

INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "img", "ins", "kbd", "mark", "math", "nobr", "q", "rb", "rp", "rt", "rtc",
    "ruby", "s", "samp", "script", "small", "span", "strike", "strong", "style", "sub", "sup",
    "svg", "time", "tt", "u", "var", "wbr",
})  # fmt: skip
"""Elements that stand inside of a text; custom elements (with a hyphen) do, too."""
SKIPPED = frozenset({"code", "math", "pre", "script", "style", "svg", "xmp"})
"""Elements whose texts stay as they are."""
_NO_WORDS = frozenset({"math", "script", "style", "svg"})
ATTRIBUTES = frozenset({
    "title", "alt", "placeholder", "label", "summary", "aria-label", "aria-description",
    "aria-placeholder", "aria-roledescription", "aria-valuetext",
})  # fmt: skip
"""Attributes that people read."""
META = frozenset({
    "description", "keywords", "og:title", "og:description", "og:image:alt", "twitter:title",
    "twitter:description", "twitter:image:alt",
})  # fmt: skip
"""``meta`` elements whose content people read."""
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
"""A start tag → the elements that it ends if one of them is the innermost."""
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{#[^{}]*#\}")
_CHARSET = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_PLAIN = re.compile(r"&(?!(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z]\w*);)|[<>]")
_SKIPPED_ITEM = "skipped"
_RAW, _UNQUOTED = "raw", "unquoted"
"""Notes on segments whose references stay, and on attributes; other attributes have their quote."""


class _Element(NamedTuple):
    name: str
    translated: bool
    preserved: bool


class _Item(NamedTuple):
    """A part of a segment that is being read.

    Attributes:
        kind: ``words``, ``open``, ``close``, ``alone`` (markup without words, such as an image) or
            ``whole`` (markup with words that stay, such as code).
    """

    kind: str
    start: int
    end: int
    name: str = ""


class HtmlDocument(MarkedDocument):
    """The texts of a page, with inline tags; ``translate="no"``, code and scripts stay.

    What a template language has in double braces or ``{% %}`` stays, too.
    """

    encodings: ClassVar[tuple[str, ...]] = ("utf-8", "cp1252")
    references: ClassVar[bool] = True

    def encodings_of(self, data: bytes) -> Sequence[str]:
        """By the XML declaration or ``meta``, else UTF-8, else windows-1252."""
        declared = xml_encoding(data[:1024])
        if declared == "utf-8" and (found := _CHARSET.search(data[:4096])):
            declared = found[1].decode("ascii")
        codec = codec_name(declared).removesuffix("-sig")
        if codec in ("iso8859-1", "ascii"):  # which browsers read as windows-1252
            return ("cp1252", "iso8859-1")
        if codec.startswith("utf-16") and b"\0" not in data[:2]:
            return ("utf-8",)  # as the standard has it: the declaration itself was read as ASCII
        return self.encodings if codec == "utf-8" else (codec,)

    def marked(self) -> Iterator[Marked]:
        head = self.text[:1024]
        is_xml = extension(self.name) == ".xhtml" or head.lstrip().startswith("<?xml")
        yield from _Reader(self.text, is_xml).segments()

    def escaped_words(self, one: Marked, words: str, before: str) -> str:
        words, _ = without_forbidden(words)
        if one.note == _RAW:
            return _PLAIN.sub(lambda found: _ESCAPES[found[0]], words)
        escapes = {**self._references(one), **_ESCAPES}
        if one.note:  # an attribute
            quote = "'" if one.note == "'" else '"'
            escapes.setdefault(quote, f"&#{ord(quote)};")
        return "".join(escapes.get(character, character) for character in words)

    def written(self, one: Marked, text: str) -> str | None:
        return f'"{text}"' if one.note == _UNQUOTED else text

    def _references(self, one: Marked) -> dict[str, str]:
        """Characters that the segment writes as references."""
        found = {name: html.unescape(name) for name in self._names(one)}
        return {character: name for name, character in found.items() if len(character) == 1}

    def _names(self, one: Marked) -> list[str]:
        return _REFERENCE.findall(self.text, one.start, one.end)


class _Reader:
    """Reads the segments of a page."""

    def __init__(self, text: str, is_xml: bool) -> None:
        self.text, self.is_xml = text, is_xml
        self.elements: list[_Element] = []
        self.items: list[_Item] = []

    def segments(self) -> Iterator[Marked]:
        """All of them, in the order of their ends."""
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
            self.elements.pop()
        while self._inside.name in _IMPLIED.get(name, ()):
            self.elements.pop()
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
            self.elements.append(_Element(name, is_translated, preserved))

    def _end(self, token: Token) -> Iterator[Marked]:
        name = token.name
        places = [n for n, element in enumerate(self.elements) if element.name == name]
        own = self.elements[places[-1]] if places else self._inside
        if name in INLINE or "-" in name:
            kind = "alone" if name in _NO_WORDS else "whole"
            if own.translated:
                kind = "close" if places else "alone"
            self._add(kind, token, own.translated)
        else:
            yield from self._flush()
        if places:
            del self.elements[places[-1] :]

    def _add(self, kind: str, token: Token, is_translated: bool) -> None:
        """Add markup; what stays together with the markup before it becomes one with that."""
        last = self.items[-1] if self.items else None
        continues = last is not None and last.name == _SKIPPED_ITEM and last.end == token.start
        if last is not None and continues and not is_translated:
            kind = "whole" if "whole" in (kind, last.kind) else "alone"
            self.items[-1] = _Item(kind, last.start, token.end, _SKIPPED_ITEM)
            return
        stays = kind == "whole" or token.name in _NO_WORDS or not is_translated
        self.items.append(
            _Item(kind, token.start, token.end, _SKIPPED_ITEM if stays else token.name)
        )

    def _add_words(self, token: Token) -> None:
        """Add words; what a template language has between them is markup."""
        at = token.start
        for found in _TEMPLATE.finditer(self.text, token.start, token.end):
            self._add_text(at, found.start())
            self.items.append(_Item("whole", *found.span()))
            at = found.end()
        self._add_text(at, token.end)

    def _add_text(self, start: int, end: int) -> None:
        if start < end:
            if self.items and self.items[-1].kind == "words" and self.items[-1].end == start:
                start = self.items.pop().start
            self.items.append(_Item("words", start, end))

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
        """The segment of the items, without markup and white space around all of it."""
        items, self.items = self.items, []
        partners = _partners(items)
        first, last = _trimmed(items, partners, self._is_space)
        if first >= last or not any(item.kind == "words" for item in items[first:last]):
            return
        start, end = items[first].start, items[last - 1].end
        if items[first].kind == "words":
            start += len(self.text[start:end]) - len(self.text[start:end].lstrip(" \t\r\n\f"))
        if items[last - 1].kind == "words":
            end = start + len(self.text[start:end].rstrip(" \t\r\n\f"))
        chosen = items[first:last]
        # Where words look like a code, references stay as they are, so that the two differ.
        words = "\0".join(html.unescape(self._own(i)) for i in chosen if i.kind == "words")
        is_raw = any(_one_line(self._own(i)) in words for i in chosen if i.kind != "words")
        pieces: list[str | Code] = []
        for item in chosen:
            if item.kind != "words":
                pieces.append(Code(_one_line(self._own(item)), item.start, item.end))
                continue
            own = self.text[max(item.start, start) : min(item.end, end)]
            text = own if self._inside.preserved else _one_line(own)
            pieces.append(text if is_raw else html.unescape(text))
        chains = tuple(
            (opening - first, closing - first)
            for opening, closing in sorted(partners.items())
            if first <= opening < closing < last
        )
        yield Marked(start, end, tuple(pieces), chains, _RAW if is_raw else "")

    def _own(self, item: _Item) -> str:
        return self.text[item.start : item.end]

    def _is_space(self, item: _Item) -> bool:
        return not self._own(item).strip(" \t\r\n\f")


def _partners(items: Sequence[_Item]) -> dict[int, int]:
    """Place of a start tag → that of its end tag."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    for place, item in enumerate(items):
        if item.kind == "open":
            opened.append(place)
        elif item.kind == "close" and any(items[one].name == item.name for one in opened):
            while items[opened[-1]].name != item.name:
                opened.pop()
            partners[opened.pop()] = place
    return partners


def _trimmed(
    items: Sequence[_Item], partners: dict[int, int], is_space: Callable[[_Item], bool]
) -> tuple[int, int]:
    """The range of items without what stands around the words."""
    paired = {*partners, *partners.values()}

    def is_droppable(place: int) -> bool:
        kind = items[place].kind
        if kind == "words":
            return is_space(items[place])
        return kind == "alone" or (kind != "whole" and place not in paired)

    first, last = 0, len(items)
    while first < last:
        if is_droppable(first):
            first += 1
        elif is_droppable(last - 1):
            last -= 1
        elif partners.get(first) == last - 1:
            first, last = first + 1, last - 1
        elif partners.get(first) == first + 1:
            first += 2
        elif partners.get(last - 2) == last - 1:
            last -= 2
        else:
            break
    return first, last


def _one_line(text: str) -> str:
    return WHITE_SPACE.sub(" ", text)
