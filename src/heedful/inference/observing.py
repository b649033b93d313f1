"""Observers of a trace: they see the model while it runs on one input.

A trace has weights only. An observer can record more of the same run, for any task whose predictor
uses :func:`heedful.inference.tracing.trace_model`, without the predictor or the model knowing it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from heedful.inference.axes import Axis


class Readout(NamedTuple):
    """How a model that predicts tokens reads its states."""

    layers: Sequence[str]
    """The modules whose outputs ``[1, L, D]`` are the states after each layer, first to last; empty
    if the model has no such states."""
    logits: Callable[[Tensor], Tensor]
    """States of any layer ``[N, D]`` → logits ``[N, V]``, with the norm before the output."""
    labels: Callable[[Sequence[int]], list[str]]
    """The texts of tokens."""


class Decision(NamedTuple):
    """The decisions of a model on one input."""

    labels: list[str]
    log_probabilities: Tensor
    """``[N]``, natural logarithms; they must have gradients if relevance is computed."""
    places: Sequence[int] | None = None
    """For encoders: the position of each decision on the axis "text". With relevance, the trace
    then also has maps from the axis "decision" to the text."""
    tokens: Sequence[int] | None = None
    """The tokens, for models with a :class:`Readout`."""


@dataclass
class Run:
    """One run of a model on one input."""

    model: nn.Module
    axes_of: Mapping[str, tuple[str, ...]]
    """Attention module name → axes, from ``model.attention_axes``."""
    axes: Mapping[str, Axis]
    """The axes that are known before the model runs."""
    readout: Readout | None
    decision: Decision | None = None
    """Set when the model has run."""


Observer = Callable[[Run], AbstractContextManager[None]]
"""Its context is entered before the model runs and left after it, in evaluation mode."""

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Observe the models that are traced in this thread or task while the block runs."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


@contextmanager
def observed(run: Run) -> Iterator[None]:
    """Run a model with all current observers."""
    with ExitStack() as stack:
        for observer in _observers.get():
            stack.enter_context(observer(run))
        yield
