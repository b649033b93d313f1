"""ICU messages: ``{count, plural, one {# file} other {# files}}``, parsed into their branches.

Each branch, and the text around an argument with branches, is a piece: a text of its own to
translate, in which such an argument is written as ``{count}``. Syntax: the ICU user guide,
"Formatting Messages"; plural categories: Unicode CLDR.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from heedful.data.protected.numbers import locale_of

_SIMPLE = re.compile(r"\{\s*([\w.\-]+)\s*(?:,\s*\w+\s*(?:,[^{}']*)?)?\}")
_CHOICE = re.compile(r"\{\s*([\w.\-]+)\s*,\s*(plural|selectordinal|select)\s*,")
_OFFSET = re.compile(r"\s*offset:\s*\d+")
_KEY = re.compile(r"(\s*)(=\d+|[\w\-]+)(\s*)\{")
_END = re.compile(r"\s*\}")
_QUOTED = re.compile(r"'[{}#](?:[^']|'')*'(?!')")
PLURAL_FORMS = ("zero", "one", "two", "few", "many", "other")
"""The plural categories of the CLDR."""
_DEEPEST = 3
"""Maximum depth of branches; each may multiply by the plural categories of a language."""
_MOST_SPANS = 24
"""Maximum number of spans of a piece: as many as there are placeholders for single spans."""
_NUMBERS = range(201)
"""Numbers that are tried to learn what a plural category stands for."""


class _MalformedError(Exception):
    """The text is no ICU message."""


@dataclass(frozen=True)
class Branch:
    """A branch: white space before and after its key, the key, and its text."""

    before: str
    key: str
    after: str
    text: "Piece"


@dataclass(frozen=True)
class Choice:
    """An argument with branches.

    Attributes:
        head: its text up to the first branch.
        name: the argument.
        kind: ``plural``, ``selectordinal`` or ``select``.
        branches: the branches in order.
        end: the text after the last branch.
    """

    head: str
    name: str
    kind: str
    branches: tuple[Branch, ...]
    end: str

    @property
    def shape(self) -> tuple[str, str]:
        """The argument and its kind, which translations keep."""
        return self.name, self.kind


@dataclass
class Piece:
    """A text to translate.

    Attributes:
        counts: whether ``#`` stands for a number in it.
        parts: literal text, without quoting, and raw spans: arguments, ``#``, quoted text.
        choices: the written form of each argument with branches → the argument.
    """

    counts: bool
    parts: list[tuple[str, bool]] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """The text with its outer white space."""
        return "".join(text for text, _ in self.parts)

    @property
    def text(self) -> str:
        """The text to translate."""
        return self.whole.strip()

    @property
    def has_words(self) -> bool:
        """Whether there is something to translate."""
        return any(map(str.isalpha, "".join(text for text, is_span in self.parts if not is_span)))

    @property
    def spans(self) -> list[list[tuple[int, int]]]:
        """The protected spans of the text to translate, each a chain."""
        place, found = len(self.whole.lstrip()) - len(self.whole), []
        for text, is_span in self.parts:
            if is_span:
                found.append([(place, place + len(text))])
            place += len(text)
        return found

    def count_signs(self) -> int:
        """How often the text has ``#`` for a number."""
        return self.parts.count(("#", True))

    def pieces(self) -> Iterator["Piece"]:
        """This piece and those in its branches."""
        yield self
        for choice in self.choices.values():
            for branch in choice.branches:
                yield from branch.text.pieces()

    def written(self, translation: str, doubles: bool) -> list[str] | None:
        """A translation of the text as parts in ICU's syntax; None if it has other spans.

        Args:
            translation: the translation.
            doubles: whether to write all apostrophes as two.
        """
        spans = Counter(text for text, is_span in self.parts if is_span)
        known = "|".join(map(re.escape, sorted(spans, key=len, reverse=True)))
        pieces = re.split(f"({known})", translation) if known else [translation]
        literals, kept = pieces[::2], pieces[1::2]
        if Counter(kept) != spans or re.search(
            "[{}#]" if self.counts else "[{}]", "".join(literals)
        ):
            return None
        quoted = r"'" if doubles else r"'(?=[{}#|']|$)|(?<=')'"
        parts = [
            part if number % 2 else re.sub(quoted, "''", part) for number, part in enumerate(pieces)
        ]
        try:
            found = _Parser("".join(parts)).piece(self.counts, 0)
        except _MalformedError:
            return None
        raw = Counter(text for text, is_span in found.parts if is_span)
        return parts if raw == spans and found.whole == translation else None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.doubles = text, 0, False

    def piece(self, counts: bool, depth: int) -> Piece:
        """A text up to the end, or to the end of the branch."""
        if depth > _DEEPEST:
            raise _MalformedError
        text, literal = self.text, ""
        taken: list[tuple[str, Choice | str]] = []
        while self.place < len(text) and not (depth and text[self.place] == "}"):
            span = self._span(counts, depth)
            if span is None:
                literal += text[self.place]
                self.place += 1
            else:
                taken.append((literal, span))
                literal = ""
        return _named(counts, [*taken, (literal, "")])

    def _span(self, counts: bool, depth: int) -> Choice | str | None:
        """The span that begins here; None for literal text."""
        sign, following = self.text[self.place], self.text[self.place + 1 : self.place + 2]
        if sign == "'" and following == "'":
            self.doubles = True
            self.place += 1
        elif sign == "'" and following and following in ("{}#" if counts else "{}"):
            return self._match(_QUOTED)
        elif sign == "{":
            return self._argument(counts, depth)
        elif sign == "#" and counts:
            self.place += 1
            return sign
        elif sign == "}":
            raise _MalformedError
        return None

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.place)
        if found is None:
            raise _MalformedError
        self.place = found.end()
        return found[0]

    def _argument(self, counts: bool, depth: int) -> Choice | str:
        found = _CHOICE.match(self.text, self.place)
        if found is None:
            return self._match(_SIMPLE)
        start, kind = self.place, found[2]
        self.place = found.end()
        if kind != "select" and (offset := _OFFSET.match(self.text, self.place)):
            self.place = offset.end()
        head = self.text[start : self.place]
        branches: list[Branch] = []
        while key := _KEY.match(self.text, self.place):
            self.place = key.end()
            inside = self.piece(counts or kind != "select", depth + 1)
            self._match(re.compile(r"\}"))
            branches.append(Branch(key[1], key[2], key[3], inside))
        keys = [branch.key for branch in branches]
        if "other" not in keys or len(set(keys)) < len(keys):
            raise _MalformedError
        if kind != "select" and any(key[0] != "=" and key not in PLURAL_FORMS for key in keys):
            raise _MalformedError
        return Choice(head, found[1], kind, tuple(branches), self._match(_END))


