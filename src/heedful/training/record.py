"""The training record: ``metrics.jsonl``, ``samples.jsonl``, and TensorBoard if enabled."""

import json
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, cannot_write, open_to_append
from heedful.training.protocol import Sample


class Record:
    """Appends figures to a run's files; each step is recorded once, even after interruptions."""

    def __init__(self, folder: Path, step: int, tensorboard: bool) -> None:
        self.metrics, self.samples = folder / "metrics.jsonl", folder / "samples.jsonl"
        for path in (self.metrics, self.samples):
            _truncate(path, step)
        self._events = _events(folder, step) if tensorboard else None

    def figures(self, kind: str, step: int, figures: dict[str, float | int]) -> None:
        """Write one line of figures: ``kind`` is ``train`` or ``validation``."""
        _append(self.metrics, {"kind": kind, "step": step, **figures})
        if self._events:
            for name, value in figures.items():
                self._events.add_scalar(f"{kind}/{name}", value, step)
            self._events.flush()

    def show(self, step: int, samples: list[Sample]) -> None:
        """Write the samples of a validation."""
        for sample in samples:
            _append(self.samples, {"step": step, **sample._asdict()})


def create_folder(path: Path) -> Path:
    """Create a folder if it does not exist, and return it.

    Raises:
        UserError: the folder cannot be created.
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


def _truncate(path: Path, step: int) -> None:
    """Delete the records after ``step``: training repeats the steps after a checkpoint."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    kept = []
    for line in lines[:-1]:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            break  # a crash truncated this line; ignore the rest
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
