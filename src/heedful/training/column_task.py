"""A task of the training loop whose data are stores of columns."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from heedful.basics.device import autocast
from heedful.data.batching import FEWEST, POOL, StoreBatches
from heedful.data.column_batch import ColumnBatch
from heedful.data.positions import SINGLE, Position, Rank
from heedful.data.store import Store
from heedful.inference.inference_mode import ready
from heedful.training.protocol import Loss, TaskDefaults, Validation
from heedful.training.shared_validation import over_processes


class ColumnTask(TaskDefaults):
    """Base of tasks whose batches are columns; subclasses compute the loss of a batch.

    Args:
        model: the model to train, on ``device``.
        train: the training examples.
        held_out: the validation examples; None for no validation.
        batch_tokens: maximum of rows × longest row of a batch.
        batch_rows: number of rows of a training batch, whatever their lengths; None for rows of
            similar lengths, limited by ``batch_tokens``.
        device: the device to compute on.
        precision: of matrix products in training; validation uses float32.
    """

    by: tuple[str, ...]
    """One or two columns whose lengths count towards ``batch_tokens``."""

    def __init__(
        self,
        model: nn.Module,
        train: Store,
        held_out: Store | None,
        batch_tokens: int,
        *,
        batch_rows: int | None = None,
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        self.model, self.device, self.precision = model, device, precision
        # A pool that fits in one batch is not divided by length.
        most, pool = (batch_tokens, POOL) if batch_rows is None else (sys.maxsize, batch_rows)
        self.train = StoreBatches(train, most, ColumnBatch.of, by=self.by, pool=pool)
        self.held_out: StoreBatches[ColumnBatch] | None = None
        if held_out is not None:
            self.held_out = StoreBatches(held_out, batch_tokens, ColumnBatch.of, by=self.by)

    def weight_of(self, batch: ColumnBatch) -> int:
        """What the losses of a batch are summed over; by default, the number of its rows."""
        return batch.weight

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The loss of a batch: ``total`` and ``parts`` are sums over its rows.

        ``validate`` reports the mean of each part. A part may therefore also be the number of rows
        that were predicted correctly.
        """
        raise NotImplementedError

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, ColumnBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        for after, batch in self.train.batches(position, rank):
            yield after, replace(batch, weight=self.weight_of(batch))

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The rows in parts."""
        parts = batch.split(count, fewest)
        return [replace(one, weight=self.weight_of(one)) for one in parts]

    def loss(self, batch: ColumnBatch) -> Loss:
        """The loss of a batch, with matrix products in ``precision``."""
        with autocast(self.device, self.precision):
            return self.batch_loss(batch)

    def validate(self) -> Validation:
        """The mean of each part of the loss over the held-out examples."""
        if self.held_out is None:
            return Validation({}, [])
        sums: dict[str, float] = {}
        weights: dict[str, float] = {}
        with ready(self.model, self.device):
            for found in over_processes(self._parts, self.held_out.once()):
                for name, (part, weight) in found.items():
                    sums[name] = sums.get(name, 0.0) + part
                    weights[name] = weights.get(name, 0.0) + weight
        return Validation({name: sums[name] / weights[name] for name in sums}, [])

    def _parts(self, batch: ColumnBatch) -> dict[str, tuple[float, float]]:
        """The parts of the loss of a batch, each with its weight."""
        loss = self.batch_loss(batch.to(self.device))
        return {
            name: (float(part), loss.weights.get(name, batch.weight))
            for name, part in loss.parts.items()
        }
