"""The training task: the cross-entropy of the summaries of each text.

Shapes: A texts, B summaries of a batch, S source tokens, T target tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.column_batch import ColumnBatch
from heedful.data.store import Store
from heedful.evaluation.rouge import mean_rouge, rouge_values
from heedful.inference.inference_mode import ready
from heedful.models import Source
from heedful.models.copy_mixture import CopyingModel, listed
from heedful.tasks.summary.examples import Summarised
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss, Sample, Validation


class Targets(NamedTuple):
    """The summaries of a batch."""

    owners: Tensor
    """The text of each summary, ``[B]``."""
    target_in: Tensor
    """BEGIN and the tokens, ``[B, T]``."""
    labels: Tensor
    """The tokens and END, ``[B, T]``."""


def targets_of(batch: ColumnBatch) -> Targets:
    """All summaries of a batch, one after the other."""
    tokens = batch["targets"].padded(PAD).long()  # [A, N, T - 1]
    found = (tokens != PAD).any(2)
    owners, texts = found.nonzero()[:, 0], tokens[found]
    lengths = (texts != PAD).sum(1, keepdim=True)
    edge = texts.new_full((len(texts), 1), PAD)
    labels = torch.cat([texts, edge], 1).scatter(1, lengths, END)
    return Targets(owners, torch.cat([edge + BEGIN - PAD, texts], 1), labels)


def source_of(batch: ColumnBatch, model: Any, vocabulary: int) -> Source:
    """The texts of a batch, each with END; a model that does not copy reads unknown words as such.

    Args:
        batch: has the column ``source``.
        model: reads it.
        vocabulary: V, the size of the vocabulary without extensions.
    """
    tokens, lengths = batch["source"].padded(PAD).long(), batch["source"].lengths
    edge = tokens.new_full((len(tokens), 1), PAD)
    tokens = torch.cat([tokens, edge], 1).scatter(1, lengths.unsqueeze(1), END)
    return Source(readable(tokens, model, vocabulary), lengths + 1)


def readable(tokens: Tensor, model: Any, vocabulary: int) -> Tensor:
    """The tokens that a model knows: those of the extension only if it copies."""
    return tokens if isinstance(model, CopyingModel) else listed(tokens, vocabulary)


def check_coverage(model: Any, settings: Any) -> None:
    """Check that a model has the coverage loss that ``[training]`` asks for.

    Raises:
        UserError: it has none.
    """
    if settings.coverage and not hasattr(model, "covered_losses"):
        raise UserError(
            "training.coverage needs a model that copies, or model.kind = 'pointer-generator'; "
            "set it to 0"
        )


class SummaryTask(ColumnTask):
    """Trains a model that summarises.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        stores: training data, and validation data or None.
        vocabulary: V.
        examples: the validation examples that are summarised.
        summarise: writes the summaries of texts.
        how: ``device`` and ``precision``.

    Raises:
        UserError: the recipe asks for a coverage loss, and the model has none.
    """

    by = ("source",)

    def __init__(
        self,
        model: Any,
        settings: Any,
        stores: tuple[Store, Store | None],
        *,
        vocabulary: int,
        examples: Sequence[Summarised],
        summarise: Callable[[Sequence[Summarised]], list[str]],
        **how: Any,
    ) -> None:
        super().__init__(model, stores[0], stores[1], settings.batch_tokens, **how)
        self.model: Any = model
        self.settings, self.vocabulary = settings, vocabulary
        self.examples, self.summarise = examples, summarise
        check_coverage(model, settings)

    def weight_of(self, batch: ColumnBatch) -> int:
        """The number of target tokens, END included."""
        return max(1, int((targets_of(batch).labels != PAD).sum()))

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The cross-entropy of the target tokens, and the coverage loss."""
        targets = targets_of(batch)
        training, weight = self.model.training, self.settings.coverage
        smoothing = self.settings.label_smoothing if training else 0.0
        texts = source_of(batch, self.model, self.vocabulary)
        source = Source(*(one[targets.owners] for one in texts))
        labels = self._readable(targets.labels)
        given = source, self._readable(targets.target_in), labels, labels != PAD, smoothing
        if not weight:
            total, exact = self.model.losses(*given)
            return Loss(total, {"loss": exact.sum()}, {"loss": max(1, len(exact))})
        total, exact, coverage = self.model.covered_losses(*given)
        parts = {"loss": exact.sum(), "coverage": coverage.detach()}
        count = max(1, len(exact))
        return Loss(total + weight * coverage, parts, dict.fromkeys(parts, count))

    def _readable(self, tokens: Tensor) -> Tensor:
        return readable(tokens, self.model, self.vocabulary)

    def validate(self) -> Validation:
        """``loss`` in nats a token of all summaries; ROUGE of the first texts."""
        found = super().validate()
        if not self.examples:
            return found
        with ready(self.model, self.device):
            outputs = self.summarise(self.examples)
        references = [one.targets for one in self.examples]
        shown = [
            Sample(one.source, output, one.targets[0])
            for one, output in zip(self.examples[: self.settings.samples], outputs, strict=False)
        ]
        rouge = mean_rouge(rouge_values(outputs, references))
        return Validation({**found.figures, **rouge}, shown)
