"""Markdown: CommonMark with tables and common extensions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markdown_it.token import Token

from heedful.data.documents.html import HtmlReader, compose_html
from heedful.data.documents.markdown_inline import find_marks, parser
from heedful.data.documents.marked import Code, Marked, MarkedDocument, one_line, roles
from heedful.data.documents.marked_items import BREAK, RAW, Item, Line, items_of, segment_of

_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_LINE_END = re.compile(r"\r\n|\n|\r")
_ALONE = re.compile(
    r":{3,}.*|!{3}[ \t].*|\?{3}\+?[ \t].*|={3}[ \t]+\".*|\[![A-Za-z]+\].*|\{:.*\}|\([^\s()]+\)="
    r"|%[ \t].*|\${2}.*|\[TOC\]|\{%[^{}]*%\}|\{\{[^{}]*\}\}"
)
"""Lines that extensions of Markdown treat as blocks."""
_DEFINITION = re.compile(r":[ \t]+")
_DOLLARS = r"^[ \t>]*\$\$[ \t]*(?=\r?$)"
_FORMULA = re.compile(
    rf"{_DOLLARS}\r?\n(?:(?!{_DOLLARS})[ \t>]*[^\s>].*\n)*{_DOLLARS}", re.MULTILINE
)
"""A block between two lines ``$$``, without an empty line."""
_SPECIAL = "\\`*_[]<>&~#"
_HTML = "html"


class MarkdownDocument(MarkedDocument):
    """The texts of paragraphs, headings, list items, quotes and table cells.

    Code, front matter and link definitions are kept. A hard line break is ``<br>`` in a segment.
    """

    def marked(self) -> Iterator[Marked]:
        self._parser = parser()
        front = _FRONT.match(self.text)
        ends = [found.end() for found in _LINE_END.finditer(self.text)]
        self._lines = [0, *ends, len(self.text)]
        text = self.text
        if front is not None:
            text = _emptied(front) + text[front.end() :]
        text = _FORMULA.sub(_emptied, text)
        env: dict[str, Any] = {}
        tokens = self._parser.parse(text, env)
        self._references = env.get("references", {})
        cell = 0
        for before, token in zip([tokens[0], *tokens] if tokens else [], tokens, strict=False):
            if token.type == "tr_open":
                cell = 0
            if token.type == "html_block" and token.map:
                yield from self._html(token)
            elif token.type == "inline" and token.map and before.type in ("th_open", "td_open"):
                yield from self._cell(token, cell)
                cell += 1
            elif token.type == "inline" and token.map:
                yield from self._paragraph(token, before.type.removesuffix("_open"))

    def composed(self, one: Marked, parts: Sequence[str | Code]) -> str | None:
        parts = [part if isinstance(part, Code) else one_line(part) for part in parts]
        kind, _, note = one.note.partition(":")
        if kind == _HTML:
            return compose_html(self, one._replace(note=note), parts)
        codes = sorted(code.text for code in one.pieces if isinstance(code, Code))
        words = "".join("".join(part for part in parts if isinstance(part, str)).split())
        spaced = _spaced(one, parts)
        for is_escaped, tried in ((False, parts), (False, spaced), (True, spaced)):
            escapes = self._escapes(one, is_escaped)
            written = [_with_escapes(part, escapes, kind == "cell") for part in tried]
            flat = "".join(
                part if isinstance(part, str) else "\\\n" if self._is_break(part) else part.text
                for part in written
            )
            found = self._read(flat)
            if found[0] == codes and (note == RAW or found[1] == words):
                start = self._beginning(kind, flat)
                if start is not None:
                    whole = "".join(p if isinstance(p, str) else self.code(p) for p in written)
                    return start + whole[len(start.replace("\\", "")) :] if start else whole
        return None

    def _escapes(self, one: Marked, is_escaped: bool) -> dict[str, str]:
        """How words write characters: those that the segment escapes are escaped again."""
        if one.note.endswith(f":{RAW}"):
            return {}
        own = self.text[one.start : one.end]
        escapes = {sign: "\\" + sign for sign in re.findall(r"\\([!-/:-@\[-`{-~])", own)}
        escapes |= {sign: "\\" + sign for sign in _SPECIAL} if is_escaped else {}
        return escapes | ({"\xa0": "&nbsp;"} if "&nbsp;" in own else {})

    def _is_break(self, code: Code) -> bool:
        return code.text == BREAK and "\n" in self.text[code.start : code.end].replace("\r", "\n")

    def _read(self, flat: str) -> tuple[list[str], str]:
        """The codes of a text, sorted, and its words without white space."""
        items = self._items([(0, flat)])
        codes = sorted(_text(flat, item) for item in items if item.kind != "words")
        words = "".join(_text(flat, item) for item in items if item.kind == "words")
        return codes, "".join(words.split())

    def _beginning(self, kind: str, flat: str) -> str | None:
        """The escaped beginning that keeps a text a single block; empty if it needs none.

        None if it would still be another block.
        """
        if kind == "cell":
            return ""
        prefix = "# " if kind == "heading" else ""
        number = re.match(r"\d{1,9}(?=[.)])", flat)
        escaped = f"{number[0]}\\" if number else "\\"
        for start in ("", escaped):
            text = start + flat[len(start.replace("\\", "")) :] if start else flat
            tokens = self._parser.parse(prefix + text, {"references": dict(self._references)})
            types = [token.type for token in tokens]
            if types == [f"{kind}_open", "inline", f"{kind}_close"] and tokens[1].content == text:
                return start
        return None

    def _items(self, lines: Sequence[Line]) -> list[Item]:
        content = "\n".join(text for _, text in lines)
        return items_of(lines, find_marks(self._parser, content, self._references))

    def _html(self, token: Token) -> Iterator[Marked]:
        assert token.map is not None
        first, last = token.map
        contents = [line.strip() for line in token.content.split("\n")]
        for number, content in enumerate(contents[1 : last - first], start=first + 1):
            if self._line(number).strip() != content:
                return  # signs of a quote stand between its lines
        at = self._line(first).find(contents[0])
        start, end = self._lines[first] + max(at, 0), self._lines[last]
        for one in HtmlReader(self.text[start:end], is_xml=False).segments():
            pieces = tuple(
                piece._replace(start=piece.start + start, end=piece.end + start)
                if isinstance(piece, Code)
                else piece
                for piece in one.pieces
            )
            yield Marked(
                one.start + start, one.end + start, pieces, one.chains, f"{_HTML}:{one.note}"
            )

    def _paragraph(self, token: Token, kind: str) -> Iterator[Marked]:
        lines = self._located(token)
        group: list[Line] = []
        for line in [*lines, (0, "::::")]:
            is_alone = _ALONE.fullmatch(line[1].strip()) is not None
            if is_alone or _DEFINITION.match(line[1]):
                yield from self._segment(group, kind)
                group = []
            if not is_alone:
                group.append(line)

    def _located(self, token: Token) -> list[Line]:
        """The lines of a text and their positions; empty if they differ from the file."""
        assert token.map is not None
        found: list[Line] = []
        for number, content in enumerate(token.content.split("\n"), start=token.map[0]):
            line = self._line(number)
            own = content.lstrip(" \t")
            at = line.rfind(own) if own else -1
            rest = line[at + len(own) :]
            if at < 0 or rest.strip(" \t#"):
                return []
            found.append((self._lines[number] + at, own))
        return found

    def _line(self, number: int) -> str:
        return self.text[self._lines[number] : self._lines[number + 1]].rstrip("\r\n")

    def _cell(self, token: Token, place: int) -> Iterator[Marked]:
        assert token.map is not None
        line = self._line(token.map[0])
        bounds = [-1, *(found.start() for found in re.finditer(r"(?<!\\)\|", line)), len(line)]
        is_led = bool(re.match(r"[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?\|", line))
        if place + is_led + 1 >= len(bounds):
            return
        first, last = bounds[place + is_led] + 1, bounds[place + is_led + 1]
        own = line[first:last]
        cut = own.strip(" \t")
        if cut.replace("\\|", "|") == token.content and cut:
            at = self._lines[token.map[0]] + first + own.index(cut)
            yield from self._segment([(at, cut)], "cell")

    def _segment(self, lines: Sequence[Line], kind: str) -> Iterator[Marked]:
        if lines:
            lines = [*lines[:-1], (lines[-1][0], lines[-1][1].rstrip(" \t"))]
            found = segment_of(self.text, self._items(lines))
            if found is not None:
                yield found._replace(note=f"{kind}:{found.note}")


def _emptied(found: "re.Match[str]") -> str:
    """Empty lines in place of a text, so that the lines after it keep their numbers."""
    return "\n" * len(_LINE_END.findall(found[0]))


def _with_escapes(part: str | Code, escapes: Mapping[str, str], is_cell: bool) -> str | Code:
    """Words as the file writes them; a code is itself."""
    if isinstance(part, Code):
        return part
    words = "".join(escapes.get(character, character) for character in part)
    return re.sub(r"(?<!\\)\|", r"\\|", words) if is_cell else words


def _spaced(one: Marked, parts: Sequence[str | Code]) -> list[str | Code]:
    """A translation with spaces around markup that stands right beside words or other markup."""
    role = roles(one)
    found: list[str | Code] = []
    for part in parts:
        last = found[-1] if found else " "
        begins = role.get(part) != "close" if isinstance(part, Code) else part[0].isalnum()
        ends = role.get(last) != "open" if isinstance(last, Code) else last[-1].isalnum()
        if begins and ends and (isinstance(part, Code) or isinstance(last, Code)):
            found.append(" ")
        found.append(part)
    return found


def _text(flat: str, item: Item) -> str:
    return flat[item.start : item.end] if item.text is None else item.text
