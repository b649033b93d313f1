"""The logit lens: what a model would predict if its output read the states of an earlier layer.

    p_ℓ = softmax(W N(h_ℓ))   with the model's own last norm N and output matrix W

nostalgebraist 2020, "interpreting GPT: the logit lens". The last layer's predictions are the
model's own.
Shapes: L layers, N decisions, D width, V vocabulary, k tokens that are listed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.inference.observing import Readout, Run, observing

_ROWS = 64
"""Decisions whose logits are computed at a time."""


class Prediction(NamedTuple):
    """What a layer would predict in the place of one decision."""

    labels: list[str]
    """The most probable tokens, the first one most probable."""
    probabilities: list[float]
    rank: int
    """The rank of the token that was decided; 1 is the most probable one."""
    probability: float
    """The probability of that token."""


class Lens(NamedTuple):
    """The predictions of all layers for all decisions."""

    layers: list[str]
    """Names in ``model.named_modules()``, the first layer first."""
    decided: list[str]
    """The decisions ``[N]``."""
    predictions: list[list[Prediction]]
    """``[L][N]``"""


def lens_of(trace: Callable[[], object], top: int = 5) -> Lens:
    """The logit lens of the model that is traced.

    Args:
        trace: calls the predictor's ``trace``.
        top: number of tokens k that are listed, from 1.

    Raises:
        UserError: the model predicts no tokens, or has no layers whose states its output can read.
    """
    found: list[Lens] = []

    @contextmanager
    def observer(run: Run) -> Iterator[None]:
        readout = run.readout
        if readout is None or not readout.layers:
            raise UserError(
                "this model has no layers whose states can be read as next tokens; the logit lens "
                "needs a Transformer that writes, such as a translator or a GPT"
            )
        states: dict[str, Tensor] = {}
        hooks = [
            run.model.get_submodule(name).register_forward_hook(_keeping(states, name))
            for name in readout.layers
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        found.append(_lens(run, readout, states, top))

    with observing(observer):
        trace()
    return found[-1]


def _keeping(states: dict[str, Tensor], name: str) -> Callable[[nn.Module, Any, Any], None]:
    def keep(module: nn.Module, given: Any, output: Any) -> None:
        states[name] = output[0].detach()  # a batch of one

    return keep


@torch.no_grad()
def _lens(run: Run, readout: Readout, states: dict[str, Tensor], top: int) -> Lens:
    decision = run.decision
    if decision is None or decision.tokens is None or len(states) < len(readout.layers):
        raise UserError("the states of this model's layers are not known")
    decided = list(decision.tokens)
    rows = [_layer(readout, states[name][: len(decided)], decided, top) for name in readout.layers]
    return Lens(list(readout.layers), list(decision.labels), rows)


def _layer(readout: Readout, states: Tensor, decided: list[int], top: int) -> list[Prediction]:
    """The predictions of one layer, from its states ``[N, D]``."""
    found = []
    for first in range(0, len(decided), _ROWS):
        check_cancelled()
        own = torch.tensor(decided[first : first + _ROWS], device=states.device).unsqueeze(1)
        chances = readout.logits(states[first : first + _ROWS]).float().softmax(1)
        chosen = chances.gather(1, own)
        ranks = (chances > chosen).sum(1) + 1
        best = chances.topk(min(top, chances.shape[1]), dim=1)
        for row in range(len(own)):
            labels = readout.labels(best.indices[row].tolist())
            shares = best.values[row].tolist()
            found.append(Prediction(labels, shares, int(ranks[row]), float(chosen[row])))
    return found
