"""Pre-training of an encoder on tokens in random orders.

    max E_z Σ_(t > c) log p(x_(z_t) | x_(z_<t))

where z is a random order of a row and the last N − c tokens are predicted. Yang et al. 2019,
"XLNet: Generalized Autoregressive Pretraining for Language Understanding", equations 3 to 5.
Shapes: B rows, L tokens, N predicted tokens of a row, D width, V vocabulary.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.device import autocast
from heedful.basics.symbols import PAD
from heedful.data.permutation import PermutedBatch, PermutedRows
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.inference_mode import ready
from heedful.models.encoders import HeadedEncoder
from heedful.models.xlnet import Predicted, XLNet
from heedful.training.protocol import Loss, TaskDefaults, Validation


class _Counted(NamedTuple):
    """Sums over one batch."""

    loss: Tensor
    """−log p of the predicted tokens."""
    right: Tensor


class PermutationTask(TaskDefaults):
    """The training task of permutation language models.

    Args:
        model: an XLNet with the head ``name``.
        train: rows of the training text.
        validation: rows to validate on, one epoch of them; None without validation.
        name: the name of the head.
        device: where the model is.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: PermutedRows,
        validation: PermutedRows | None,
        *,
        name: str = "permutation",
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation, self.name = train, validation, name
        self.device, self.precision = device, precision

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, PermutedBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: PermutedBatch) -> Loss:
        """The sum of −log p of the predicted tokens."""
        with autocast(self.device, self.precision):
            total = self._count(batch).loss
        return Loss(total, {"loss": total.detach()})

    def _count(self, batch: PermutedBatch) -> _Counted:
        encoder = cast(XLNet, self.model.encoder)
        earlier = None
        if batch.earlier is not None:
            earlier = encoder.remember(batch.earlier, batch.earlier != PAD)
        predicted = Predicted(batch.order, batch.places)
        streams = encoder.streams(batch.sequences, predicted, earlier, query_only=True)
        assert streams.query is not None
        there = batch.labels != PAD
        labels = batch.labels[there]
        logits = self.model.heads[self.name](streams.query[there]).float()
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return _Counted(loss, (logits.detach().argmax(1) == labels).sum())

    def validate(self) -> Validation:
        """Figures of one epoch of the validation rows, with fixed orders.

        ``loss`` (nats) and ``accuracy`` are of the predicted tokens, ``majority`` is the accuracy
        of always predicting the most frequent token. ``left_to_right_loss`` and its perplexity are
        those of all tokens, each predicted from the tokens before it.
        """
        if self.validation is None:
            return Validation({}, [])
        sums = torch.zeros(3, dtype=torch.float64)
        tokens, all_tokens, labels = 0, 0, []
        with ready(self.model, self.device, "float32"):
            for after, batch in self.validation.batches(Position(0)):
                found = self._count(batch.to(self.device))
                whole = batch.left_to_right()
                in_order = self._count(whole.to(self.device)).loss
                sums += torch.stack([each.double().cpu() for each in (*found, in_order)])
                tokens, all_tokens = tokens + batch.weight, all_tokens + whole.weight
                labels.append(batch.labels[batch.labels != PAD])
                if after.epoch:
                    break
        loss, right, in_order_loss = sums.tolist()
        found_labels = torch.cat(labels)
        majority = int(found_labels.bincount().max()) if len(found_labels) else 0
        per_token = in_order_loss / max(1, all_tokens)
        figures = {
            "loss": loss / max(1, tokens),
            "accuracy": right / max(1, tokens),
            "majority": majority / max(1, tokens),
            "left_to_right_loss": per_token,
            "left_to_right_perplexity": math.exp(min(per_token, 700.0)),
        }
        return Validation(figures, [])
