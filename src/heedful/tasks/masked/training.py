"""Pre-training of an encoder: masked tokens, and how the two segments of a pair are related.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", section 3.1: whether the second segment follows the first. Lan et al. 2020, "ALBERT:
A Lite BERT for Self-supervised Learning of Language Representations", section 3.1: which of two
consecutive segments comes first.
Shapes: B rows, L tokens, M masked tokens, D width, V vocabulary.
"""

from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.device import autocast
from heedful.data.masking import MaskedBatch, SentencePairs
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.inference_mode import ready
from heedful.models.encoders import Encoded, HeadedEncoder
from heedful.training.distillation import Predicted, inside, wide
from heedful.training.protocol import Loss, TaskDefaults, Validation


class _Counted(NamedTuple):
    """Sums over one batch."""

    masked: Tensor
    """−log p of the masked tokens."""
    following: Tensor
    """−log p of the relation of segments; 0 without that task."""
    masked_right: Tensor
    following_right: Tensor


Pairs = Literal["next", "order"]
"""What is predicted of pairs of segments, also the beginning of the names of figures."""
_PART: dict[Pairs, str] = {"next": "next_sentence", "order": "sentence_order"}


class MaskedTask(TaskDefaults):
    """The training task of masked language models, with or without predictions about pairs.

    Args:
        model: an encoder with the heads ``name`` and, for pairs of segments, ``name_next``.
        train: pairs of segments of the training text.
        validation: pairs of segments to validate on, one epoch of them; None without validation.
        name: the name of the head.
        pairs: what is predicted of pairs of segments, if the model has the head for them.
        device: where the model is.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: SentencePairs,
        validation: SentencePairs | None,
        *,
        name: str = "masked",
        pairs: Pairs = "next",
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation, self.name, self.pairs = train, validation, name, pairs
        self.device, self.precision = device, precision

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, MaskedBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: MaskedBatch) -> Loss:
        """The mean over masked tokens plus the mean over pairs, times the number of pairs.

        The parts ``masked`` and ``next_sentence``, or ``sentence_order``, are sums over masked
        tokens and over pairs.
        """
        return self.loss_of(self.predict(self.model, batch), batch)

    def predict(self, model: HeadedEncoder, batch: MaskedBatch) -> Predicted:
        """The logits of the masked tokens; ``more`` are those of whether segments follow."""
        with autocast(self.device, self.precision):
            return self._predict(model, batch)

    def _predict(self, model: HeadedEncoder, batch: MaskedBatch) -> Predicted:
        """As :meth:`predict`, in the model's own precision."""
        encoded = _encoded(model, batch)
        if encoded.states is None:
            raise TypeError("hidden tokens are predicted from token vectors")
        chosen = encoded.states[batch.places[:, 0], batch.places[:, 1]]  # [M, D]
        logits = model.heads[self.name](chosen)
        follows = None
        if batch.next_labels is not None and f"{self.name}_next" in model.heads:
            follows = model.heads[f"{self.name}_next"](encoded)  # [B, 2]
        states = partial(inside, encoded.states, batch.sequences.lengths)
        share = batch.weight / max(1, len(batch.labels))
        return Predicted(wide(logits), batch.labels, share, states, follows)

    def loss_of(self, predicted: Predicted, batch: MaskedBatch) -> Loss:
        """The loss from what the model predicts; see :meth:`loss`."""
        found = self._counted(predicted, batch)
        hidden, rows, pairs = max(1, len(batch.labels)), batch.weight, self._decided(batch)
        total = found.masked * (rows / hidden) + found.following * (rows / max(1, pairs))
        parts = {"loss": total.detach(), "masked": found.masked.detach()}
        weights: dict[str, float] = {"masked": hidden}
        if self._follows:
            name = _PART[self.pairs]
            parts[name] = found.following.detach()
            weights |= {} if pairs == rows else {name: pairs}
        return Loss(total, parts, weights)

    @property
    def _follows(self) -> bool:
        return f"{self.name}_next" in self.model.heads

    def _decided(self, batch: MaskedBatch) -> int:
        """The number of rows with two segments; all rows, if none is a pair."""
        if self.pairs == "next" or batch.next_labels is None:
            return batch.weight
        return int((batch.next_labels >= 0).sum())

    def _counted(self, predicted: Predicted, batch: MaskedBatch) -> _Counted:
        logits = predicted.logits
        masked = F.cross_entropy(logits, batch.labels, reduction="sum")
        right = (logits.argmax(1) == batch.labels).sum()
        if predicted.more is None or batch.next_labels is None:
            nothing = torch.zeros((), device=logits.device)
            return _Counted(masked, nothing, right, nothing)
        follows = wide(predicted.more)
        following = F.cross_entropy(follows, batch.next_labels, ignore_index=-1, reduction="sum")
        follows_right = (follows.argmax(1) == batch.next_labels).sum()
        return _Counted(masked, following, right, follows_right)

    def validate(self) -> Validation:
        """Losses, accuracies, and the accuracies of always predicting the most frequent label.

        ``loss`` is the sum of both losses.
        """
        if self.validation is None:
            return Validation({}, [])
        sums = torch.zeros(4, dtype=torch.float64)
        hidden = rows = 0
        labels: list[Tensor] = []
        follows: list[Tensor] = []
        with ready(self.model, self.device, "float32"):
            for after, batch in self.validation.batches(Position(0)):
                own = batch.to(self.device)
                found = self._counted(self._predict(self.model, own), own)
                sums += torch.stack([each.double().cpu() for each in found])
                hidden, rows = hidden + len(batch.labels), rows + self._decided(batch)
                labels.append(batch.labels)
                if batch.next_labels is not None:
                    follows.append(batch.next_labels[batch.next_labels >= 0])
                if after.epoch:
                    break
        masked, following, right, follows_right = sums.tolist()
        hidden, rows = max(1, hidden), max(1, rows)
        figures = {
            "loss": masked / hidden + following / rows,
            "masked_loss": masked / hidden,
            "masked_accuracy": right / hidden,
            "masked_majority": _majority(labels),
        }
        if self._follows:
            figures |= {
                f"{self.pairs}_loss": following / rows,
                f"{self.pairs}_accuracy": follows_right / rows,
                f"{self.pairs}_majority": _majority(follows),
            }
        return Validation(figures, [])


def _encoded(model: HeadedEncoder, batch: MaskedBatch) -> Encoded:
    if batch.documents is None:
        found: Encoded = model.encoder(batch.sequences)
        return found
    return Encoded(model.encoder.packed_states(batch.sequences.tokens, batch.documents), None)


def _majority(labels: list[Tensor]) -> float:
    """The share of the most frequent label."""
    joined = torch.cat(labels)
    return float(joined.bincount().max()) / max(1, len(joined)) if len(joined) else 0.0
