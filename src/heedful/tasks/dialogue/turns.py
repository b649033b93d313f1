"""Dialogues as pairs of texts: the turns so far, and the next turn.

The turns so far are one line, which ends with the name of the speaker whose turn is next:

    user: A tea, please. ⏎ bot: One tea. ⏎ user: Make it two. ⏎ bot:

A turn is one line; line breaks within it become spaces.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from heedful.data.examples import Pair
from heedful.data.readers.dialogues import Dialogue, Turn

BREAK = "⏎"
"""The word between turns."""
_JOINER = f" {BREAK} "
_BREAKS = re.compile(rf"\s*[\r\n{BREAK}]+\s*")

Count = Callable[[Sequence[str]], list[int]]
"""How many tokens each of several texts has."""


class Shortened(NamedTuple):
    """The turns that a model reads."""

    text: str
    dropped: int
    """The number of turns that are left out, the oldest ones."""
    fits: bool = True
    """False if not even the last turn fits."""


def one_line(text: str) -> str:
    """A turn as one line.

    Example:
        >>> one_line("One line.\\nAnother.")
        'One line. Another.'
    """
    return _BREAKS.sub(" ", text).strip()


def history(turns: Iterable[Turn], speaker: str) -> str:
    """The turns so far as one line, and who is to speak.

    Example:
        >>> history([Turn(speaker="user", text="Hello!")], "bot")
        'user: Hello! ⏎ bot:'
    """
    said = [f"{one.speaker}: {one_line(one.text)}" for one in turns]
    return _JOINER.join([*said, f"{speaker}:"])


def answers(dialogue: Dialogue, speaker: str) -> Iterator[int]:
    """The numbers of a speaker's turns, from 0."""
    return (number for number, one in enumerate(dialogue.turns) if one.speaker == speaker)


def pairs_of(dialogue: Dialogue, speaker: str) -> list[Pair]:
    """For each turn of a speaker the turns before it, and the turn.

    Example:
        >>> said = [("user", "A tea!"), ("bot", "Yes."), ("user", "Two!"), ("bot", "Two.")]
        >>> pairs_of(Dialogue.of(said), "bot")[1]
        Pair(source='user: A tea! ⏎ bot: Yes. ⏎ user: Two! ⏎ bot:', target='Two.')
    """
    turns = dialogue.turns
    return [
        Pair(history(turns[:number], speaker), one_line(turns[number].text))
        for number in answers(dialogue, speaker)
    ]


def shortened(text: str, count: Count, limit: int) -> Shortened:
    """Leave out the oldest turns of a :func:`history` of more than ``limit`` tokens.

    The last turn stays, even if it alone has more tokens.

    Example:
        >>> words = lambda texts: [len(text.split()) for text in texts]
        >>> shortened("user: A B C ⏎ bot: D ⏎ user: E ⏎ bot:", words, 8)
        Shortened(text='bot: D ⏎ user: E ⏎ bot:', dropped=1, fits=True)
    """
    if count([text])[0] <= limit:
        return Shortened(text, 0)
    parts = text.split(_JOINER)
    too_few, enough = 0, max(len(parts) - 2, 0)  # turns to leave out
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if count([_JOINER.join(parts[middle:])])[0] <= limit:
            enough = middle
        else:
            too_few = middle
    kept = _JOINER.join(parts[enough:])
    return Shortened(kept, enough, count([kept])[0] <= limit)


def turn_of_words(text: str) -> list[int]:
    """The number of the turn of each word of a history, from 0; −1 for words between turns.

    Example:
        >>> turn_of_words("user: Hello! ⏎ bot:")
        [0, 0, -1, 1]
    """
    found, turn = [], 0
    for word in text.split():
        found.append(-1 if word == BREAK else turn)
        turn += word == BREAK
    return found
