"""Cross-entropy with label smoothing over a large vocabulary, without holding a batch's logits.

Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7: the true distribution is
``(1 − ε)`` on the label plus ``ε / V`` on every symbol.
Shapes: N positions, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from heedful.layers.compiled_losses import can_do, losses_in_c

_CHUNK = 512
"""Positions at a time: their logits stay in the processor's cache."""


def plain_cross_entropy(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What :func:`cross_entropy` computes, as the plain formula."""
    logits = F.linear(states, table, bias).float()
    smooth = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    return smooth, F.cross_entropy(logits, labels, reduction="none").detach()


def cross_entropy(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Summed smoothed cross-entropy of ``states @ tableᵀ``, and what each label costs unsmoothed.

    The logits are made, used for loss and gradient, and forgotten, a few rows at a time: in C
    on the CPU in float32, where there is a compiler.

    Args:
        states: ``[N, D]``.
        table: ``[V, D]``, one row a symbol.
        labels: integers ``[N]`` in [0, V).
        smoothing: ε in [0, 1).
        bias: added to the logits ``[V]``; with one, the plain formula is taken.

    Returns:
        The sum over all positions, smoothed, in nats; and ``−log p`` of each label ``[N]``,
        detached.
    """
    if not torch.is_grad_enabled():
        parts = [
            plain_cross_entropy(some, table, theirs, smoothing, bias)
            for some, theirs in zip(
                torch.split(states, _CHUNK), torch.split(labels, _CHUNK), strict=True
            )
        ]
        return torch.stack([p[0] for p in parts]).sum(), torch.cat([p[1] for p in parts])
    if bias is not None:
        return plain_cross_entropy(states, table, labels, smoothing, bias)
    smooth, exact = _CrossEntropy.apply(states, table, labels, smoothing)  # type: ignore[no-untyped-call]
    return smooth, exact


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, table: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        # C holds fewer logits yet, and makes them faster.
        way = losses_in_c if can_do(states, table, labels) else _in_pieces
        smooth, exact, *gradients = way(states, table, labels, smoothing)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(exact)
        return smooth, exact

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, smooth: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        state_gradient, table_gradient = ctx.saved_tensors
        return (
            state_gradient * smooth.to(state_gradient.dtype),
            table_gradient * smooth.to(table_gradient.dtype),
            None,
            None,
        )


def _in_pieces(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Smoothed sum, unsmoothed losses ``[N]``, the sum's gradients of states and of the table."""
    vocabulary = len(table)
    wide = torch.float64 if states.dtype == torch.float64 else torch.float32
    smooth = states.new_zeros((), dtype=wide)
    exact = states.new_empty(len(states), dtype=wide)
    state_gradient = torch.empty_like(states)
    table_gradient = torch.zeros_like(table)
    for first in range(0, len(states), _CHUNK):
        rows = slice(first, first + _CHUNK)
        logits = F.linear(states[rows], table).to(wide)  # [n, V]
        label = labels[rows].unsqueeze(1)
        logits -= logits.amax(1, keepdim=True)
        at_label, sum_of_logits = logits.gather(1, label), logits.sum(1, keepdim=True)
        # One exponential a logit serves the loss and, divided by the sum, the gradient.
        total = logits.exp_().sum(1, keepdim=True)
        log_total = total.log()
        surprise = log_total - at_label
        everywhere = vocabulary * log_total - sum_of_logits
        exact[rows] = surprise.squeeze(1)
        smooth += ((1 - smoothing) * surprise + smoothing / vocabulary * everywhere).sum()
        # From here the logits become their own gradient: softmax − true distribution.
        logits /= total
        if smoothing:
            logits -= smoothing / vocabulary
        logits.scatter_add_(1, label, torch.full_like(at_label, smoothing - 1))
        gradient = logits.to(torch.promote_types(states.dtype, table.dtype))
        state_gradient[rows] = (gradient @ table).to(states.dtype)
        table_gradient += (gradient.T @ states[rows].to(gradient.dtype)).to(table.dtype)
    return smooth, exact, state_gradient, table_gradient
