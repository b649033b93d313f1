"""Predictors of tasks that are trained on columns: one call of the model per batch of inputs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.json_models import named, read_object
from heedful.basics.notices import summed
from heedful.data.column_batch import ColumnBatch
from heedful.inference.inference_mode import ready
from heedful.inference.trace import Trace
from heedful.inference.tracing import Decision, Described, trace_model
from heedful.tasks.column_spec import ColumnSpec

ModelT = TypeVar("ModelT", bound=nn.Module)
InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_ROWS = 64


class TextOutput(NamedTuple):
    """A result that is a text."""

    text: str
    log_probability: float
    """Natural logarithm of its probability."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        return self._asdict()


class ColumnPredictor(Generic[ModelT, InputT, ResultT]):
    """Base class; subclasses implement the prediction of a batch.

    Args:
        spec: the task.
        run: its run.
        model: with trained weights, on ``device``.
        device: where to compute.
        precision: precision of matrix products.

    Attributes:
        recipe: the recipe of the run.
        known: the facts from the training data; see
            :meth:`~heedful.tasks.column_spec.ColumnSpec.known`.
    """

    def __init__(
        self, spec: ColumnSpec, run: Any, model: ModelT, *, device: torch.device, precision: str
    ) -> None:
        self.spec, self.recipe, self.known = spec, run.recipe, run.facts["known"]
        self.model, self.device, self.precision = model, device, precision

    def answer(self, inputs: Sequence[InputT]) -> Sequence[ResultT]:
        """One result for each of some inputs, called in :meth:`ready`."""
        raise NotImplementedError

    def answer_keyed(self, inputs: Sequence[InputT], keys: Sequence[int]) -> Sequence[ResultT]:
        """As :meth:`answer`, for tasks that can draw samples; overridden instead of it.

        Args:
            inputs: some inputs.
            keys: a number for each input, from which its random numbers are derived.
        """
        return self.answer(inputs)

    def batch(self, inputs: Sequence[InputT]) -> ColumnBatch:
        """The columns of inputs, on the device."""
        rows = [self.spec.encode(one, self.known) for one in inputs]
        return ColumnBatch.of_rows(rows, self.spec.codecs(self.known)).to(self.device)

    def predict(
        self,
        inputs: Sequence[InputT | Mapping[str, Any]],
        *,
        keys: Sequence[int] | None = None,
    ) -> list[ResultT]:
        """One result for each input, in their order.

        Args:
            inputs: of the task's type of inputs, or their fields as dictionaries.
            keys: for samples, a number for each input, from which its random numbers are derived;
                by default its place, from 0.

        Raises:
            UserError: the fields of an input do not fit; the message has its number, from 1.
        """
        kind: Any = self.spec.input_type()
        for number, one in enumerate(inputs, start=1):
            if isinstance(one, str):
                raise UserError(f"input {number} is a text; give its fields as a dictionary")
        read: list[InputT] = [
            named(read_object(kind, dict(one), f"input {number}"), f"input {number}")
            if isinstance(one, Mapping)
            else one
            for number, one in enumerate(inputs, start=1)
        ]
        numbers = range(len(read)) if keys is None else keys
        found: list[ResultT] = []
        with summed():
            for first in range(0, len(read), _ROWS):
                check_cancelled()
                some = slice(first, first + _ROWS)
                with self.ready():
                    found += self.answer_keyed(read[some], numbers[some])
        return found

    def ready(self) -> AbstractContextManager[None]:
        """A context in which the model is in evaluation mode and without gradients."""
        return ready(self.model, self.device, self.precision)

    def traced(
        self, described: Described, decide: Callable[[], Decision], *, relevance: bool
    ) -> Trace:
        """What the model attends to; see :func:`heedful.inference.tracing.trace_model`."""
        return trace_model(self.model, decide, described, self.ready(), relevance=relevance)
