"""The recipe for dialogues, when none is given."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from heedful.basics.errors import UserError
from heedful.data.readers.dialogues import read_dialogues
from heedful.runs.recipe import find_data
from heedful.tasks.default_recipe import (
    TOKENS_PER_WORD,
    WORD_TYPES,
    data_table,
    refuse_pipe,
    vocabulary,
    words_in,
)

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_SMALL = 20_000
"""With fewer turns, the data are small."""


@dataclass(frozen=True)
class DialogueOptions:
    """The options that describe the data."""

    speaker: Annotated[
        str | None,
        typer.Option(
            "--speaker", help="Whose turns are learnt; default: the speaker of the second turns."
        ),
    ] = None


class _Size(NamedTuple):
    """The size of a corpus of dialogues."""

    dialogues: int
    turns: int
    words: int
    word_types: int


def _measure(files: list[str], encoding: str | None) -> _Size:
    dialogues = turns = words = 0
    types: set[str] = set()
    for one in read_dialogues(files, encoding):
        dialogues += 1
        for turn in one.turns:
            own = words_in(turn.text)
            turns, words = turns + 1, words + len(own)
            if len(types) < WORD_TYPES:
                types.update(own)
    return _Size(dialogues, turns, words, len(types))


def choose(
    paths: list[str],
    *,
    speaker: str | None = None,
    encoding: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for dialogues; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    refuse_pipe(paths, _PIPE)
    size = _measure(find_data(paths, folder), encoding)
    if not size.turns:
        raise UserError(f"{', '.join(paths)}: no dialogues to train on")
    small = size.turns < _SMALL
    batch_tokens = 2048 if small else 4096
    # Half of the turns are learnt, each after all turns before it.
    read = size.words * TOKENS_PER_WORD * max(1.0, size.turns / size.dialogues / 2)
    steps = max(300, min(50_000, round((40 if small else 15) * read / batch_tokens)))
    every = max(50, min(1000, steps // 20))
    share = round(min(0.1, max(20.0, size.dialogues * 0.02) / size.dialogues), 6)
    return {
        "task": "dialogue",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding, speaker=speaker),
            "max_tokens": 500,
            "validation_share": share,
            "test_share": share,
        },
        "tokeniser": {"vocabulary_size": vocabulary(size.word_types, 2000 if small else 8000)},
        "model": {
            "kind": "transformer",
            "size": "tiny",
            "pre_norm": True,
            "dropout": 0.2 if small else 0.1,
        },
        "training": {
            "max_steps": steps,
            "batch_tokens": batch_tokens,
            "learning_rate": 2e-3,
            "warmup_steps": min(1000, max(100, steps // 10)),
            "validate_every": every,
            "checkpoint_every": every,
            "patience": 10,
        },
    }
