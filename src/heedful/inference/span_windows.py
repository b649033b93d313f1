"""Windows over a text that is searched for answers, and where a right answer is in them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from heedful.basics.errors import UserError
from heedful.data.examples import SpanQuestion
from heedful.data.token_offsets import LocatedTokens
from heedful.inference.sliding_windows import room_for_text, spans
from heedful.inference.text_reader import Row
from heedful.models.encoders import Sequences, sequences_of

LEAST_CONTEXT = 8
"""Tokens of the text that a window must have room for."""


class Window(NamedTuple):
    """A window over the text, with the whole question before it."""

    row: Row
    begin: int
    """Index of its first token in the text."""

    @property
    def shift(self) -> int:
        """Position in the row of a token of the text − its index in the text."""
        return len(self.row.first) + 2 - self.begin


def windows_of(
    question: list[int], context: list[int], max_length: int, overlap: int
) -> list[Window]:
    """The windows over a text, each of at most ``max_length`` tokens with the question.

    Raises:
        UserError: the question leaves no room for the text.
    """
    room = room_for_text(max_length, 2) - len(question)
    if room < min(LEAST_CONTEXT, len(context)):
        raise UserError(
            f"the question has {len(question):,} tokens, which leave no room for the text in the "
            f"{max_length:,} tokens that the model reads; give a shorter question"
        )
    shared = min(overlap, room - 1)
    return [
        Window(Row(question, context[start:end]), start)
        for start, end in spans(len(context), room, shared)
    ]


def rows_of(windows: Sequence[Window], device: torch.device) -> Sequences:
    """A batch of windows."""
    seconds = [one.row.second or [] for one in windows]
    made = sequences_of([one.row.first for one in windows], seconds)
    return Sequences(*(part.to(device) for part in made))


def boundaries(located: LocatedTokens, start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that have a character of ``[start, end)``; None if none has."""
    inside = [
        place for place, (a, b) in enumerate(located.ranges) if a < end and b > start and a < b
    ]
    return (inside[0], inside[-1]) if inside else None


def answer_in(
    question: SpanQuestion, located: LocatedTokens
) -> tuple[tuple[int, int] | None, bool]:
    """The tokens of the first right answer, and whether they have exactly its characters."""
    if not question.answers:
        return None, True
    text, start = question.answers[0]
    start += len(text) - len(text.lstrip())
    end = start + len(text.strip())
    found = boundaries(located, start, end)
    if found is None:
        return None, False
    first, last = found
    return found, located.ranges[first][0] == start and located.ranges[last][1] == end


def right_in(answer: tuple[int, int] | None, window: Window) -> tuple[int, int]:
    """The positions of an answer in a window's row; BEGIN twice if it is not wholly in it."""
    if answer is None:
        return 0, 0
    first, last = answer
    inside = window.begin <= first and last < window.begin + len(window.row.second or [])
    return (first + window.shift, last + window.shift) if inside else (0, 0)
