"""Inline markup of a Markdown paragraph, with positions.

markdown-it-py finds markup according to CommonMark, but without positions. Its rules are therefore
observed.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from heedful.data.documents.marked_items import Mark

_RULES = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": rules_inline.link,
    "image": rules_inline.image,
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
    "entity": rules_inline.entity,
}
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_STAYS = frozenset({"<code>", "<pre>", "<script>", "<style>", "<svg>"})
_VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "source", "wbr"})
_EXTENSIONS = re.compile(
    r"(?P<alone>^\[[ xX]\](?=[ \t])"  # task
    r"|^:[ \t]+"  # definition
    r"|\[\^[^\]\s]{1,999}\]:?"  # footnote
    r"|(?:(?<![ \t])[ \t]++)?\{[#.:][^{}\n]*\}[ \t]*$)"  # attributes
    r"|(?P<whole>\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{\{[<%][^{}]*[>%]\}\}"  # templates
    r"|\{[\w:+.-]+\}(?=`)"  # MyST's roles
    r"|\$\$[^$]+\$\$"
    r"|(?<![\w:]):[a-z][a-z0-9_+-]*:(?![\w:]))"  # emoji
)


class _Event(NamedTuple):
    """A rule that matched: its position, and its tokens with the lengths of their texts."""

    rule: str
    start: int
    end: int
    made: list[tuple[Token, int]]


def parser() -> MarkdownIt:
    """A parser of CommonMark with tables and strikethrough, with observable rules."""
    made = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for name, rule in _RULES.items():
        made.inline.ruler.at(name, _watched(name, rule))
    made.inline.ruler2.disable("fragments_join")  # it gives delimiters the texts before them
    return made


def _watched(name: str, rule: Any) -> Any:
    def watched(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        matched = bool(rule(state, silent))
        if matched and not silent and state.env.get("root") is state:
            made = [(token, len(token.content)) for token in state.tokens[count:]]
            state.env["events"].append(_Event(name, start, state.pos, made))
        return matched

    return watched


def find_marks(markdown: MarkdownIt, content: str, references: Mapping[str, Any]) -> list[Mark]:
    """The markup of a paragraph, from left to right, without overlaps.

    Args:
        markdown: of :func:`parser`.
        content: the paragraph's lines.
        references: the link definitions of the document.
    """
    events: list[_Event] = []
    env: dict[str, Any] = {"references": references, "events": events}
    state = StateInline(content, markdown, env, [])
    env["root"] = state
    markdown.inline.tokenize(state)
    for rule in markdown.inline.ruler2.getRules(""):
        rule(state)
    marks = [mark for event in events for mark in _marks(state, event)]
    marks = _with_whole_elements(sorted(marks, key=lambda mark: mark.start))
    taken = {mark.start for mark in marks}
    starts = [mark.start for mark in marks]
    ends = [0, *accumulate((mark.end for mark in marks), max)]
    for found in _EXTENSIONS.finditer(content):
        is_covered = ends[bisect_left(starts, found.start())] > found.start()
        if not is_covered and not any(place in taken for place in range(*found.span())):
            marks.append(Mark(str(found.lastgroup), *found.span()))
    return sorted(marks, key=lambda mark: mark.start)


def _with_whole_elements(marks: list[Mark]) -> list[Mark]:
    """The marks, where an element whose words stay, such as ``<code>``, is one."""
    found: list[Mark] = []
    end = 0
    names = set(_STAYS)
    for place, mark in enumerate(marks):
        if mark.kind == "open" and mark.name in names and mark.start >= end:
            rest = (one for one in marks[place:] if (one.kind, one.name) == ("close", mark.name))
            if (closing := next(rest, None)) is not None:
                end = closing.end
                found.append(Mark("whole", mark.start, end))
            else:
                names.remove(mark.name)
        if mark.start >= end:
            found.append(mark)
    return found


def _marks(state: StateInline, event: _Event) -> list[Mark]:
    rule, start, end, made = event
    content = state.src[start:end]
    token = made[-1][0] if made else None
    if rule in ("emphasis", "strikethrough"):
        return _delimiters(event)
    if rule in ("link", "image"):
        return _link(state, event)
    if token is None:
        return []
    if token.type in ("softbreak", "hardbreak"):
        if token.type == "softbreak":
            return [Mark("soft", start, end)]
        before = state.src[:start]
        return [Mark("hard", len(before.rstrip(" ")), end)]
    if rule in ("escape", "entity"):
        is_own = token.content == content
        return [] if is_own else [Mark("character", start, end, text=token.content)]
    if rule == "html_inline":
        tag = _TAG.match(content)
        name = tag[2].lower() if tag else ""
        is_alone = tag is None or name in _VOID or content.endswith("/>")
        kind = "alone" if is_alone else "close" if tag and tag[1] else "open"
        return [Mark(kind, start, end, f"<{name}>")]
    is_markup = rule == "autolink" or token.type == "code_inline"
    return [Mark("whole", start, end)] if is_markup else []


def _link(state: StateInline, event: _Event) -> list[Mark]:
    """The beginning and end of a link or image; the end includes its reference."""
    rule, start, end, _ = event
    first = start + (2 if rule == "image" else 1)
    last = state.md.helpers.parseLinkLabel(state, first - 1, rule == "link")
    label, closing = state.src[first:last], state.src[last:end]
    if label.startswith("^"):
        return [Mark("alone", start, end)]
    text = f"][{label}]" if closing in ("]", "][]") else None
    if not label.strip():
        return [Mark("alone", start, end)]
    return [Mark("open", start, first, rule), Mark("close", last, end, rule, text)]


def _delimiters(event: _Event) -> list[Mark]:
    """The delimiters of a run that are markup; ``**`` is a single delimiter."""
    marks: list[Mark] = []
    at = event.end
    places: list[tuple[Token, int, int]] = []
    for token, length in reversed(event.made):
        if at > event.start:
            places.append((token, at - length, at))
            at -= length
    hidden: tuple[int, int] | None = None
    for token, start, end in reversed(places):
        kind = token.type.rpartition("_")[2]
        name = token.type.rpartition("_")[0]
        if kind == "open":
            begin = hidden[0] if hidden is not None and name == "strong" else start
            marks.append(Mark("open", begin, end, name))
            hidden = None
        elif kind == "close":
            marks.append(Mark("close", start, end, name))
        elif not token.content and marks and marks[-1].end == start and marks[-1].kind == "close":
            marks[-1] = marks[-1]._replace(end=end)
        elif not token.content:
            hidden = (start, end)
    return marks
