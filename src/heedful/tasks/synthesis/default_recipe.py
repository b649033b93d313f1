"""The recipe for recordings of a voice with texts, when none is given."""

from pathlib import Path
from typing import Any

from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.sound_input import rate_and_seconds
from heedful.tasks.synthesis.examples import SpeechFiles

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_PASSES = 100
_BATCH_FRAMES = 3_000
_HIGHEST = 16_000
"""Samples per second."""
_FRAMES = 80
"""Per second."""


def choose(
    paths: list[str],
    *,
    sounds: str | None = None,
    encoding: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for recordings with texts; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    from heedful.runs.recipe import find_data

    refuse_pipe(paths, _PIPE)
    files = SpeechFiles(train=paths, sounds=sounds or "")
    found = files.read(find_data(paths, folder), encoding)
    rate, seconds = rate_and_seconds(found, _HIGHEST, ", ".join(paths))
    steps = max(2_000, min(40_000, round(_PASSES * seconds * _FRAMES / _BATCH_FRAMES)))
    every = max(100, steps // 20)
    return {
        "task": "synthesis",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding, sounds=sounds),
            "features": {"rate": rate, "bands": 80 if rate == _HIGHEST else 60},
            "validation_share": 0.05,
            "test_share": 0.05,
        },
        "model": {"kind": "recurrent", "convolution_dropout": 0.1},
        "training": {
            "max_steps": steps,
            "batch_tokens": _BATCH_FRAMES,
            "learning_rate": 0.001,
            "schedule": "linear",
            "warmup_steps": min(400, steps // 10),
            "precision": "float32",
            "validate_every": every,
            "checkpoint_every": every,
        },
    }
