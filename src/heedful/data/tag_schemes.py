"""Tags that mark spans: ``B-PER``, ``I-PER``, ``O``, and the schemes that they follow.

The letters are those of the field: ``B`` begins a span, ``I`` is inside, ``O`` outside, ``E`` (or
``L``) ends one, ``S`` (or ``U``) is a span of one word. Ramshaw and Marcus 1995; Tjong Kim Sang and
Veenstra 1999, "Representing text chunks", section 2.1, define IOB1, IOB2, IOE1 and IOE2.

| scheme | spans |
| --- | --- |
| IOB1 | ``I``; ``B`` only for the first word of a span directly after one of the same type |
| IOB2 | ``B I I`` |
| IOE1 | ``I``; ``E`` only for the last word of a span directly before one of the same type |
| IOE2 | ``I I E`` |
| IOBES, BILOU | ``B I E`` or ``B I L``, and ``S`` or ``U`` for one word |
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from heedful.basics.errors import UserError

Scheme = Literal["IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"]
OUTSIDE = "O"
"""The tag of words outside of spans."""

_LETTERS = {
    "IOB1": "IB",
    "IOB2": "IB",
    "IOE1": "IE",
    "IOE2": "IE",
    "IOBES": "IBES",
    "BILOU": "IBLU",
}
_MARKS = re.compile(r"[BIESLU]-.+", re.DOTALL)
_SAME_LETTER = {"L": "E", "U": "S"}


class Span(NamedTuple):
    """A span of words."""

    type: str
    start: int
    end: int
    """The word after the last one."""


class _Tag(NamedTuple):
    letter: str
    type: str


_NONE = _Tag(OUTSIDE, "")


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether tags mark spans: all are ``O`` or a letter, a hyphen and a type, and not all ``O``.

    Example:
        >>> mark_spans(["O", "B-PER", "I-PER"]), mark_spans(["NOUN", "O"])
        (True, False)
    """
    others = {tag for tag in tags if tag != OUTSIDE}
    return bool(others) and all(map(_MARKS.fullmatch, others))


def require_scheme(tags: Iterable[str], scheme: Scheme, where: str) -> None:
    """Raise UserError for a tag that a scheme does not have.

    Args:
        tags: the tags.
        scheme: the scheme.
        where: the files, for the message.
    """
    letters = _LETTERS[scheme]
    for tag in sorted(set(tags) - {OUTSIDE}):
        if not (_MARKS.fullmatch(tag) and tag[0] in letters):
            shown = ", ".join(f"{letter}-…" for letter in sorted(letters))
            raise UserError(
                f"{where}: the tag '{tag}' is not of the scheme {scheme}, which has {shown} and O; "
                "choose another data.scheme, or leave it out"
            )


def spans(tags: Sequence[str], scheme: Scheme | None = None) -> list[Span]:
    """The spans that the tags of a sentence mark, in their order.

    Args:
        tags: tags for which :func:`mark_spans` is true.
        scheme: read the tags strictly in this scheme: parts that do not follow it mark nothing. If
            None, the rules of CoNLL's scorer apply, which reads any mixture of the schemes: a span
            also begins at an ``I`` without ``B``, and ends before another type.

    Example:
        >>> spans(["I-PER", "I-PER", "O", "B-LOC"])
        [Span(type='PER', start=0, end=2), Span(type='LOC', start=3, end=4)]
        >>> spans(["I-PER", "I-PER", "O", "B-LOC"], "IOB2")
        [Span(type='LOC', start=3, end=4)]
    """
    read = [_split(tag) for tag in tags]
    found = []
    start = 0
    while start < len(read):
        before = read[start - 1] if start else _NONE
        if not _starts(before, read[start], scheme):
            start += 1
            continue
        end = start + 1
        while end < len(read) and _continues(read[end - 1], read[end]):
            end += 1
        after = read[end] if end < len(read) else _NONE
        if _ends(read[end - 1], after, scheme):
            found.append(Span(read[start].type, start, end))
        start = end
    return found


def may_follow(scheme: Scheme, before: str | None, after: str | None) -> bool:
    """Whether one tag may follow another in a scheme.

    Args:
        scheme: the scheme.
        before: a tag; None for the beginning of the sentence.
        after: the next tag; None for the end of the sentence.

    Example:
        >>> may_follow("IOB2", "O", "I-PER"), may_follow("IOB2", "B-PER", "I-PER")
        (False, True)
    """
    first, second = (_NONE if tag is None else _split(tag) for tag in (before, after))
    same = first.type == second.type
    if scheme == "IOB1":
        return second.letter != "B" or same
    if scheme == "IOE1":
        return first.letter != "E" or same
    opened = first.letter == "I" if scheme == "IOE2" else first.letter in "BI"
    if scheme == "IOB2":
        return second.letter != "I" or (opened and same)
    if scheme == "IOE2":
        return not opened or (second.letter in "IE" and same)
    return (opened and same) if second.letter in "IE" else not opened


def _split(tag: str) -> _Tag:
    if tag == OUTSIDE:
        return _NONE
    return _Tag(_SAME_LETTER.get(tag[0], tag[0]), tag[2:])


def _continues(before: _Tag, tag: _Tag) -> bool:
    """Whether a tag continues the span of the tag before it."""
    return before.letter in "BI" and tag.letter in "IE" and before.type == tag.type


def _starts(before: _Tag, tag: _Tag, scheme: Scheme | None) -> bool:
    if tag.letter == OUTSIDE:
        return False
    if scheme in ("IOB2", "IOBES", "BILOU"):
        return tag.letter in "BS"
    if scheme == "IOB1" and tag.letter == "B":
        return before.type == tag.type
    return tag.letter in "BS" or not _continues(before, tag)


def _ends(last: _Tag, after: _Tag, scheme: Scheme | None) -> bool:
    """Whether a span may end between two tags, the second of which does not continue it."""
    if scheme in ("IOE2", "IOBES", "BILOU"):
        return last.letter in "ES"
    if scheme == "IOE1" and last.letter == "E":
        return after.type == last.type
    return True
