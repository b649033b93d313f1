"""Allocating slots of a memory, and following the order in which they were written.

    ψ(i) = Π_r (1 − f_r w^r_{t−1}(i))                             retention, with the free gates f
    u_t = (u_{t−1} + w^w_{t−1} − u_{t−1} ∘ w^w_{t−1}) ∘ ψ          usage
    a(φ_j) = (1 − u(φ_j)) Π_{i<j} u(φ_i)                          allocation, least used φ_1 first
    w^w = g^w (g^a a + (1 − g^a) c^w)                             writing
    L_t(i, j) = (1 − w(i) − w(j)) L_{t−1}(i, j) + w(i) p_{t−1}(j)  links, 0 on the diagonal
    p_t = (1 − Σ_i w(i)) p_{t−1} + w                              precedence
    w^r = π_1 Lᵀ w^r_{t−1} + π_2 c^r + π_3 L w^r_{t−1}             reading

Graves et al. 2016, "Hybrid computing using a neural network with dynamic external memory", Nature
538, Methods. c^w and c^r are the content weights of :mod:`heedful.attention.addressing`. All
weights are at least 0 and sum to at most 1.
Shapes: B batch, R read heads, N slots.
"""

import torch
from torch import Tensor

USAGE_EPSILON = 1e-6
"""The least usage that allocation counts with, so that its gradient stays finite."""


def retention(free_gates: Tensor, read_weights: Tensor) -> Tensor:
    """ψ ``[B, N]``: the share of each slot that the read heads do not free.

    Args:
        free_gates: f in [0, 1], ``[B, R]``.
        read_weights: of the previous step ``[B, R, N]``.

    Example:
        >>> retention(torch.tensor([[1.0]]), torch.tensor([[[0.25, 0.75]]]))
        tensor([[0.7500, 0.2500]])
    """
    return (1 - free_gates.unsqueeze(-1) * read_weights).prod(1)


def next_usage(usage: Tensor, write_weights: Tensor, retained: Tensor) -> Tensor:
    """u_t ``[B, N]`` in [0, 1]: how much each slot is in use.

    Args:
        usage: of the previous step ``[B, N]``.
        write_weights: of the previous step ``[B, N]``.
        retained: the result of :func:`retention`.

    Example:
        >>> next_usage(torch.tensor([[0.5, 0.0]]), torch.tensor([[0.5, 0.5]]), torch.ones(1, 2))
        tensor([[0.7500, 0.5000]])
    """
    return torch.addcmul(usage, 1 - usage, write_weights) * retained


def allocation_weights(usage: Tensor) -> Tensor:
    """a ``[B, N]``: weights of the slots to write to, the least used first.

    Args:
        usage: ``[B, N]`` in [0, 1]. Allocation uses ``ε + (1 − ε) u`` with ε = 10⁻⁶.

    The order of the slots has no gradient, as in the paper.

    Example:
        >>> allocation_weights(torch.tensor([[1.0, 0.0, 0.5]])).round(decimals=3)
        tensor([[0., 1., 0.]])
    """
    free, order = ((1 - USAGE_EPSILON) * (1 - usage)).clamp(min=0).sort(-1, descending=True)
    before = (1 - free[..., :-1]).cumprod(-1)  # Π_{i<j}, from the second slot on
    weights = torch.cat([free[..., :1], free[..., 1:] * before], -1)
    return torch.zeros_like(usage).scatter(-1, order, weights)


def write_weights(
    write_gate: Tensor, allocation_gate: Tensor, allocation: Tensor, content: Tensor
) -> Tensor:
    """w^w ``[B, N]``, from allocation and content ``[B, N]`` and gates in [0, 1], ``[B, 1]``.

    Example:
        >>> one, half = torch.ones(1, 1), torch.tensor([[0.5]])
        >>> write_weights(half, one, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        tensor([[0.5000, 0.0000]])
    """
    return write_gate * torch.lerp(content, allocation, allocation_gate)


def next_links(links: Tensor, precedence: Tensor, weights: Tensor) -> Tensor:
    """L_t ``[B, N, N]``: how much slot i was written directly after slot j.

    Args:
        links: of the previous step.
        precedence: p_{t−1} ``[B, N]``.
        weights: w^w of this step ``[B, N]``.

    Returns:
        Non-negative; rows and columns sum to at most 1, and the diagonal is 0.

    Example:
        >>> links, last = torch.zeros(1, 2, 2), torch.tensor([[1.0, 0.0]])
        >>> next_links(links, last, torch.tensor([[0.0, 1.0]]))  # slot 1 after slot 0
        tensor([[[0., 0.],
                 [1., 0.]]])
    """
    slots = weights.shape[-1]
    kept = (1 - weights).unsqueeze(-1) - weights.unsqueeze(-2)
    new = torch.addcmul(kept * links, weights.unsqueeze(-1), precedence.unsqueeze(-2))
    return new * (1 - torch.eye(slots, dtype=new.dtype, device=new.device))


def next_precedence(precedence: Tensor, weights: Tensor) -> Tensor:
    """p_t ``[B, N]``: how much each slot was the last one that was written.

    Example:
        >>> next_precedence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.5]]))
        tensor([[0.5000, 0.5000]])
    """
    return torch.addcmul(weights, 1 - weights.sum(-1, keepdim=True), precedence)


def follow_links(links: Tensor, read_weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weights ``[B, R, N]`` of the slots written before, and after, those that were read.

    Args:
        links: ``[B, N, N]``.
        read_weights: of the previous step ``[B, R, N]``.

    Returns:
        Backward weights ``Lᵀ w`` and forward weights ``L w``.

    Example:
        >>> links = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])
        >>> follow_links(links, torch.tensor([[[1.0, 0.0]]]))[1]
        tensor([[[0., 1.]]])
    """
    return read_weights @ links, read_weights @ links.mT


def read_weights(modes: Tensor, backward: Tensor, content: Tensor, forward: Tensor) -> Tensor:
    """w^r ``[B, R, N]``: a mixture of three ways to read, each ``[B, R, N]``.

    Args:
        modes: π ``[B, R, 3]``, at least 0, with sum 1.
        backward: of :func:`follow_links`.
        content: of :func:`~heedful.attention.addressing.content_weights`.
        forward: of :func:`follow_links`.

    Example:
        >>> one = torch.eye(3).view(3, 1, 1, 3)
        >>> read_weights(torch.tensor([[[0.2, 0.5, 0.3]]]), *one)
        tensor([[[0.2000, 0.5000, 0.3000]]])
    """
    first, second, third = modes.unsqueeze(-1).unbind(-2)
    return torch.addcmul(torch.addcmul(first * backward, second, content), third, forward)
