"""The blocks of reStructuredText whose texts are translated, with the places of their lines.

Tables, literal blocks, comments, targets, options and unknown directives are passed over.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import NamedTuple

from heedful.data.documents.marked_items import Line

_LINE_END = re.compile(r"\r\n|\n|\r")
_RULE = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*\Z")
_BULLET = re.compile(r"[-*+•‣⁃](?:[ \t]+|\Z)")
_ENUMERATOR = re.compile(r"\(?(?:\d+|[a-zA-Z]|[ivxlcdmIVXLCDM]+|#)[.)](?:[ \t]+|\Z)")
_FIELD = re.compile(r":(?![:\s])(?:[^:\\]|\\.|:(?!\s|`|\Z))*(?<!\s):(?:[ \t]+|\Z)")
# What is repeated never gives characters back, so that a long line takes linear time.
_ONE_OPTION = r"(?:--?[\w?][\w-]*+|/\w++)(?:[ =]?+<?[\w.-]++>?+)?+"
_OPTION = re.compile(rf"{_ONE_OPTION}(?:, {_ONE_OPTION})*+(?:[ \t]{{2,}}|\Z)")
_EXPLICIT = re.compile(r"\.\.(?:[ \t]+|\Z)")
_DIRECTIVE = re.compile(r"\.\.[ \t]+(?P<name>[\w:+.-]*\w) ?::(?:[ \t]+|\Z)")
_FOOTNOTE = re.compile(r"\.\.[ \t]+\[[^\]]+\](?:[ \t]+|\Z)")
_GRID = re.compile(r"\+-[-+]+-\+[ \t]*\Z")
_SIMPLE = re.compile(r"=+(?: +=+)+[ \t]*\Z")
_SIMPLE_END = re.compile(r"=+(?: +=+)*[ \t]*\Z")
_VERSION = re.compile(r"(?:(?:next|\d[\w.+-]*),?(?:[ \t]+|\Z))+")
_NOT_TEXT = re.compile(r":(?:type|rtype|vartype|meta|tocdepth|orphan|nocomments|nosearch)\b")

TEXT = frozenset({
    "attention", "caution", "danger", "error", "hint", "important", "note", "tip", "warning",
    "seealso", "todo", "impl-detail", "epigraph", "highlights", "pull-quote", "compound", "legend",
})  # fmt: skip
"""Directives with text and no argument."""
TITLED = frozenset({
    "admonition", "topic", "sidebar", "rubric", "centered", "list-table", "table", "contents",
})  # fmt: skip
"""Directives whose argument is a title."""
VERSIONED = frozenset({
    "versionadded", "versionchanged", "versionremoved", "deprecated", "version-added",
    "version-changed", "version-removed", "version-deprecated", "deprecated-removed",
})  # fmt: skip
"""Directives whose argument is a version and a text."""
CONTAINERS = frozenset({
    "container", "figure", "only", "glossary", "function", "method", "class", "attribute", "data",
    "exception", "module", "decorator", "decoratormethod", "classmethod", "staticmethod",
    "property", "option", "cmdoption", "envvar", "describe", "object", "macro", "type", "member",
    "struct", "union", "enum", "enumerator", "var", "confval", "setting", "opcode", "token",
})  # fmt: skip
"""Directives with text whose argument stays; those of a domain (``py:function``) likewise."""


UNENDED = "unended"


class Block(NamedTuple):
    """A text.

    Attributes:
        kind: ``paragraph``, ``title``, ``term``, ``line`` (of a line block), ``argument``, or
            ``unended``: a paragraph without an empty line before what is indented after it.
        lines: its lines.
        start: where the block stands in the file: a title's with its lines above and below.
        end: end in the file.
    """

    kind: str
    lines: tuple[Line, ...]
    start: int
    end: int


@dataclass(frozen=True)
class _Row:
    """A line: where its text stands in the file, its text, and its column."""

    start: int
    text: str
    column: int


def width(text: str) -> int:
    """The columns that a text takes: wide characters of East Asia take two, accents none."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def find_blocks(text: str) -> list[Block]:
    """The texts of a document that are translated, in order."""
    rows: list[_Row] = []
    start = 0
    for found in [*_LINE_END.finditer(text), None]:
        whole = text[start : found.start() if found else len(text)]
        own = whole.lstrip(" \t\f\v")
        column = len(whole[: len(whole) - len(own)].expandtabs(8))
        rows.append(_Row(start + len(whole) - len(own), own.rstrip(), column))
        start = found.end() if found else start
    blocks = _Blocks(rows)
    blocks.read(0, len(rows), 0)
    return blocks.found


