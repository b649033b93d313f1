"""The recipe for a corpus of stories, when none is given."""

from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.tasks.answer.examples import StoryFiles
from heedful.tasks.default_recipe import data_table, refuse_pipe

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_PASSES = 40
_BATCH_ROWS = 32


def choose(
    paths: list[str], *, encoding: str | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """Choose a recipe for files of stories; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    from heedful.runs.recipe import find_data

    refuse_pipe(paths, _PIPE)
    count = longest = values = 0
    supported = False
    for one in StoryFiles(train=paths).read(find_data(paths, folder), encoding):
        count += 1
        words = max(len(fact.split()) for fact in one.story) + 2
        longest, values = max(longest, len(one.story)), values + len(one.story) * words
        supported = supported or bool(one.supports)
    if not count:
        raise UserError(f"{', '.join(paths)}: no questions to train on")
    steps = max(200, _PASSES * count // _BATCH_ROWS)
    return {
        "task": "answer",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding),
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "model": {
            "kind": "memory-network",
            "memory": max(8, longest),
            "hops": 3,
            "can_stop": supported,
        },
        "training": {
            "max_steps": steps,
            "batch_tokens": _BATCH_ROWS * max(16, values // count),
            "learning_rate": 0.003,
            "schedule": "linear",
            "warmup_steps": min(100, steps // 10),
            "clip_norm": 40.0,
            "precision": "float32",
            "choose_by": "accuracy",
            "supervision": 1.0 if supported else 0.0,
            "validate_every": max(50, steps // 20),
            "checkpoint_every": max(50, steps // 20),
        },
    }
