"""Training of language models on a stream of text, by cross-entropy of the next token.

Shapes: B windows, T tokens, N positions that are not padding, D width.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from heedful.basics.device import autocast
from heedful.basics.symbols import PAD
from heedful.data.packing import PackedBatches
from heedful.data.positions import SINGLE, Position, Rank
from heedful.data.streams import WindowBatch, WindowBatches
from heedful.decoding import SearchOptions
from heedful.inference.generator import Generator
from heedful.kernels.cross_entropy import cross_entropy
from heedful.models.language import LanguageModel
from heedful.training.distillation import Predicted, loss_of_logits, wide
from heedful.training.protocol import Loss, Sample, TaskDefaults, Validation


class LanguageTask(TaskDefaults):
    """The training task of language models.

    Args:
        model: a language model.
        train: windows of the training text, or rows of packed documents.
        validation: documents to validate on; may be empty.
        generator: computes perplexity and generates samples with ``model``.
        device: where the model is.
        label_smoothing: ε in [0, 1) of the training loss.
        precision: precision of matrix products in training; validation is in float32.
        samples: number of texts generated at validation.
        seed: seed of these texts.
    """

    def __init__(
        self,
        model: LanguageModel,
        train: WindowBatches | PackedBatches,
        validation: Sequence[str],
        generator: Generator,
        *,
        device: torch.device,
        label_smoothing: float = 0.0,
        precision: str = "float32",
        samples: int = 1,
        seed: int = 1,
    ) -> None:
        self.model: LanguageModel = model
        self.train, self.validation, self.generator = train, validation, generator
        self.device, self.label_smoothing, self.precision = device, label_smoothing, precision
        self.samples, self.seed = samples, seed

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, WindowBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: WindowBatch) -> Loss:
        """Summed cross-entropy of the next tokens; the part ``loss`` is without smoothing."""
        with autocast(self.device, self.precision):
            states = _states(self.model, batch)
            real = batch.targets != PAD
            # Most batches are windows of equal length, without padding: nothing to select.
            whole = batch.weight == batch.targets.numel()
            chosen = states.flatten(0, 1) if whole else states[real]
            labels = batch.targets.flatten() if whole else batch.targets[real]
            total, exact = next_token_loss(self.model, chosen, labels, self.label_smoothing)
        return Loss(total, {"loss": exact})

    def predict(self, model: LanguageModel, batch: WindowBatch) -> Predicted:
        """The logits of all next tokens, which are in memory as a whole."""
        with autocast(self.device, self.precision):
            real = batch.targets != PAD
            states = _states(model, batch)[real]
            logits = model.logits(states)
        return Predicted(wide(logits), batch.targets[real], states=lambda: states)

    def loss_of(self, predicted: Predicted, batch: WindowBatch) -> Loss:
        """The loss from what the model predicts; see :meth:`loss`."""
        return loss_of_logits(predicted, self.label_smoothing)

    def validate(self) -> Validation:
        """Figures over all validation text, window by window; of packed documents, one by one.

        ``loss`` (nats) and ``perplexity`` are per token; ``bits_per_byte`` is comparable between
        vocabularies.
        """
        if not self.validation:
            return Validation({}, [])
        joined = isinstance(self.train, WindowBatches)
        found = self.generator.perplexity(self.validation, stride=self.train.context, joined=joined)
        figures = {
            "loss": -found.log_probability / max(1, found.tokens),
            "perplexity": found.per_token,
            "bits_per_byte": found.bits_per_byte,
        }
        if not self.samples:
            return Validation(figures, [])
        options = SearchOptions(sample=True, nbest=self.samples, seed=self.seed)
        written = self.generator.generate("", options=options, max_tokens=self.train.context)
        return Validation(figures, [Sample("", one.text, "") for one in written])


def _states(model: LanguageModel, batch: WindowBatch) -> Tensor:
    """The states ``[B, T, D]`` of a batch."""
    if batch.documents is None:
        return model.states(batch.tokens)
    return model.packed_states(batch.tokens, batch.documents)


def next_token_loss(
    model: LanguageModel, states: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of ``states [N, D]``: with smoothing; without smoothing, detached."""
    total, exact = cross_entropy(states, model.output_table, labels, smoothing, model.output_bias)
    return total, exact.sum()
