"""Pre-training of an encoder as a discriminator: which tokens did a generator replace?

    min Σ_x  L_MLM(x, θ_G) + λ · L_Disc(x, θ_D)

Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
section 2. The generator learns to predict masked tokens. The discriminator reads the text with
tokens that were drawn from the generator's probabilities in their places; a drawn token that is the
original one counts as original. No gradient passes through the draw.
Shapes: B rows, L tokens, M masked tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.device import autocast
from heedful.data.masking import MaskedBatch, SentencePairs
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.inference_mode import ready
from heedful.models.electra import ReplacedTokens, sample
from heedful.models.encoders import HeadedEncoder
from heedful.training.protocol import Loss, TaskDefaults, Validation


class _Counted(NamedTuple):
    """Sums over one batch."""

    masked: Tensor
    """−log p_G of the masked tokens."""
    detected: Tensor
    """Binary cross-entropy of all tokens."""
    masked_right: Tensor
    """Masked tokens whose most probable token is the original one."""
    replaced: Tensor
    """Tokens that differ from the original ones."""
    called: Tensor
    """Tokens that the discriminator calls replaced (D below 0.5)."""
    found: Tensor
    """Tokens that are both."""


class ReplacedTask(TaskDefaults):
    """The training task of a discriminator and its generator.

    Args:
        model: an encoder with a :class:`ReplacedTokens` as the head ``name``.
        train: rows of the training text, made with ``replaced=True``.
        validation: rows to validate on, one epoch of them; None without validation.
        name: the name of the head.
        weight: λ of the discriminator's loss.
        device: where the model is.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: SentencePairs,
        validation: SentencePairs | None,
        *,
        name: str = "replaced",
        weight: float = 50.0,
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation, self.name, self.weight = train, validation, name, weight
        self.device, self.precision = device, precision

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, MaskedBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: MaskedBatch) -> Loss:
        """The generator's mean over masked tokens plus λ times the discriminator's mean over all
        tokens, times the number of rows.

        The parts ``masked`` and ``replaced`` are sums over masked tokens and over all tokens.
        """
        with autocast(self.device, self.precision):
            found = self._count(batch)
        hidden, tokens, rows = max(1, len(batch.labels)), batch.tokens, batch.weight
        total = found.masked * (rows / hidden) + found.detected * (self.weight * rows / tokens)
        parts = {
            "loss": total.detach(),
            "masked": found.masked.detach(),
            "replaced": found.detected.detach(),
        }
        return Loss(total, parts, {"masked": hidden, "replaced": tokens})

    def _count(self, batch: MaskedBatch) -> _Counted:
        head = cast(ReplacedTokens, self.model.heads[self.name])
        generator, row, column = head.generator, batch.places[:, 0], batch.places[:, 1]
        states = generator(batch.sequences).states
        logits = generator.head(states[row, column]).float()  # [M, V]
        masked = F.cross_entropy(logits, batch.labels, reduction="sum")
        masked_right = (logits.argmax(1) == batch.labels).sum()

        if batch.draws is None:
            raise TypeError("rows without draws; make them with replaced=True")
        drawn = sample(logits, batch.draws)
        tokens = batch.sequences.tokens.clone()
        tokens[row, column] = drawn
        replaced = torch.zeros_like(tokens, dtype=torch.bool)
        replaced[row, column] = drawn != batch.labels

        encoded = self.model.encoder(batch.sequences._replace(tokens=tokens))
        scores = head.detector(encoded.states).float()  # [B, L]
        lengths, places = batch.sequences.lengths, torch.arange(tokens.shape[1])
        real = places.to(lengths.device) < lengths[:, None]
        each = F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="none")
        called = (scores > 0) & real
        return _Counted(
            masked,
            each.masked_fill(~real, 0.0).sum(),
            masked_right,
            replaced.sum(),
            called.sum(),
            (called & replaced).sum(),
        )

    def validate(self) -> Validation:
        """Losses and accuracies of the generator and the discriminator.

        ``masked_majority`` and ``replaced_majority`` are the accuracies of always predicting the
        most frequent token, and of never calling a token replaced; ``replaced_f1`` is that of
        replaced tokens. ``loss`` is that of training.
        """
        if self.validation is None:
            return Validation({}, [])
        sums = torch.zeros(len(_Counted._fields), dtype=torch.float64)
        hidden = tokens = 0
        labels: list[Tensor] = []
        with ready(self.model, self.device, "float32"):
            for after, batch in self.validation.batches(Position(0)):
                found = self._count(batch.to(self.device))
                sums += torch.stack([each.cpu().double() for each in found])
                hidden, tokens = hidden + len(batch.labels), tokens + batch.tokens
                labels.append(batch.labels)
                if after.epoch:
                    break
        masked, detected, masked_right, replaced, called, both = sums.tolist()
        hidden, tokens = max(1, hidden), max(1, tokens)
        right = tokens - replaced - called + 2 * both
        counts = torch.cat(labels).bincount()
        figures = {
            "loss": masked / hidden + self.weight * detected / tokens,
            "masked_loss": masked / hidden,
            "masked_accuracy": masked_right / hidden,
            "masked_majority": float(counts.max()) / hidden if len(counts) else 0.0,
            "replaced_loss": detected / tokens,
            "replaced_accuracy": right / tokens,
            "replaced_majority": max(replaced, tokens - replaced) / tokens,
            "replaced_f1": 2 * both / (replaced + called) if replaced + called else 0.0,
        }
        return Validation(figures, [])