class _Blocks:
    """Reads rows, block by block; ``found`` are the texts so far."""

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self.found: list[Block] = []
        self.has_body = False
        """Whether anything but titles, comments and fields was there."""

    def read(self, at: int, end: int, column: int, *, terms: bool = True) -> None:
        """Read the blocks of rows, whose texts begin at a column.

        Args:
            at: the first row.
            end: the row after the last one.
            column: smaller ones do not occur; larger ones are quotes.
            terms: whether the terms of definitions are texts.
        """
        while at < end:
            row = self.rows[at]
            if not row.text:
                at += 1
            elif row.column > column:
                last = self._indented(at, end, column)
                inner = [one.column for one in self.rows[at:last] if one.text]
                self.read(at, last, min(inner), terms=terms)
                at = last
            else:
                at = self._block(at, end, column, terms)

    def _block(self, at: int, end: int, column: int, terms: bool) -> int:
        """Read a block; the row after it."""
        row = self.rows[at]
        text = row.text
        if _EXPLICIT.match(text) or text == "__" or text.startswith("__ "):
            last = self._indented(at + 1, end, column)
            self._explicit(at, last)
            return last
        if (field := _FIELD.match(text)) and not text.startswith("::"):
            last = self._indented(at + 1, end, column)
            if self.has_body and not _NOT_TEXT.match(text):
                self._item(at, last, field.end())
            return last
        if (last := self._title(at, end, column)) > at:
            return last
        self.has_body = True
        for skip in (self._table, self._doctest):
            if (last := skip(at, end)) > at:
                return last
        if text.startswith("| ") or text == "|":
            return self._line_block(at, end, column)
        if marker := self._marker(at, end, column):
            last = self._indented(at + 1, end, column)
            self._item(at, last, marker.end())
            return last
        return self._paragraph(at, end, column, terms)

    def _marker(self, at: int, end: int, column: int) -> "re.Match[str] | None":
        """What begins an item of a list."""
        text = self.rows[at].text
        marker = _BULLET.match(text) or _OPTION.match(text)
        if marker is None and (marker := _ENUMERATOR.match(text)) and at + 1 < end:
            following = self.rows[at + 1]
            goes_on = following.text and following.column <= column
            if goes_on and not _ENUMERATOR.match(following.text):
                return None
        return marker

    def _indented(self, at: int, end: int, column: int) -> int:
        """The row after those that are empty or stand further to the right."""
        last = at
        while at < end and (not self.rows[at].text or self.rows[at].column > column):
            at += 1
            if self.rows[at - 1].text:
                last = at
        return last

    def _item(self, at: int, end: int, length: int, *, terms: bool = True) -> None:
        """Read an item whose marker has a length."""
        row = self.rows[at]
        text = row.text[length:]
        marker = row.column + len(row.text[:length].expandtabs(8))
        others = [one.column for one in self.rows[at + 1 : end] if one.text]
        # Fields and options may have their text further to the left than in the first row.
        column = min([marker, *others]) if text else min(others, default=marker)
        if not text:
            self.read(at + 1, end, column, terms=terms)
            return
        saved = self.rows[at]
        self.rows[at] = replace(row, start=row.start + length, text=text, column=column)
        self.read(at, end, column, terms=terms)
        self.rows[at] = saved

    def _title(self, at: int, end: int, column: int) -> int:
        """Read a title or a transition; the row after it, or the same row for neither."""
        rows = self.rows
        row = rows[at]
        following = rows[at + 1] if at + 1 < end else _Row(row.start, "", 0)
        if _RULE.match(row.text):
            third = rows[at + 2] if at + 2 < end else _Row(row.start, "", 0)
            if following.text and third.text == row.text and third.column == column:
                self._add("title", [following], row.start, third.start + len(third.text))
                return at + 3
            return at + 1 if len(row.text) >= 4 and not following.text else at
        is_rule = _RULE.match(following.text) and following.column == column
        long_enough = min(width(row.text[:4]), 4) <= len(following.text)
        if is_rule and long_enough and not _BULLET.match(row.text):
            self._add("title", [row], row.start, following.start + len(following.text))
            return at + 2
        return at

    def _table(self, at: int, end: int) -> int:
        """The row after a table that begins here, or the same row."""
        text = self.rows[at].text
        if _GRID.match(text):
            while at < end and self.rows[at].text:
                at += 1
        elif _SIMPLE.match(text):
            borders = 0
            while at < end:
                is_border = _SIMPLE_END.match(self.rows[at].text) is not None
                borders += is_border
                at += 1
                if is_border and borders > 1 and (at == end or not self.rows[at].text):
                    break
        return at

    def _doctest(self, at: int, end: int) -> int:
        if self.rows[at].text.startswith(">>> "):
            while at < end and self.rows[at].text:
                at += 1
        return at

    def _line_block(self, at: int, end: int, column: int) -> int:
        while at < end and self.rows[at].text and (
            self.rows[at].text[:1] == "|" or self.rows[at].column > column
        ):  # fmt: skip
            row = self.rows[at]
            if row.text[:1] == "|":
                own = row.text[1:].lstrip(" \t")
                start = row.start + len(row.text) - len(own)
                lines = [_Row(start, own, row.column)]
                while (
                    at + 1 < end
                    and self.rows[at + 1].text[:1] not in ("|", "")
                    and self.rows[at + 1].column > column
                ):
                    at += 1
                    lines.append(self.rows[at])
                if own:
                    self._add("line", lines, start, lines[-1].start + len(lines[-1].text))
            at += 1
        return at

    def _paragraph(self, at: int, end: int, column: int, terms: bool) -> int:
        """Read a paragraph with the literal block after it, or a definition."""
        rows = self.rows
        while not terms and at + 1 < end and rows[at + 1].text and rows[at + 1].column == column:
            at += 1  # a glossary has several terms with one definition
        if at + 1 < end and rows[at + 1].text and rows[at + 1].column > column:
            last = self._indented(at + 1, end, column)
            if terms:
                self._term(rows[at])
            inner = min(one.column for one in rows[at + 1 : last] if one.text)
            self.read(at + 1, last, inner)
            return last
        last = at
        while last < end and rows[last].text and rows[last].column == column:
            last += 1
        lines = rows[at:last]
        is_literal = lines[-1].text.endswith("::")
        if is_literal:
            own = lines[-1].text.removesuffix("::").rstrip()
            lines = [*lines[:-1], replace(lines[-1], text=own)] if own else lines[:-1]
        if lines:
            is_open = last < end and rows[last].text and not is_literal
            kind = UNENDED if is_open else "paragraph"
            self._add(kind, lines, lines[0].start, lines[-1].start + len(lines[-1].text))
        return self._literal(last, end, column) if is_literal else last

    def _term(self, row: _Row) -> None:
        own = re.split(r"[ \t]+:[ \t]+", row.text, maxsplit=1)[0]
        self._add("term", [replace(row, text=own)], row.start, row.start + len(own))

    def _literal(self, at: int, end: int, column: int) -> int:
        """The row after the literal block that follows a paragraph."""
        last = self._indented(at, end, column)
        if last > at:
            return last
        while at < end and not self.rows[at].text:
            at += 1
        sign = self.rows[at].text[:1] if at < end else ""
        if sign and not sign.isalnum() and sign.isascii():  # a quoted literal block
            while at < end and self.rows[at].text[:1] == sign:
                at += 1
        return at

    def _explicit(self, at: int, end: int) -> None:
        """Read a directive or a footnote; nothing of a comment, a target or a substitution."""
        text = self.rows[at].text
        directive = _DIRECTIVE.match(text)
        if directive is None:
            if footnote := _FOOTNOTE.match(text):
                self._item(at, end, footnote.end())
            return
        self.has_body = True
        name = directive["name"].rpartition(":")[2]
        known = TEXT | TITLED | VERSIONED | CONTAINERS
        if name not in known:
            return
        length = directive.end()
        argument = self.rows[at].text[length:]
        first, last = self._options(at, end)
        if name in TITLED and argument:
            start = self.rows[at].start + length
            rows = [_Row(start, argument, 0), *self.rows[at + 1 : first]]
            self._add("argument", rows, start, rows[-1].start + len(rows[-1].text))
        if name in VERSIONED and (version := _VERSION.match(argument)):
            length += version.end()
        if name in TEXT | VERSIONED and len(self.rows[at].text) > length:
            self._item(at, first, length)
        elif not argument or name in VERSIONED:  # without one, the text may begin in the next row
            last = at + 1 if first > at + 1 else last
        inner = [row.column for row in self.rows[last:end] if row.text]
        if inner and name != "table":
            self.read(last, end, min(inner), terms=name != "glossary")

    def _options(self, at: int, end: int) -> tuple[int, int]:
        """The rows of a directive's options: the first one, and the one after the last."""
        first = at + 1
        while first < end and self.rows[first].text and not _FIELD.match(self.rows[first].text):
            first += 1
        last = first
        while last < end and self.rows[last].text:
            last += 1
        return first, last

    def _add(self, kind: str, rows: list[_Row], start: int, end: int) -> None:
        self.found.append(Block(kind, tuple((row.start, row.text) for row in rows), start, end))
