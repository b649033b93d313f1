"""The base class of the training tasks of pairs of texts."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from heedful.data.batching import FEWEST, Batch, StoreBatches
from heedful.data.examples import Pair
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.translator import Translator
from heedful.training.terms import Term, load_terms, tensors_of

M = TypeVar("M", bound=nn.Module)
EncodedPairs = tuple[list[list[int]], list[list[int]]]
"""The tokens of sources and of their targets."""


class PairTask(Generic[M]):
    """Batches and terms; subclasses compute the loss and the validation figures.

    Args:
        model: the model to train, on ``device``.
        train: batches of the training corpus.
        validation: pairs to validate on; may be empty.
        translator: encodes and batches the validation pairs, and translates them with ``model``.
        device: the device of the model.
        terms: additional losses on attention weights.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: M,
        train: StoreBatches[Batch],
        validation: Sequence[Pair],
        translator: Translator,
        *,
        device: torch.device,
        terms: Sequence[Term] = (),
        precision: str,
    ) -> None:
        self.model: M = model
        self.train = train
        self.validation = validation
        self.translator = translator
        self.device = device
        self.terms = tuple(terms)
        self.precision = precision

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Batch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def split(self, batch: Batch, count: int, fewest: int = FEWEST) -> list[Batch]:
        """Split the rows; with terms, return the whole batch, because terms watch the model."""
        return [batch] if self.terms else batch.split(count, fewest)

    def tensors(self) -> dict[str, Tensor]:
        """The state of the terms."""
        return tensors_of(self.terms)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        load_terms(self.terms, tensors)