def _named(counts: bool, taken: list[tuple[str, Choice | str]]) -> Piece:
    """A piece in which each argument with branches is written with a name of its own."""
    if len(taken) > _MOST_SPANS + 1:
        raise _MalformedError
    found = Piece(counts)
    written = {span for _, span in taken if isinstance(span, str)}
    for literal, span in taken:
        if literal:
            found.parts.append((literal, False))
        if isinstance(span, Choice):
            names = (f"{{{span.name}{number or ''}}}" for number in count())
            name = next(name for name in names if name not in written)
            written.add(name)
            found.choices[name] = span
            span = name
        if span:
            found.parts.append((span, True))
    return found


class Message:
    """An ICU message with branches.

    Attributes:
        text: the message.
        pieces: the texts to translate.
        root: the outermost piece.

    Example:
        >>> message = Message.parse("{n, plural, one {# file} other {# files}}")
        >>> [piece.text for piece in message.pieces]
        ['# file', '# files']
        >>> message.joined({"# file": "# plik", "# files": "# pliki"}.get, "pl")
        '{n, plural, one {# plik} few {# pliki} many {# pliki} other {# pliki}}'
    """

    def __init__(self, text: str, root: Piece, doubles: bool) -> None:
        self.text, self.root, self._doubles = text, root, doubles
        self.pieces = [piece for piece in root.pieces() if piece.has_words]

    @classmethod
    def parse(cls, text: str) -> "Message | None":
        """Parse a text; None if it is malformed or has no branches."""
        if _CHOICE.search(text) is None:
            return None
        parser = _Parser(text)
        try:
            root = parser.piece(counts=False, depth=0)
        except _MalformedError:
            return None
        return cls(text, root, parser.doubles) if root.choices else None

    def accepts(self, piece: Piece, translation: str) -> bool:
        """Whether a translation of a piece has its arguments."""
        return bool(translation.strip()) and piece.written(translation, self._doubles) is not None

    def joined(self, translate: Callable[[str], str | None], language: str | None) -> str:
        """The message in another language, with its plural categories.

        Categories that the message lacks are made from ``other``. Pieces without a translation
        that has their arguments stay as they are.

        Args:
            translate: returns the translation of a piece's text; None for none.
            language: code of the language; the categories stay if it is not known.
        """
        return self._piece(self.root, translate, language)

    def paired(self, target: "Message") -> list[tuple[Piece, Piece]] | None:
        """The pieces of a translation with those that they are made from.

        None if the messages have different arguments with branches, or different keys of
        ``select``.
        """
        try:
            return list(_paired(self.root, target.root))
        except _MalformedError:
            return None

    def _piece(
        self, piece: Piece, translate: Callable[[str], str | None], language: str | None
    ) -> str:
        whole, text = piece.whole, piece.text
        parts = None
        if piece.has_words:
            translation = (translate(text) or "").strip()
            parts = piece.written(translation, self._doubles) if translation else None
        parts = parts or piece.written(text, self._doubles) or [text]
        start = whole[: len(whole) - len(whole.lstrip())]
        end = whole[len(whole.rstrip()) :] if text else ""
        inside = (
            self._choice(piece.choices[part], translate, language)
            if part in piece.choices
            else part
            for part in parts
        )
        return start + "".join(inside) + end

    def _choice(
        self, choice: Choice, translate: Callable[[str], str | None], language: str | None
    ) -> str:
        branches = (
            f"{one.before}{one.key}{one.after}{{{self._piece(one.text, translate, language)}}}"
            for one in _branches(choice, language)
        )
        return choice.head + "".join(branches) + choice.end


