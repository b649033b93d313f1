"""Cross-entropy with label smoothing over a large vocabulary, without storing a batch's logits.

Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7: the true distribution is
``(1 − ε)`` on the label plus ``ε / V`` on every symbol.
Shapes: N positions, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.addresses import forward_mode
from heedful.kernels.cross_entropy_compiled import is_supported, losses_in_c
from heedful.kernels.operators import Operator, one_by_one, second_derivatives

_CHUNK = 512
"""Positions in a block, whose logits must fit in the cache."""


def plain_cross_entropy(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The plain reference of :func:`cross_entropy`."""
    logits = F.linear(states, table, bias).to(_wide(states))
    smooth = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    return smooth, F.cross_entropy(logits, labels, reduction="none").detach()


def _wide(states: Tensor) -> torch.dtype:
    return torch.float64 if states.dtype == torch.float64 else torch.float32


def cross_entropy(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The summed smoothed cross-entropy of ``states @ tableᵀ``, and the unsmoothed losses.

    Loss and gradient are computed from the logits of a few rows at a time, which are not stored; in
    C for float32 on the CPU, if a compiler is available. The operator
    ``torch.ops.heedful.cross_entropy`` appears as one node in compiled and traced graphs.

    Args:
        states: ``[N, D]``.
        table: ``[V, D]``, one row for each symbol.
        labels: integers ``[N]`` in [0, V).
        smoothing: ε in [0, 1).
        bias: added to the logits ``[V]``; read as one more column of the table.

    Returns:
        The smoothed sum over all positions in nats; and ``−log p`` of each label ``[N]``, detached.
    """
    if not torch.is_grad_enabled():
        parts = [
            plain_cross_entropy(some, table, theirs, smoothing, bias)
            for some, theirs in zip(
                torch.split(states, _CHUNK), torch.split(labels, _CHUNK), strict=True
            )
        ]
        return torch.stack([p[0] for p in parts]).sum(), torch.cat([p[1] for p in parts])
    if forward_mode(states, table):
        return plain_cross_entropy(states, table, labels, smoothing, bias)
    if bias is not None:
        states = torch.cat([states, states.new_ones(len(states), 1)], 1)
        table = torch.cat([table, bias.to(table.dtype).unsqueeze(1)], 1)
    smooth, exact, *_ = _with_gradients(states, table, labels, smoothing)
    return smooth, exact


def _both(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # C needs less memory and is faster.
    way = losses_in_c if is_supported(states, table, labels) else _in_blocks
    return way(states, table, labels, smoothing)


_with_gradients = Operator("cross_entropy", _both)


@_with_gradients.operator.register_fake
def _(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = _wide(states)
    smooth, exact = states.new_empty((), dtype=wide), states.new_empty(states.shape[0], dtype=wide)
    return smooth, exact, *_empty_gradients(states, table)


def _empty_gradients(states: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    contiguous = torch.contiguous_format
    of_states = torch.empty_like(states, memory_format=contiguous)
    return of_states, torch.empty_like(table, memory_format=contiguous)


def _backward(
    grad: Tensor,
    of_states: Tensor,
    of_table: Tensor,
    states: Tensor,
    table: Tensor,
    labels: Tensor,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of the sum times ``grad``; the rest is for :func:`_second_derivatives`."""
    return of_states * grad.to(of_states.dtype), of_table * grad.to(of_table.dtype)


_gradients = Operator("cross_entropy_backward", _backward)


@_gradients.operator.register_fake
def _(grad: Tensor, of_states: Tensor, of_table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(of_states), torch.empty_like(of_table)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.smoothing = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[2:], *tensors)


def _autograd_backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradients(grad, *ctx.saved_tensors, ctx.smoothing), None, None


def _setup_context_of_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, _, _, *tensors, ctx.smoothing = inputs
    ctx.save_for_backward(grad, *tensors)


def _second_derivatives(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
    grad, states, table, labels = ctx.saved_tensors

    def plain(states: Tensor, table: Tensor) -> Tensor:
        return plain_cross_entropy(states, table, labels, ctx.smoothing)[0]

    by_grad, *twice = second_derivatives(plain, (states, table), grad, by)
    return by_grad, None, None, *twice, None, None


_with_gradients.register_autograd(_autograd_backward, _setup_context)
_gradients.register_autograd(_second_derivatives, _setup_context_of_backward)
for _each in (_with_gradients.operator, _gradients.operator):
    _each.register_vmap(one_by_one(_each))


def _in_blocks(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Smoothed sum, unsmoothed losses ``[N]``, and the sum's gradients of states and table."""
    vocabulary = len(table)
    wide = _wide(states)
    smooth = states.new_zeros((), dtype=wide)
    exact = states.new_empty(states.shape[0], dtype=wide)
    state_gradient, table_gradient = _empty_gradients(states, table)
    table_gradient.zero_()
    for first in range(0, len(states), _CHUNK):
        rows = slice(first, first + _CHUNK)
        logits = F.linear(states[rows], table).to(wide)  # [n, V]
        label = labels[rows].unsqueeze(1)
        logits -= logits.amax(1, keepdim=True)
        at_label, sum_of_logits = logits.gather(1, label), logits.sum(1, keepdim=True)
        # Loss and gradient share the exponentials.
        total = logits.exp_().sum(1, keepdim=True)
        log_total = total.log()
        surprise = log_total - at_label
        everywhere = vocabulary * log_total - sum_of_logits
        exact[rows] = surprise.squeeze(1)
        smooth += ((1 - smoothing) * surprise + smoothing / vocabulary * everywhere).sum()
        # In place, the logits become their gradient: softmax − true distribution.
        logits /= total
        if smoothing:
            logits -= smoothing / vocabulary
        logits.scatter_add_(1, label, torch.full_like(at_label, smoothing - 1))
        gradient = logits.to(torch.promote_types(states.dtype, table.dtype))
        state_gradient[rows] = (gradient @ table).to(states.dtype)
        table_gradient += (gradient.T @ states[rows].to(gradient.dtype)).to(table.dtype)
    return smooth, exact, state_gradient, table_gradient
