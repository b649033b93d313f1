"""Rules that find protected spans: placeholders, markup, addresses, numbers.

A rule is a regular expression. Its match is one protected span, unless it has groups: then each
matched group is a span, the spans form a chain that keeps its order, and the text between them is
translated. ``**bold**`` is a chain of two spans, an ICU plural a longer one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from heedful.basics.errors import UserError
from heedful.data.protected.adjusting import ADJUSTMENTS

Piece = tuple[int, int]
"""Start and end of a span in the text, in characters."""

_ARGUMENT = r"[\w.\-\[\]]*"
_SPECIFIER = r"(?:[hljztL]|hh|ll)?[diouxXeEfFgGaAcsrpn@]"
_CONVERSION = rf"(?:\d+\$)?[#0\-+']*+(?:\d++|\*)?(?:\.(?:\d+|\*))?{_SPECIFIER}"

PATTERNS: dict[str, tuple[str, ...]] = {
    # heedful's own placeholder tokens, and those that Weblate sends in place of placeholders.
    "literal": (r"⟦\d{1,2}⟧|\[X\d+X\]",),
    "rest": (
        r"``(?!\s)(?:[^`]|`(?!`))+``"  # literal
        r"|:[a-zA-Z][\w:+.\-]{0,60}:`[^`<]+`"  # role without a text of its own
        r"|\|[A-Za-z][\w \-.]*\|_{0,2}"  # substitution
        r"|\[(?:#?[\w\-]*|\*)\]_(?!\w)"  # footnote
        r"|::$",
        r"(:[a-zA-Z][\w:+.\-]{0,60}:`)[^`<]++(<[^`<>]+>`)"  # role with a text
        r"|(`)[^`<]++(<[^`<>]+>`__?)"  # link
        r"|(?<![\w`])(`)[^`<]+(`_{0,2})(?![\w`])",  # reference, default role
        r"(?<![\w*\\])(\*\*)(?=[^\s*])[^*]*[^\s*](\*\*)(?![\w*])",  # strong
        r"(?<![\w*\\])(\*)(?=[^\s*])(?:[^*]*[^\s*])?(\*)(?![\w*])",  # emphasis
    ),
    "markdown": (
        r"(?<!`)`[^`\n]+`(?!`)",
        r"(!?\[)[^\[\]]*(\]\([^()\s]*(?:\s+\"[^\"]*\")?\))|(!?\[)[^\[\]]+(\]\[[^\[\]]*\])",
        r"(?<![\w*])(\*\*)(?=[^\s*])[^*]*[^\s*](\*\*)(?![\w*])"
        r"|(?<![\w_])(__)(?=[^\s_])[^_]*[^\s_](__)(?![\w_])",
        r"(?<![\w*])(\*)(?=[^\s*])(?:[^*]*[^\s*])?(\*)(?![\w*])"
        r"|(?<![\w_])(_)(?=[^\s_])(?:[^_]*[^\s_])?(_)(?![\w_])",
    ),
    "url": (r"(?:https?|ftp|file)://[^\s<>\"'`⟦⟧]*[^\s<>\"'`⟦⟧.,;:!?)\]}]|\bwww\.[^\s<>\"'`]+\w",),
    "entity": (r"&(?:[A-Za-z][A-Za-z0-9]*|#\d+|#x[0-9A-Fa-f]+);",),
    "printf": (
        rf"%\(\w[\w.\- ]*\)[#0\-+]*+\d*+(?:\.\d+)?{_SPECIFIER}"
        # A letter may follow, as in "%.3fs", but "50%off" has no placeholder.
        rf"|(?:(?<!\d)%{_CONVERSION}|%{_CONVERSION}(?![A-Za-z]))"
        r"|%%",
    ),
    "brace": (
        r"\{\{[^{}]*\}\}"
        r"|\$\{[^{}]*\}|\$\([^()\s]*\)|\$t\([^()]*\)|\$[A-Za-z_]\w*\$?"
        rf"|\{{{_ARGUMENT}(?:![rsa])?(?::[^{{}}]*)?\}}"
        rf"|\{{\s*\w+\s*,\s*(?:number|date|time|spellout|ordinal|duration)\s*(?:,[^{{}}]*)?\}}",
    ),
    "qt": (r"%(?:L?\d{1,2}|n)(?!\w)",),
    "escape": (r"\\[nrtabfv0\\\"']|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}",),
    "path": (
        r"(?<![\w/~.+])(?:~|\.{1,2})?/[\w.\-]+(?:/[\w.\-*]*[\w\-*/])*(?![\w/])"
        r"|\b[A-Za-z]:\\[\w.\-\\]*[\w\\]"
        r"|(?<![^\s(\"'`\[])--?[a-zA-Z][\w]*(?:-[\w]+)+(?:=[^\s,;]*\w)?|(?<![^\s(\"'`\[])--[a-zA-Z]\w+",
    ),
    "identifier": (
        r"\b[A-Za-z_]\w*(?:\.\w+){0,30}\(\)"
        # A version is not a decimal number, which would be localised.
        r"|(?:(?<=[Vv]ersion )|(?<=[Vv]ersions ))\d+(?:\.\d+)+(?!\w)"
        r"|\b\w*_\w+(?:\.\w+)*\b"
        r"|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b"
        r"|\b[A-Z][A-Za-z]*-\d+\b"
        r"|\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*\b",
    ),
    "number": (
        r"(?<![\w.,])\d{4}-\d{2}-\d{2}(?!\w)"
        r"|(?<![\w.,])[+\-−]?\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\w]|[.,]\d)"
        r"|(?<![\w.,])[+\-−]?\d+(?:[.,:]\d+)+(?![\w])"
        r"|(?<![\w.,])[+\-−]?\d+(?![\w]|[.,]\d)",
    ),
}
"""Rule → its expressions, in the order in which they are tried."""

LITERAL = "literal"
"""The rule for texts that look like placeholder tokens; it always applies."""

NAMES = (
    "literal", "icu", "rest", "markdown", "tags", "url", "email", "entity", "printf", "brace",
    "qt", "escape", "path", "identifier", "number",
)  # fmt: skip
"""All rules, in the order of precedence."""

# A pattern of addresses only would read a long word again from each of its characters.
_EMAIL = re.compile(r"[\w.+\-]++(?P<domain>@[\w\-]+(?:\.[\w\-]+)+)?")
"""An address, or a run of its characters that is none."""

_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][\w:.\-]*)"
    r"(?:\s+[\w:.\-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>=]+))?)*\s*(?P<empty>/?)>|<!--"
)
"""A tag, or the beginning of a comment."""

VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
    ]
)
"""HTML elements without an end tag."""

_ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_BRANCH = re.compile(r"\s*(?:offset:\s*\d++\s*)?(?:=\d+|[\w\-]+)\s*\{")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A rule's regular expression.

    Raises:
        UserError: the expression is invalid, or it matches the empty text.
    """
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UserError(f"data.protect: {pattern!r} is not a regular expression: {error}") from None
    if found.match(""):
        raise UserError(
            f"data.protect: {pattern!r} matches the empty text; make it match something"
        )
    return found


