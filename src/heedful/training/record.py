"""The record of a training: ``metrics.jsonl``, ``samples.jsonl``, and TensorBoard if wanted."""

import json
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, cannot_write, open_to_append
from heedful.training.protocol import Sample


class Record:
    """Appends figures to a run's files; each step stands there once, whatever was interrupted."""

    def __init__(self, folder: Path, step: int, tensorboard: bool) -> None:
        self.metrics, self.samples = folder / "metrics.jsonl", folder / "samples.jsonl"
        for path in (self.metrics, self.samples):
            _cut_back(path, step)
        self._events = _events(folder, step) if tensorboard else None

    def figures(self, kind: str, step: int, figures: dict[str, float | int]) -> None:
        """Write one line of figures: ``kind`` is ``train`` or ``validation``."""
        _append(self.metrics, {"kind": kind, "step": step, **figures})
        if self._events:
            for name, value in figures.items():
                self._events.add_scalar(f"{kind}/{name}", value, step)
            self._events.flush()

    def show(self, step: int, samples: list[Sample]) -> None:
        """Write a validation's samples."""
        for sample in samples:
            _append(self.samples, {"step": step, **sample._asdict()})


def made_folder(path: Path) -> Path:
    """The folder, made if it does not exist.

    Raises:
        UserError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the run's folder {path}: {error.strerror}; choose another place"
        ) from error
    return path


def _append(path: Path, values: dict[str, Any]) -> None:
    try:
        with open_to_append(path) as file:
            file.write((json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8"))
    except OSError as error:
        raise cannot_write(path, error) from error


def _cut_back(path: Path, step: int) -> None:
    """Leave the whole lines up to ``step``: what came after the checkpoint will come again."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    kept = []
    for line in lines[:-1]:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            break  # torn by a crash, as all after it
    with atomic_file(path) as file:
        file.writelines(line + b"\n" for line in kept)


def _events(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "training.tensorboard needs TensorBoard: pip install 'heedful[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
