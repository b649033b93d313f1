"""Multi-task training of one model: ``Σ λ_t L_t``; each batch belongs to one task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batching import FEWEST, mix
from heedful.data.positions import SINGLE, Position, Rank
from heedful.training.protocol import Loss, Task, TaskDefaults, Validation

_CHOICES = 4096
"""Number of steps whose tasks are drawn at a time."""


class Part(NamedTuple):
    """One of several tasks."""

    task: Task
    weight: float
    """λ of its loss, which is a mean over its batch."""
    examples: int
    """The number of its training examples."""
    falling: frozenset[str] = frozenset({"loss"})
    """Validation figures for which lower is better."""


@dataclass(frozen=True)
class PartBatch:
    """A batch of one task. Its weight is 1, whatever its size."""

    name: str
    batch: Any
    after: Position
    """The position of its task after the batch."""
    weight: int = 1

    def to(self, device: torch.device) -> "PartBatch":
        """The same batch on a device."""
        return replace(self, batch=self.batch.to(device))

    def split(self, count: int, fewest: int = FEWEST) -> list["PartBatch"]:
        """The whole batch, because computing its loss advances the position of its task."""
        return [self]


class SeveralTasks(TaskDefaults):
    """Tasks that share a model, drawn with probabilities ``n_t^(1/τ) / Σ n^(1/τ)``.

    n_t is a task's number of examples. A temperature of τ = 1 keeps their proportions; with a high
    temperature, all tasks are drawn equally often.

    Args:
        model: the shared model.
        parts: the tasks by name.
        temperature: τ, at least 1.

    Raises:
        ValueError: there is no task.
    """

    def __init__(
        self, model: nn.Module, parts: Mapping[str, Part], temperature: float = 1.0
    ) -> None:
        if not parts:
            raise ValueError("there is no task")
        self._model, self.parts = model, dict(parts)
        shares = np.array([part.examples for part in parts.values()], float) ** (1 / temperature)
        self.shares = shares / shares.sum()
        self._positions: dict[str, Position] = {}

    @property
    def model(self) -> nn.Module:
        """The shared model."""
        return self._model

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, PartBatch]]:
        """Endless batches. The task of a batch is a function of the position.

        All batches of a group, which ranks share, are of the same task.
        """
        seed, epoch, index = position
        starts = {name: self._positions.get(name, Position(seed)) for name in self.parts}
        streams = {name: part.task.batches(starts[name], rank) for name, part in self.parts.items()}
        names = list(self.parts)
        while True:
            for number in self._choices(seed, index):
                name = names[number]
                index += 1
                for _ in range(rank.each):
                    after, batch = next(streams[name])
                    yield Position(seed, epoch, index), PartBatch(name, batch, after)

    def _choices(self, seed: int, index: int) -> list[int]:
        """The tasks of step ``index`` and of the following steps."""
        steps = np.arange(index, index + _CHOICES, dtype=np.uint64)
        places = mix(steps, f"task {seed}") / 2.0**64
        found: list[int] = np.searchsorted(np.cumsum(self.shares)[:-1], places, "right").tolist()
        return found

    def loss(self, batch: PartBatch) -> Loss:
        """``λ_t`` times the mean of the task's loss; its parts are prefixed by the task's name."""
        part = self.parts[batch.name]
        total, parts, weights = part.task.loss(batch.batch)
        self._positions[batch.name] = batch.after
        own = batch.batch.weight
        scaled = total * (part.weight / own)
        named = {f"{batch.name}.{name}": value for name, value in parts.items()}
        by_name = {f"{batch.name}.{name}": weights.get(name, own) for name in parts}
        return Loss(scaled, {"loss": scaled.detach(), **named}, {"loss": 1, **by_name})

    def validate(self) -> Validation:
        """The figures of each task, prefixed by its name.

        ``mean`` is the mean over tasks of their first figure for which higher is better.
        """
        figures: dict[str, float] = {}
        samples = []
        firsts = []
        for name, part in self.parts.items():
            found = part.task.validate()
            rising = [own for own in found.figures if own not in part.falling]
            firsts += [found.figures[own] for own in rising[:1]]
            figures |= {f"{name}.{figure}": value for figure, value in found.figures.items()}
            samples += found.samples[:1]
        return Validation({"mean": sum(firsts) / len(firsts), **figures} if firsts else {}, samples)

    def tensors(self) -> dict[str, Tensor]:
        """The position and the state of each task."""
        kept = {
            f"position.{name}": torch.tensor(position) for name, position in self._positions.items()
        }
        for name, part in self.parts.items():
            kept |= {f"task.{name}.{key}": value for key, value in part.task.tensors().items()}
        return kept

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        self._positions = {
            name: Position(*tensors[f"position.{name}"].tolist())
            for name in self.parts
            if f"position.{name}" in tensors
        }
        for name, part in self.parts.items():
            begin = f"task.{name}."
            part.task.load(
                {
                    key.removeprefix(begin): value
                    for key, value in tensors.items()
                    if key.startswith(begin)
                }
            )
