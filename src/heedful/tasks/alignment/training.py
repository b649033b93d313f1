"""Training on pairs of texts by the likelihood of the target, summed over all alignments.

Shapes: B batch, T target tokens.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.device import autocast
from heedful.data.batching import FEWEST, Batch, TokenBatches
from heedful.data.examples import Pair
from heedful.data.positions import SINGLE, Position, Rank
from heedful.evaluation.metrics import perplexity
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.translator import Translator
from heedful.models.aligner import WordAligner
from heedful.models.pairs import Source
from heedful.tasks.pairs.terms import (
    TeacherForced,
    Term,
    load_terms,
    modules_of,
    tensors_of,
    with_terms,
)
from heedful.training.protocol import Loss, Validation


class AlignmentTask:
    """The training task of word aligners.

    Args:
        model: a word aligner.
        train: batches of the training corpus.
        validation: pairs to validate on; may be empty.
        translator: encodes and batches the validation pairs.
        device: where the model is.
        terms: additional losses on attention weights.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: WordAligner,
        train: TokenBatches,
        validation: Sequence[Pair],
        translator: Translator,
        *,
        device: torch.device,
        terms: Sequence[Term] = (),
        precision: str,
    ) -> None:
        self.model: WordAligner = model
        self.train = train
        self.validation = validation
        self.translator = translator
        self.device = device
        self.terms = tuple(terms)
        self.precision = precision

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Batch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: Batch) -> Loss:
        """``−log p`` of the batch's targets without their END, plus the terms."""
        watching = watch(self.model, modules_of(self.terms), keep_gradients=True)
        with autocast(self.device, self.precision), watching as seen:
            source = Source(batch.source, batch.source_lengths)
            total = -self.model.log_likelihood(source, batch.target_in).sum()
            # The sum over alignments gives no loss of single tokens.
            surprise = total.new_zeros(batch.target_out.shape)
            loss = Loss(total, {"loss": total.detach()})
            return with_terms(loss, self.terms, TeacherForced(batch, seen, surprise))

    def split(self, batch: Batch, count: int, fewest: int = FEWEST) -> list[Batch]:
        """Split the rows; with terms, return the whole batch, because terms watch the model."""
        return [batch] if self.terms else batch.split(count, fewest)

    def validate(self) -> Validation:
        """``loss`` per token (nats) and ``perplexity``."""
        if not self.validation:
            return Validation({}, [])
        total, weight = 0.0, 0
        with self.translator.ready():
            for sources, targets in self.translator.encoded_batches(self.validation):
                source = source_of(sources, self.device)
                target_in = target_in_of(targets, self.device)
                total -= self.model.log_likelihood(source, target_in).sum().item()
                # END counts, as in the weight of a training batch.
                weight += sum(len(target) + 1 for target in targets)
        figures = {"loss": total / max(weight, 1), "perplexity": perplexity(total, weight)}
        return Validation(figures, [])

    def tensors(self) -> dict[str, Tensor]:
        """The state of the terms."""
        return tensors_of(self.terms)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        load_terms(self.terms, tensors)
