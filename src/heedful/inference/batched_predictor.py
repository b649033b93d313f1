"""Predictors that answer a batch of inputs with one call of their model."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from heedful.basics.cancellation import check_cancelled
from heedful.inference.inference_mode import ready
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, Described, trace_model

ModelT = TypeVar("ModelT", bound=nn.Module)
InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")


class TextOutput(NamedTuple):
    """A result that is a text."""

    text: str
    log_probability: float
    """Natural logarithm of its probability."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The result as what :mod:`json` can write."""
        return self._asdict()


class BatchedPredictor(Generic[ModelT, InputT, ResultT]):
    """Base: a subclass answers a batch.

    Args:
        model: on ``device``.
        device: where to compute.
        precision: of matrix products.
        rows: inputs of a batch.
    """

    def __init__(
        self,
        model: ModelT,
        *,
        device: torch.device,
        precision: str = "float32",
        rows: int = 64,
    ) -> None:
        self.model, self.device, self.precision, self.rows = model, device, precision, rows

    def answer(self, inputs: Sequence[InputT]) -> Sequence[ResultT]:
        """One result for each of at most ``rows`` inputs; the model is ready to be called."""
        raise NotImplementedError

    def predict(self, inputs: Sequence[InputT]) -> list[ResultT]:
        """One result for each input, in their order."""
        found: list[ResultT] = []
        for first in range(0, len(inputs), self.rows):
            check_cancelled()
            with self.ready():
                found += self.answer(inputs[first : first + self.rows])
        return found

    def ready(self) -> AbstractContextManager[None]:
        """A context in which the model is in evaluation mode and without gradients."""
        return ready(self.model, self.device, self.precision)

    def traced(
        self, described: Described, decide: Callable[[], Decision], *, relevance: bool
    ) -> Trace:
        """What the model attends to; see :func:`heedful.inference.tracing.trace_model`."""
        return trace_model(self.model, decide, described, self.ready(), relevance=relevance)