def check_rules(rules: Iterable[str]) -> None:
    """Check that rules are names or regular expressions between slashes.

    Raises:
        UserError: the message has the entry and the possible names.
    """
    for rule in rules:
        if rule.startswith("/") and rule.endswith("/") and len(rule) > 2:
            compiled(rule[1:-1])
        elif rule not in (*NAMES, *ADJUSTMENTS):
            raise UserError(
                f"data.protect: no rule {rule!r}; there are {', '.join((*NAMES, *ADJUSTMENTS))}, "
                "or a regular expression between slashes, such as '/ACME-\\d+/'"
            )


_NEEDED = {
    "literal": "⟦[", "icu": "{", "rest": "`|:[*", "markdown": "`[*_", "tags": "<", "url": ":w",
    "email": "@", "entity": "&", "printf": "%", "brace": "{$", "qt": "%", "escape": "\\",
    "path": "/\\-",
}  # fmt: skip
"""Rule → characters of which every match has at least one."""


def may_match(characters: set[str], rule: str) -> bool:
    """Whether a rule can match a text with these characters; much faster than trying."""
    if rule == "number":
        return any(map(str.isdecimal, characters))
    return rule not in _NEEDED or not characters.isdisjoint(_NEEDED[rule])


def matches(text: str, rule: str) -> Iterator[Sequence[Piece]]:
    """The chains of spans that a rule finds in a text; most chains have one span."""
    if rule == "tags":
        yield from _tags(text)
    elif rule == "email":
        yield from ([found.span()] for found in _EMAIL.finditer(text) if found["domain"])
    elif rule == "icu":
        yield from _icu(text)
    else:
        for pattern in map(compiled, PATTERNS.get(rule) or (rule[1:-1],)):
            for found in pattern.finditer(text):
                groups = (found.span(group) for group in range(1, pattern.groups + 1))
                chain = [piece for piece in groups if piece[0] >= 0]
                yield chain if rule in PATTERNS and chain else [found.span()]


