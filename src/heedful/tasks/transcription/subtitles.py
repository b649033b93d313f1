"""Subtitles: words with times as cues of SubRip (SRT) or WebVTT."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from heedful.tasks.transcription.word_times import Word

MOST_CHARACTERS = 42
"""Of a cue, the customary length of a line of subtitles."""
MOST_SECONDS = 6.0
PAUSE = 0.8
"""A pause in seconds that ends a cue."""
_LEAST = 0.3
"""Seconds that a cue is shown at least."""


def cues(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """The words of each cue: a new one begins after a pause, or if it would be too long."""
    some: list[Word] = []
    for word in words:
        if some:
            length = sum(len(own.text) + 1 for own in some) + len(word.text)
            seconds = word.end - some[0].start
            pause = word.start - some[-1].end
            if length > MOST_CHARACTERS or seconds > MOST_SECONDS or pause > PAUSE:
                yield some
                some = []
        some.append(word)
    if some:
        yield some


def subtitles(words: Sequence[Word], form: str) -> list[str]:
    """The lines of a file of subtitles.

    Args:
        words: with their times.
        form: ``srt`` or ``vtt``.

    Example:
        >>> subtitles([Word("yes", 0.5, 0.9)], "srt")
        ['1', '00:00:00,500 --> 00:00:00,900', 'yes', '']
    """
    lines = ["WEBVTT", ""] if form == "vtt" else []
    mark = "." if form == "vtt" else ","
    every = list(cues(words))
    for number, some in enumerate(every, 1):
        start, end = some[0].start, max(some[-1].end, some[0].start + _LEAST)
        if number < len(every):
            end = max(some[-1].end, min(end, every[number][0].start))
        text = " ".join(word.text for word in some)
        times = f"{_time(start, mark)} --> {_time(end, mark)}"
        lines += [str(number), times, escape(text) if form == "vtt" else text, ""]
    return lines


def _time(seconds: float, mark: str) -> str:
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