def _paired(source: Piece, target: Piece) -> Iterator[tuple[Piece, Piece]]:
    yield source, target
    own, other = (
        sorted(piece.choices.values(), key=lambda choice: choice.shape)
        for piece in (source, target)
    )
    if [choice.shape for choice in own] != [choice.shape for choice in other]:
        raise _MalformedError
    for first, second in zip(own, other, strict=True):
        known = {branch.key: branch.text for branch in first.branches}
        if first.kind == "select" and known.keys() != {branch.key for branch in second.branches}:
            raise _MalformedError
        for branch in second.branches:
            # A branch for 1 may be made from "one", and any other one from "other".
            keys = [branch.key, *(["one"] if branch.key == "=1" else []), "other"]
            texts = [known[key] for key in keys if key in known]
            signs = branch.text.count_signs()
            fitting = [text for text in texts if text.count_signs() == signs]
            yield from _paired([*fitting, *texts][0], branch.text)


def _branches(choice: Choice, language: str | None) -> list[Branch]:
    """The branches that a language needs, in the order of the source."""
    locale = None if language is None or choice.kind == "select" else locale_of(language)
    if locale is None:
        return list(choice.branches)
    rule = locale.plural_form if choice.kind == "plural" else locale.ordinal_form
    own = {branch.key: branch for branch in choice.branches}
    other = own["other"]
    one = own.get("one")
    lacks_number = one and not one.text.count_signs() and other.text.count_signs()
    # "one" without a number is right for 1 only, but other languages have it for 0 or 21.
    if one and lacks_number and any(rule(each) == "one" for each in _NUMBERS if each != 1):
        del own["one"]
        if "=1" not in own and "offset" not in choice.head:
            own = {"=1": Branch(one.before, "=1", one.after, one.text), **own}
    own.pop("other")
    needed = [form for form in PLURAL_FORMS if form in rule.tags]
    kept = [branch for key, branch in own.items() if key[0] == "=" or key in needed]
    made = [
        Branch(other.before, form, other.after, other.text) for form in needed if form not in own
    ]
    return [*kept, *made, other]
