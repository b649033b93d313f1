"""Notices: one line on standard error, each kind once, with a count."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_silent = False
_printed: ContextVar[set[str] | None] = ContextVar("printed", default=None)
"""The notices that are not repeated; None if they are."""


def silence(silent: bool) -> None:
    """Print no notices in this process, because another one prints the same; or print them."""
    global _silent
    _silent = silent


def is_silent() -> bool:
    """Whether this process prints no notices."""
    return _silent


def notice(text: str) -> None:
    """Print one line to standard error, where it does not disturb a pipe.

    Used for everything that is left out, shortened or split, once, with a count.
    """
    printed = _printed.get()
    if not _silent and (printed is None or text not in printed):
        print(f"heedful: {text}", file=sys.stderr, flush=True)
    if printed is not None:
        printed.add(text)


@contextmanager
def without_notices() -> Iterator[None]:
    """Print no notices, because the same work is done again later, with its notices."""
    before = _silent
    silence(True)
    try:
        yield
    finally:
        silence(before)


@contextmanager
def without_repeats() -> Iterator[None]:
    """Print equal notices once: a file that is read several times has equal ones each time."""
    token = _printed.set(set())
    try:
        yield
    finally:
        _printed.reset(token)


def once() -> Callable[[str], None]:
    """A :func:`notice` that prints each message once; numbers in a message are ignored."""
    printed: set[str] = set()

    def notice_once(text: str) -> None:
        kind = re.sub(r"[\d,]+", "#", text)
        if kind not in printed:
            printed.add(kind)
            notice(text)

    return notice_once


def notice_left_out(where: object, counts: Mapping[str, int]) -> None:
    """Print how many of each kind were left out of a file.

    Args:
        where: the file.
        counts: kind → number. A kind is a plural, such as ``rows without a label``, whose noun is
            its first word that ends in ``s``.
    """
    for kind, count in counts.items():
        named = kind if count != 1 else re.sub(r"s\b", "", kind, count=1)
        notice(f"left out of {where}: {count:,} {named}")


_Write = Callable[..., str]
_sums: ContextVar[dict[_Write, tuple[Callable[[str], None], tuple[int, ...]]] | None] = ContextVar(
    "sums", default=None
)


def counted_notice(say: Callable[[str], None], write: _Write, *counts: int) -> None:
    """Say ``write(*counts)``, if the first count is not 0; in :func:`summed`, at its end.

    Args:
        say: such as :func:`notice`.
        write: makes the text. Equal functions, such as the same method of the same object, are the
            same notice.
        counts: numbers that can be added.
    """
    sums = _sums.get()
    if sums is not None:
        _, before = sums.get(write, (say, (0,) * len(counts)))
        sums[write] = say, tuple(map(sum, zip(before, counts, strict=True)))
    elif counts[0]:
        say(write(*counts))


@contextmanager
def summed() -> Iterator[None]:
    """Sum the counts of each :func:`counted_notice` of this thread, and say it once at the end."""
    token = _sums.set({})
    try:
        yield
    finally:
        sums = _sums.get() or {}
        _sums.reset(token)
        for write, (say, counts) in sums.items():
            counted_notice(say, write, *counts)


@contextmanager
def without_output() -> Iterator[None]:
    """Without what PyTorch's C++ code prints while it connects; its errors are raised as well."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    empty = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(empty, 1)
        os.dup2(empty, 2)
        yield
    finally:
        for number, file in zip((1, 2), kept, strict=True):
            os.dup2(file, number)
            os.close(file)
        os.close(empty)
