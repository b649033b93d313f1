"""HTML tokens with their positions, as in the HTML standard (section 13.2.5).

Concatenated, the tokens are the whole file. Time is linear in its size.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z][^ \t\r\n\f/>]*")
_ATTRIBUTE = re.compile(r"[ \t\r\n\f/]*(=?[^ \t\r\n\f/>=]*)([ \t\r\n\f]*=[ \t\r\n\f]*)?")
_UNQUOTED = re.compile(r"[^ \t\r\n\f>]+")
_SHORT_COMMENT = re.compile(r"<!--(?:>|->)")
_MARKUP = re.compile(r"<(?:[!?A-Za-z]|/[^ \t\r\n\f])")
RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
"""Elements whose content is neither markup nor text."""
ONLY_TEXT = frozenset({"title", "textarea"})
"""Elements whose content is text without tags."""


class Attribute(NamedTuple):
    """An attribute: ``text[start:end]`` is its value, without quotes.

    Attributes:
        name: the name in lower case.
        start: start of the value.
        end: end of the value.
        quote: the quote around the value; empty if there is none.
    """

    name: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token, ``text[start:end]``.

    Attributes:
        kind: ``text``, ``start``, ``end`` (tags), ``raw`` (the content of a script and the like) or
            ``other`` (comments, declarations).
        start: start in characters.
        end: end in characters.
        name: name of a tag, in lower case.
        attributes: attributes of a start tag.
        closed: whether a start tag ends in ``/>``.
    """

    kind: str
    start: int
    end: int
    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    closed: bool = False


def tokens(text: str, is_xml: bool = False) -> Iterator[Token]:
    """Tokenise a page or a part of one.

    Args:
        text: the page.
        is_xml: whether it is XHTML, in which ``<script/>`` is closed.
    """
    place = 0
    missing: set[str] = set()

    def after(sign: str, start: int) -> int:
        """The end of the next occurrence; -1 if there is none, which is remembered."""
        found = -1 if sign in missing else text.find(sign, start)
        if found < 0:
            missing.add(sign)
        return found + len(sign) if found >= 0 else -1

    while place < len(text):
        token = _token(text, place, is_xml, after)
        yield token
        place = token.end
        content = token.name in RAW or token.name in ONLY_TEXT
        if token.kind == "start" and content and not (is_xml and token.closed):
            end = _end_of_content(text, place, token.name)
            if end > place:
                yield Token("raw" if token.name in RAW else "text", place, end)
            place = end


def _token(text: str, place: int, is_xml: bool, after: Callable[[str, int], int]) -> Token:
    if text[place] != "<" or not _is_markup(text, place):
        end = place + 1
        while (end := text.find("<", end)) >= 0 and not _is_markup(text, end):
            end += 1
        return Token("text", place, len(text) if end < 0 else end)
    following = text[place + 1]
    if following.isalpha():
        return _start_tag(text, place)
    if following == "/" and (name := _NAME.match(text, place + 2)):
        end = after(">", name.end())
        return Token("end", place, len(text) if end < 0 else end, name[0].lower())
    closing = ">"
    if text.startswith("<!--", place):
        if short := _SHORT_COMMENT.match(text, place):
            return Token("other", place, short.end())
        closing = "-->"
    elif text.startswith("<![CDATA[", place) and is_xml:
        closing = "]]>"
    elif following == "?" and after("?>", place) >= 0:
        closing = "?>"
    end = after(closing, place + (4 if closing == "-->" else 2))
    return Token("other", place, len(text) if end < 0 else end)


def _is_markup(text: str, place: int) -> bool:
    return _MARKUP.match(text, place) is not None


def _start_tag(text: str, place: int) -> Token:
    name = _NAME.match(text, place + 1)
    assert name is not None
    attributes: list[Attribute] = []
    at = name.end()
    while True:
        found = _ATTRIBUTE.match(text, at)
        assert found is not None
        at = found.end()
        if found[2]:
            quote = text[at : at + 1]
            if quote in ('"', "'") and quote:
                end = text.find(quote, at + 1)
                if end < 0:
                    return Token("other", place, len(text))
                attributes.append(Attribute(found[1].lower(), at + 1, end, quote))
                at = end + 1
                continue
            value = _UNQUOTED.match(text, at)
            end = value.end() if value else at
            attributes.append(Attribute(found[1].lower(), at, end, ""))
            at = end
            continue
        if at >= len(text):
            return Token("other", place, len(text))
        if text[at] == ">":
            closed = text[at - 1] == "/" and not (attributes and attributes[-1].end == at)
            return Token("start", place, at + 1, name[0].lower(), tuple(attributes), closed)


def _end_of_content(text: str, place: int, name: str) -> int:
    found = None
    if name != "plaintext":
        found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, place)
    return found.start() if found else len(text)