def _tags(text: str) -> Iterator[Sequence[Piece]]:
    """Pairs of tags as chains of two spans; tags without a partner and comments as single spans."""
    open_tags: list[tuple[str, Piece]] = []
    chains: list[list[Piece]] = []
    names: Counter[str] = Counter()
    last, place = text.rfind("-->"), 0
    while found := _TAG.search(text, place):
        name, place = found["name"], found.end()
        if name is None:
            if place <= last:  # without this, each beginning would read the rest of the text
                place = text.index("-->", place) + len("-->")
                chains.append([(found.start(), place)])
        elif found["empty"] or (not found["end"] and name.lower() in VOID):
            chains.append([found.span()])
        elif not found["end"]:
            open_tags.append((name, found.span()))
            names[name] += 1
        elif names[name]:
            while open_tags[-1][0] != name:
                other, span = open_tags.pop()
                names[other] -= 1
                chains.append([span])
            names[name] -= 1
            chains.append([open_tags.pop()[1], found.span()])
        else:
            chains.append([found.span()])
    chains += [[piece] for _, piece in open_tags]
    yield from sorted(chains)


def _icu(text: str) -> Iterator[Sequence[Piece]]:
    """The frames of plural and select arguments, and ``#`` in their branches.

    The texts of branches are translated.
    """
    closings = _closing_braces(text)
    searched = 0
    for found in _ICU.finditer(text):
        chain = _branches(text, found.start(), found.end(), closings)
        if chain:
            yield chain
            # What an outer argument has inside was searched with it.
            first, last = max(searched, chain[0][1]), chain[-1][0]
            yield from ([sign.span()] for sign in re.compile("#").finditer(text, first, last))
            searched = max(searched, last)


def _closing_braces(text: str) -> dict[int, int]:
    """The place of each opening brace that is closed → the place of its closing brace."""
    opened: list[int] = []
    closings: dict[int, int] = {}
    for found in re.finditer(r"[{}]", text):
        if found[0] == "{":
            opened.append(found.start())
        elif opened:
            closings[opened.pop()] = found.start()
    return closings


def _branches(text: str, start: int, place: int, closings: Mapping[int, int]) -> list[Piece]:
    chain: list[Piece] = []
    while branch := _BRANCH.match(text, place):
        chain.append((start, branch.end()))
        if branch.end() - 1 not in closings:
            return []
        start = closings[branch.end() - 1]
        place = start + 1
    end = re.compile(r"\s*\}").match(text, place)
    return [*chain, (start, end.end())] if chain and end else []
