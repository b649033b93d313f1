"""The recipe for labelled images, when none is given."""

from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.image_classification.examples import ImageFiles

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_PASSES = 30
_BATCH_ROWS = 64
_SIDE = 32


def choose(
    paths: list[str], *, encoding: str | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """Choose a recipe for labelled images; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    from heedful.data.readers.images import image_files
    from heedful.runs.recipe import find_data

    refuse_pipe(paths, _PIPE)
    files = ImageFiles(train=paths, size=(4, 4))
    found = find_data(paths, folder, files_of=image_files)
    count = sum(1 for _ in files.read(found, encoding))
    if not count:
        raise UserError(f"{', '.join(paths)}: no images to train on")
    steps = max(200, _PASSES * count // _BATCH_ROWS)
    return {
        "task": "image-classification",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding),
            "size": [_SIDE, _SIDE],
            "colours": "rgb",
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "model": {"kind": "convolutional", "channels": 32, "kernel_size": 5, "dropout": 0.2},
        "training": {
            "max_steps": steps,
            "batch_tokens": _BATCH_ROWS * (_SIDE * _SIDE * 3 + 1),
            "learning_rate": 0.001,
            "schedule": "linear",
            "warmup_steps": min(100, steps // 10),
            "precision": "float32",
            "choose_by": "accuracy",
            "validate_every": max(50, steps // 20),
            "checkpoint_every": max(50, steps // 20),
        },
    }
