"""Dialogues: JSON lines with a list of turns, or plain text with ``speaker: text`` lines."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator

from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.basics.limits import MOST_FACTS
from heedful.data.readers.labelled import objects_of_lines
from heedful.data.readers.opening import open_input
from heedful.data.readers.text import lines_of
from heedful.data.subwords import refuse_surrogates

_LONGEST_NAME = 64


class Turn(BaseModel):
    """What one speaker says at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speaker: Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST_NAME)]
    text: StrictStr
    distance: int | None = Field(None, ge=1)
    """Of an answer in test data: how many turns before it the fact was said that it depends on."""

    @field_validator("speaker")
    @classmethod
    def _is_a_name(cls, given: str) -> str:
        if given != given.strip() or any(one in given for one in ":\r\n⏎"):
            raise ValueError("a speaker's name has no colon, line break or outer space")
        return given

    @field_validator("text")
    @classmethod
    def _says_something(cls, given: str) -> str:
        if not given.strip():
            raise ValueError("the turn is empty")
        try:
            refuse_surrogates(given, "the turn")
        except UserError as error:
            raise ValueError(str(error)) from error
        return given


class Dialogue(BaseModel):
    """The turns of a dialogue, the first one first.

    Example:
        >>> Dialogue.of([("user", "Hello!"), ("bot", "Good day.")]).turns[1].text
        'Good day.'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: Annotated[list[Turn], Field(min_length=1, max_length=MOST_FACTS)]

    @classmethod
    def of(cls, turns: Iterable[tuple[str, str]]) -> "Dialogue":
        """A dialogue from pairs of a speaker and a text."""
        return cls(turns=[Turn(speaker=speaker, text=text) for speaker, text in turns])

    def to_json(self) -> dict[str, Any]:
        """The dialogue as a value that :mod:`json` can write."""
        return self.model_dump(mode="json", exclude_none=True)


def read_dialogues(files: Sequence[str], encoding: str | None = None) -> Iterator[Dialogue]:
    """The dialogues of files, plain, gzip or xz.

    A file whose first line that is not empty begins with ``{`` has one JSON object a line:
    ``{"turns": [{"speaker": "user", "text": "Hello!"}, …]}``. Any other file has a turn a line,
    ``user: Hello!``, and a blank line between dialogues.

    Args:
        files: the files; ``-`` is standard input.
        encoding: their encoding; UTF-8 by default.

    Raises:
        UserError: a line has neither format; the message has file, line and field.
    """
    for path in files:
        with open_input(path) as file:
            lines, before = lines_of(file, encoding), []
            for line in lines:
                before.append(line)
                if line.strip():
                    break
            every = chain(before, lines)
            if before and before[-1].lstrip().startswith("{"):
                for where, found in objects_of_lines(file.name, every):
                    if found is not None:
                        yield read_object(Dialogue, found, where)
            else:
                yield from _plain(file.name, every)


def _plain(name: str, lines: Iterable[str]) -> Iterator[Dialogue]:
    turns: list[Turn] = []
    for number, line in enumerate(chain(lines, [""]), start=1):
        if line.strip():
            if len(turns) == MOST_FACTS:
                raise UserError(
                    f"{name}:{number}: a dialogue of more than {MOST_FACTS:,} turns; put a blank "
                    "line between dialogues"
                )
            turns.append(read_turn(line, f"{name}:{number}"))
        elif turns:
            yield Dialogue(turns=turns)
            turns = []


def read_turn(line: str, where: str) -> Turn:
    """A turn from a line ``speaker: text``.

    Raises:
        UserError: there is no colon, or the speaker or the text is empty.

    Example:
        >>> read_turn("user: At 7:30, please.", "line 1").text
        'At 7:30, please.'
    """
    speaker, colon, text = line.partition(":")
    if not colon:
        raise UserError(
            f"{where}: no colon; write each turn as 'speaker: text', and a blank line between "
            "dialogues"
        )
    given = {"speaker": speaker.strip(), "text": text.strip()}
    return read_object(Turn, given, where)
