"""The training task: the cross-entropy of the answers, and of the facts that are read.

Shapes: B questions, N facts, K hops, C answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import PAD
from heedful.data.batching import FEWEST
from heedful.data.column_batch import ColumnBatch
from heedful.data.positions import SINGLE, Position, Rank
from heedful.data.store import Store
from heedful.models import StoryOutput
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss

_NOTHING = -1
"""The target of a hop that no supporting fact belongs to."""


@dataclass(frozen=True)
class StoryBatch(ColumnBatch):
    """Questions, and whether they are answered without the normalizer."""

    linear: bool = False

    def to(self, device: torch.device | str) -> "StoryBatch":
        """The same batch on ``device``."""
        moved = super().to(device)
        return StoryBatch(moved.columns, moved.weight, self.linear)


def read_batch(model: Any, batch: ColumnBatch, *, linear: bool = False) -> StoryOutput:
    """What a model finds for a batch."""
    found: StoryOutput = model(
        batch["story"].padded(PAD), batch["question"].padded(PAD), linear=linear
    )
    return found


def hop_targets(supports: Tensor, hops: int, can_stop: bool) -> Tensor:
    """The column of the scores that each hop must choose.

    Args:
        supports: numbers of the supporting facts from 1, padded with 0, ``[B, S]``.
        hops: K; further supports have no hop.
        can_stop: whether the first column stands for "no further fact".

    Returns:
        ``[B, K]``, −1 for no target. Questions without supports have none.

    Example:
        >>> hop_targets(torch.tensor([[4, 2], [1, 0], [0, 0]]), 3, can_stop=True)
        tensor([[ 4,  2,  0],
                [ 1,  0,  0],
                [-1, -1, -1]])
        >>> hop_targets(torch.tensor([[4, 2]]), 3, can_stop=False)
        tensor([[ 3,  1, -1]])
    """
    found = F.pad(supports[:, :hops], (0, max(0, hops - supports.shape[1])))
    if not can_stop:
        return found - 1
    unknown = (found == 0).all(1, keepdim=True)
    return found.masked_fill(unknown, _NOTHING)


class AnswerTask(ColumnTask):
    """Trains a model that answers questions about stories.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        answers: number of answers C; the label C stands for an answer that training has not.
        stores: training data, and validation data or None.
        how: ``device`` and ``precision``.
    """

    by = ("story", "question")

    def __init__(
        self,
        model: Any,
        settings: Any,
        answers: int,
        stores: tuple[Store, Store | None],
        **how: Any,
    ) -> None:
        tokens, rows = settings.batch_tokens, settings.batch_rows
        super().__init__(model, stores[0], stores[1], tokens, batch_rows=rows, **how)
        self.settings, self.answers = settings, answers

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, StoryBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        epoch = position.epoch
        for after, batch in super().batches(position, rank):
            linear = epoch < self.settings.linear_start
            yield after, StoryBatch(batch.columns, batch.weight, linear)
            epoch = after.epoch

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The batch alone: the noise in the ages of facts is drawn in the order of the rows."""
        return [batch]

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The cross-entropy of the answers, and that of the facts times ``supervision``."""
        linear = isinstance(batch, StoryBatch) and batch.linear
        found = read_batch(self.model, batch, linear=linear)
        answers, logits = batch["answer"].values, found.logits.float()
        total = F.cross_entropy(logits, answers, ignore_index=self.answers, reduction="sum")
        parts = {"loss": total.detach(), "accuracy": (logits.argmax(1) == answers).sum()}
        if self.settings.supervision and found.scores is not None:
            facts = self._facts_loss(found.scores.float(), batch["supports"].padded(0))
            parts["facts"] = facts.detach()
            total = total + self.settings.supervision * facts
        return Loss(total, parts)

    def _facts_loss(self, scores: Tensor, supports: Tensor) -> Tensor:
        targets = hop_targets(supports, scores.shape[1], bool(self.model.can_stop))
        return F.cross_entropy(
            scores.flatten(0, 1), targets.flatten(), ignore_index=_NOTHING, reduction="sum"
        )
