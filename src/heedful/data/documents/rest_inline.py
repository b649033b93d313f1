"""The inline markup of reStructuredText with its places.

After the recognition rules of its specification ("Inline markup"): markup does not nest, and what
begins and ends it stands between white space and punctuation.
"""

import re

from heedful.data.documents.marked_items import Mark

BEFORE = "'\"([{<-/:‘“’«¡¿–—„‚‹"
"""What may stand before markup, besides white space."""
AFTER = "'\")]}>-/:.,;!?\\’”»–—…“‘›"
"""What may stand after markup, besides white space."""
_BEFORE = rf"(?<![^\s{re.escape(BEFORE)}])"
_AFTER = rf"(?=$|[\s{re.escape(AFTER)}])"
_TEXT = r"(?:\\.|[^`\\])+"
_MARKUP = re.compile(
    r"(?P<escape>\\(?:.|\n|$))"
    rf"|{_BEFORE}(?P<literal>``(?=\S).{{1,2000}}?(?<=\S)``){_AFTER}"
    rf"|{_BEFORE}(?P<role>:[a-zA-Z0-9][\w+.:-]{{1,200}}+(?<=[a-zA-Z0-9]:)`)(?=\S){_TEXT}`{_AFTER}"
    rf"|{_BEFORE}(?P<target>_`{_TEXT}`){_AFTER}"
    rf"|{_BEFORE}(?P<phrase>`)(?=[^\s`]){_TEXT}`(?P<suffix>__?|:[\w+.:-]+:)?{_AFTER}"
    rf"|{_BEFORE}(?P<strong>\*\*)(?=[^\s*])(?:\\.|[^*\\]|\*(?!\*))+(?<=\S)\*\*{_AFTER}"
    rf"|{_BEFORE}(?P<emphasis>\*)(?=[^\s*])(?:\\.|[^*\\])+(?<=\S)\*{_AFTER}"
    rf"|{_BEFORE}(?P<substitution>\|(?=[^\s|])[^|]+(?<=\S)\|_?_?){_AFTER}"
    rf"|{_BEFORE}(?P<note>\[(?:#?[\w.\-]*|\*)\]_){_AFTER}"
    r"|(?P<url>\b(?:https?|ftp|mailto|file):[^\s<>`\"']*[^\s<>`\"'.,;:!?)\]}*_|\\])"
    r"|(?P<email>(?<![\w.+\-])[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)*)"
    # Not inside of a dotted word, of which every part would be tried.
    r"|(?<![\w`*|])(?<![A-Za-z0-9][-.+:])"
    rf"(?P<name>[A-Za-z0-9]++(?:[-._+:][A-Za-z0-9]++)*+__?){_AFTER}",
    re.DOTALL,
)
_EMBEDDED = re.compile(r"(?P<text>.*?)\s*<[^<>]+>\Z", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "(": ")", "[": "]", "{": "}", "<": ">"}
ESCAPE = "escape"
"""The name of the marks of escapes."""


def find_marks(content: str) -> list[Mark]:
    """The markup of a paragraph, from left to right, without overlaps.

    Line breaks outside of markup are ``soft``.

    Args:
        content: the paragraph's lines.
    """
    marks: list[Mark] = []
    place = 0
    while found := _MARKUP.search(content, place):
        sign = found.lastgroup if found.lastgroup != "suffix" else "phrase"
        start = found.start()
        if (
            start
            and sign not in (ESCAPE, "name", "url", "email")
            and _is_quoted(content, start, found)
        ):
            place = start + 1
            continue
        marks += _marks(found, str(sign))
        place = max(found.end(), start + 1)
    taken = [False] * len(content)
    for mark in marks:
        taken[mark.start : mark.end] = [True] * (mark.end - mark.start)
    breaks = (found.span() for found in re.finditer("\n", content))
    marks += [Mark("soft", *span) for span in breaks if not taken[span[0]]]
    return sorted(marks, key=lambda mark: mark.start)


def _is_quoted(content: str, start: int, found: "re.Match[str]") -> bool:
    """Whether a sign stands alone in quotes or brackets, which keep it from being markup."""
    sign = found[found.lastgroup or 0] if found.lastgroup in ("strong", "emphasis") else ""
    following = content[start + len(sign) : start + len(sign) + 1]
    return bool(sign) and _QUOTES.get(content[start - 1]) == following


def _marks(found: "re.Match[str]", sign: str) -> list[Mark]:
    start, end = found.span()
    if sign == ESCAPE:
        return [Mark("whole", start, end, ESCAPE)]
    if sign in ("strong", "emphasis"):
        length = len(found[sign])
        return _pair(found, start + length, end - length, sign)
    if sign == "role":
        opening = found.end("role")
        embedded = _EMBEDDED.fullmatch(found.string, opening, end - 1)
        if embedded and embedded["text"].strip():
            return _pair(found, opening, embedded.end("text"), sign)
    if sign == "phrase" and found["suffix"] in ("_", "__"):
        last = end - 1 - len(found["suffix"])
        embedded = _EMBEDDED.fullmatch(found.string, start + 1, last)
        if embedded and embedded["text"].strip():
            return _pair(found, start + 1, embedded.end("text"), sign)
        if not embedded and found["suffix"] == "__":
            return _pair(found, start + 1, last, sign)
        name = " ".join(found.string[start + 1 : last].split())
        if not embedded and "<" not in name:  # what it links to is no longer its text
            return _pair(found, start + 1, last, sign, f" <{name}_>`_")
    return [Mark("whole", start, end)]


def _pair(
    found: "re.Match[str]", first: int, last: int, name: str, closing: str | None = None
) -> list[Mark]:
    """The beginning and the end of markup, and the escapes in the words between."""
    escapes = re.compile(r"\\(?:.|\n)", re.DOTALL).finditer(found.string, first, last)
    return [
        Mark("open", found.start(), first, name),
        *(Mark("whole", *one.span(), ESCAPE) for one in escapes),
        Mark("close", last, found.end(), name, closing),
    ]
