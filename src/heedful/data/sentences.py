"""Split lines into sentences with sentencex, in linear time, with workarounds for its errors.

Two errors of sentencex (up to 1.0.32) have workarounds here:

- ``segment("en", "Plan B\\u00a0.")`` panics: of a single capital letter, white space of several
  bytes and a full stop, it counts the letter's bytes back from the end of the white space
  (``is_name_initial_for``, ``head[..head.len() - last_word.len()]``) and slices within a character.
  Therefore, white space before a full stop is replaced by spaces.
- ``segment("en", "“" * n)`` takes time in n², as do other opening quotation marks without their
  closing ones, and holds the interpreter's lock. Therefore, lines are processed in windows.
"""

import re
from collections.abc import Callable

from sentencex import segment

from heedful.basics.native import NativeError, call_native
from heedful.basics.notices import notice

_WINDOW = 4_000
"""Size of a window in characters. Sentences are much shorter, so windows do not affect them."""
# A run of white space is looked at from its beginning only.
_BEFORE_FULL_STOP = re.compile(r"(?<!\s)\s+(?=\.)")


class SentenceFailures:
    """Counts lines (or windows of long lines) that could not be split, for a notice."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def report(self, notify: Callable[[str], None] = notice) -> None:
        """Give the notice, if there were any failures."""
        if self.count:
            lines = f"{self.count:,} line{'s' * (self.count > 1)}"
            notify(
                f"{lines} could not be split into sentences (sentencex failed) and were left whole"
            )


def split_into_sentences(
    line: str, language: str, failures: SentenceFailures | None = None
) -> list[str]:
    """Split a line into sentences; joined, they are the line, including white space.

    Args:
        line: any text.
        language: code of the language (ISO 639); unknown languages use the rules of English.
        failures: counts failures of the library; such text is not split.

    Example:
        >>> split_into_sentences("Mr. Smith sat.  He slept.", "en")
        ['Mr. Smith sat.  ', 'He slept.']
    """
    sentences: list[str] = []
    begun = start = 0  # where the sentence under way begins, and the window
    while len(line) - start > _WINDOW:
        end = _window_end(line, start)
        pieces = _segment(line[start:end], language, failures)
        if len(pieces) == 1:  # the sentence continues beyond the window
            start = end
            continue
        first, *others, last = pieces
        sentences += [line[begun:start] + first, *others]
        begun = start = end - len(last)
    pieces = _segment(line[start:], language, failures)
    return [*sentences, line[begun:start] + pieces[0], *pieces[1:]]


def _window_end(line: str, start: int) -> int:
    """The end of a window: after white space in the second half, if possible."""
    for end in range(start + _WINDOW, start + _WINDOW // 2, -1):
        if line[end - 1].isspace():
            return end
    return start + _WINDOW


def _segment(text: str, language: str, failures: SentenceFailures | None) -> list[str]:
    """The sentences of a text; the whole text if the library fails."""
    shown = _BEFORE_FULL_STOP.sub(lambda spaces: " " * len(spaces[0]), text)
    try:
        found = call_native(segment, language, shown)
    except (NativeError, UnicodeError):  # half of a surrogate pair cannot be handed over
        found = []
    lengths = [len(piece) for piece in found if piece]
    if not lengths or "".join(found) != shown:
        if text and failures is not None:
            failures.count += 1
        return [text]
    pieces, start = [], 0
    for length in lengths:
        pieces.append(text[start : start + length])
        start += length
    return pieces
