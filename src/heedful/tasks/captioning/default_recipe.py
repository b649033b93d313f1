"""The recipe for images with captions, when none is given."""

from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.tasks.captioning.examples import CaptionFiles
from heedful.tasks.default_recipe import data_table, refuse_pipe

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_PASSES = 20
_BATCH_ROWS = 32
_SIDE = 96
_SMALL = 2000
"""With fewer captions, every word is in the vocabulary."""


def choose(
    paths: list[str],
    *,
    images: str | None = None,
    encoding: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for images with captions; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    from heedful.runs.recipe import find_data

    refuse_pipe(paths, _PIPE)
    files = CaptionFiles(train=paths, size=(4, 4), images=images or "")
    found = [len(one.captions) for one in files.read(find_data(paths, folder), encoding)]
    if not found:
        raise UserError(f"{', '.join(paths)}: no captions to train on")
    steps = max(200, _PASSES * len(found) // _BATCH_ROWS)
    every = max(50, steps // 20)
    return {
        "task": "captioning",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding, images=images),
            "size": [_SIDE, _SIDE],
            "colours": "rgb",
            "minimum_count": 1 if sum(found) < _SMALL else 3,
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "model": {
            "kind": "recurrent",
            "embedding_size": 128,
            "hidden_size": 256,
            "context_gate": True,
            "dropout": 0.3,
        },
        "training": {
            "max_steps": steps,
            "batch_tokens": _BATCH_ROWS * (_SIDE * _SIDE * 3 + 1),
            "learning_rate": 0.001,
            "schedule": "linear",
            "warmup_steps": min(100, steps // 10),
            "precision": "float32",
            "choose_by": "bleu",
            "validate_every": every,
            "checkpoint_every": every,
        },
    }
