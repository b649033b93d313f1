"""The recipe for recordings with texts, when none is given."""

from pathlib import Path
from typing import Any

from heedful.tasks.default_recipe import data_table, refuse_pipe
from heedful.tasks.sound_input import rate_and_seconds
from heedful.tasks.transcription.examples import SpokenFiles

_PIPE = "a recipe is chosen after the data are read, which cannot be done with standard input"
_PASSES = 60
_BATCHES = 200
"""Of a pass, unless batches would have fewer or more frames than _BATCH_FRAMES."""
_BATCH_FRAMES = (3_000, 16_000)
"""Small batches need fewer passes over few recordings; docs/transcription.md, "Measured"."""
_HIGHEST = 16_000
"""Samples per second; speech needs no more."""
_LONGEST = 30.0
_SILENCE = 0.0
"""Seconds that stay at both ends: users of a microphone do not begin and end as clips do. Where 0.2
seconds stayed, digital silence that was not in the clips still caused errors."""


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
    files = SpokenFiles(train=paths, sounds=sounds or "")
    found = files.read(find_data(paths, folder), encoding)
    rate, seconds = rate_and_seconds(found, _HIGHEST, ", ".join(paths))
    return {
        "task": "transcription",
        "seed": 1,
        "data": {
            **data_table(paths, encoding=encoding, sounds=sounds),
            "features": {"rate": rate, "bands": 40 if rate < _HIGHEST else 80},
            "longest": _LONGEST,
            "trim": _SILENCE,
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "model": {
            "kind": "recurrent",
            "attention": {"score": "location-aware"},
            "outputs": "both",
            "encoder_size": 192,
            "encoder_layers": 3,
            "pyramid_layers": 2,
            "embedding_size": 64,
            "hidden_size": 192,
            "dropout": 0.2,
        },
        "training": _training(seconds),
    }


def _training(seconds: float) -> dict[str, Any]:
    """The settings of the training, for so many seconds of sound."""
    frames = round(seconds * 100)
    batch = max(_BATCH_FRAMES[0], min(_BATCH_FRAMES[1], frames // _BATCHES))
    steps = max(300, min(20_000, _PASSES * frames // batch))
    every = max(50, steps // 20)
    return {
        "max_steps": steps,
        "batch_tokens": batch,
        "learning_rate": 0.001,
        "schedule": "linear",
        "warmup_steps": min(200, steps // 10),
        "precision": "float32",
        "choose_by": "character_error",
        "masks": {},
        "validate_every": every,
        "checkpoint_every": every,
    }
