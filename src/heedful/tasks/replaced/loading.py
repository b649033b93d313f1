"""Loads the detector of a run."""

from pathlib import Path

from heedful.tasks.replaced.predictor import DetectReplaced
from heedful.tasks.texts.loading import load_reader


def load_detector(
    path: str | Path,
    *,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> DetectReplaced:
    """The detector of replaced tokens of a run.

    The arguments are those of :func:`heedful.tasks.texts.loading.load_classifier`.

    Raises:
        UserError: the folder is not a run of replaced-token detection.
    """
    return load_reader(DetectReplaced, "replaced", path, head, device, precision, checkpoint)
