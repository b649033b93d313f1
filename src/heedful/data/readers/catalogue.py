"""The grammar of PO catalogues (GNU gettext manual, "The Format of PO Files"), with line numbers.

This is heedful's own parser, because filling a catalogue needs the line numbers of all strings, and
lines must end only at line feeds.
"""

import gettext
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from heedful.basics.errors import UserError

KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d+)\])?\s*(?=\")")
LITERALS = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*)+')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"((?:\\[0-7]{1,3}|\\x[0-9a-fA-F]{1,2})+)|\\(.)")
NUMERIC = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3}))")
ESCAPED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    '"': '"',
}
PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;\n]+)")


@dataclass
class Entry:
    """One message; lines are numbered from 1, and a span is its first and last line."""

    line: int
    message: str = ""
    plural: str | None = None
    context: str | None = None
    flags: list[str] = field(default_factory=list)
    flag_line: int | None = None
    strings: dict[int, str] = field(default_factory=dict)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_header(self) -> bool:
        """Whether the entry is the header: the empty message without a context."""
        return not self.message and self.context is None


@dataclass(frozen=True)
class Header:
    """The language and plural forms that a header declares."""

    language: str = ""
    forms: int = 2
    singular_form: int = 0

    def source_of(self, entry: Entry, form: int) -> str:
        """The source of a plural form: the singular for the number one, else the plural.

        If a language has a single form, it translates the plural.
        """
        if entry.plural is None:
            return entry.message
        is_singular = form == self.singular_form and self.forms > 1
        return entry.message if is_singular else entry.plural


@dataclass
class Obsolete:
    """An obsolete entry (``#~``), which the program no longer uses."""

    line: int


def parse_catalogue(lines: Iterable[str], name: str) -> Iterator[Entry | Obsolete]:
    """The entries of a catalogue, in order.

    Raises:
        UserError: a line is not PO, with its number.
    """
    parser = _Parser(name)
    number = 0
    for number, line in enumerate(lines, start=1):
        yield from parser.take(number, line.strip())
    yield from parser.finish(number)


def parse_header(entry: Entry) -> Header:
    """The language and the plural forms of a header entry."""
    fields = {}
    for line in entry.strings.get(0, "").split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            fields[key.strip().casefold()] = value.strip()
    forms, singular = 2, 0
    plural = PLURAL_FORMS.search(fields.get("plural-forms", ""))
    if plural:
        forms = int(plural[1])
        try:
            singular = gettext.c2py(plural[2].strip())(1)
        except (ValueError, ZeroDivisionError, RecursionError):
            singular = 0
    return Header(fields.get("language", ""), forms, singular)


class _Parser:
    """Parses lines to entries; an entry ends where the next begins."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entry: Entry | None = None
        self._slot: str | int | None = None
        self._flags: list[str] = []
        self._flag_line: int | None = None

    def take(self, number: int, line: str) -> Iterator[Entry | Obsolete]:
        """Parse a line; yields the entry that ends before it, if any."""
        if line.startswith("#~"):
            yield from self._end(number)
            self._flags, self._flag_line = [], None
            if re.match(r"#~\s*msgid\s*\"", line):
                yield Obsolete(number)
        elif line.startswith("#"):
            yield from self._end(number)
            if line.startswith("#,"):
                self._flags += [flag.strip() for flag in line[2:].split(",") if flag.strip()]
                self._flag_line = self._flag_line or number
        elif line.startswith('"'):
            self._continue(number, self._unquote(number, line))
        elif line:
            yield from self._keyword(number, line)

    def finish(self, last_line: int) -> Iterator[Entry]:
        """Yield the last entry, at the end of the file."""
        yield from self._end(last_line)

    def _keyword(self, number: int, line: str) -> Iterator[Entry]:
        found = KEYWORD.match(line)
        if found is None:
            raise self._broken(number, "expected msgid, msgstr or a quoted text")
        word, index = found[1], found[2]
        text = self._unquote(number, line[found.end() :])
        if word == "msgctxt" or (word == "msgid" and self._slot != "msgctxt"):
            yield from self._end(number)
            self._entry = Entry(number, flags=self._flags, flag_line=self._flag_line)
            self._flags, self._flag_line = [], None
        entry = self._entry
        if entry is None:
            raise self._broken(number, f"{word} without a msgid before it")
        if word == "msgstr":
            self._open_string(number, entry, index)
        elif index is not None or (word == "msgid_plural" and self._slot != "msgid"):
            raise self._broken(number, f"{word} does not belong here")
        else:
            self._slot = word
        if word == "msgid_plural":
            entry.plural = ""
        if word == "msgctxt":
            entry.context = ""
        self._continue(number, text)

    def _open_string(self, number: int, entry: Entry, index: str | None) -> None:
        if self._slot in (None, "msgctxt"):
            raise self._broken(number, "msgstr without a msgid before it")
        if (index is None) != (entry.plural is None):
            raise self._broken(
                number, "msgstr[n] requires msgid_plural, and msgid_plural requires msgstr[n]"
            )
        form = int(index or 0)
        if form in entry.strings:
            raise self._broken(number, "duplicate msgstr")
        entry.strings[form] = ""
        entry.spans[form] = (number, number)
        self._slot = form

    def _continue(self, number: int, text: str) -> None:
        entry = self._entry
        if entry is None or self._slot is None:
            raise self._broken(number, "a quoted text without msgid or msgstr before it")
        if self._slot == "msgctxt":
            entry.context = (entry.context or "") + text
        elif self._slot == "msgid":
            entry.message += text
        elif self._slot == "msgid_plural":
            entry.plural = (entry.plural or "") + text
        elif isinstance(self._slot, int):
            entry.strings[self._slot] += text
            entry.spans[self._slot] = (entry.spans[self._slot][0], number)

    def _end(self, number: int) -> Iterator[Entry]:
        if self._entry is not None:
            if not self._entry.strings:
                raise self._broken(self._entry.line, f"no msgstr up to line {number}")
            yield self._entry
        self._entry, self._slot = None, None

    def _unquote(self, number: int, text: str) -> str:
        if not LITERALS.fullmatch(text):
            raise self._broken(number, 'a text must be enclosed in ", with \\" inside')

        def plain(escape: re.Match[str]) -> str:
            if escape[2] is None:
                # Octal and hexadecimal escapes are bytes; a run of them may be one character.
                codes = (int(a, 16) if a else int(b, 8) for a, b in NUMERIC.findall(escape[0]))
                return bytes(code & 0xFF for code in codes).decode("utf-8")
            return ESCAPED[escape[2]]

        try:
            return "".join(ESCAPE.sub(plain, literal) for literal in LITERAL.findall(text))
        except (KeyError, UnicodeDecodeError) as error:
            raise self._broken(number, "unknown escape sequence") from error

    def _broken(self, number: int, reason: str) -> UserError:
        return UserError(f"{self._name}:{number}: broken PO: {reason}; correct the file there")
