"""Addressing a memory by content and by location, and writing to it.

    w^c(i) ∝ exp(β cos(k, M(i)))             content, with the key k and the strength β
    w^g = g w^c + (1 − g) w_{t−1}             interpolation with the previous weights
    w̃(i) = Σ_j w^g(j) s(i − j)                circular shift
    w(i) ∝ w̃(i)^γ                            sharpening
    M_t(i) = M_{t−1}(i) (1 − w(i) e) + w(i) a erasing and adding

Graves, Wayne, Danihelka 2014, "Neural Turing Machines", sections 3.2 and 3.3. None of the functions
returns NaN, and none has a NaN as gradient: not for a memory of zeros, and not for large β or γ.
Shapes: B batch, H heads, N slots, W width of a slot, S shifts (odd).
"""

import torch
from torch import Tensor

CONTENT_EPSILON = 1e-6
"""Added to the squared length of keys and slots, so that a slot of zeros is similar to no key."""


def content_weights(key: Tensor, strength: Tensor, memory: Tensor) -> Tensor:
    """Weights of the slots by the similarity of their content with the keys.

    ``softmax_i(β · cos(k, M(i)))``. The cosine is computed with lengths ``√(|x|² + 10⁻⁶)``.

    Args:
        key: ``[B, H, W]``.
        strength: β ``[B, H]``, at least 0.
        memory: ``[B, N, W]``.

    Returns:
        ``[B, H, N]``; each row sums to 1. They are equal if the memory or the key is zero.

    Source: Graves et al. 2014, equations 5 and 6.

    Example:
        >>> memory = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
        >>> content_weights(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[9.0]]), memory).round()
        tensor([[[1., 0., 0.]]])
    """
    scaled = _unit(key) * strength.unsqueeze(-1)
    return (scaled @ _unit(memory).mT).softmax(-1)


def _unit(vectors: Tensor) -> Tensor:
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    squares = (wide * wide).sum(-1, keepdim=True)
    return (wide * (squares + CONTENT_EPSILON).rsqrt()).to(vectors.dtype)


def interpolate(gate: Tensor, weights: Tensor, previous: Tensor) -> Tensor:
    """``g · weights + (1 − g) · previous``.

    Args:
        gate: g in [0, 1], ``[B, H]``.
        weights: ``[B, H, N]``.
        previous: ``[B, H, N]``.

    Source: Graves et al. 2014, equation 7.

    Example:
        >>> now, before = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
        >>> interpolate(torch.tensor([[0.25]]), now, before)
        tensor([[[0.2500, 0.7500]]])
    """
    return torch.lerp(previous, weights, gate.unsqueeze(-1))


def shift(weights: Tensor, shifts: Tensor) -> Tensor:
    """Move weights to neighbouring slots: a circular convolution.

    Args:
        weights: ``[B, H, N]``.
        shifts: ``[B, H, S]``: the share that moves by each of −(S−1)/2 … (S−1)/2 slots; S is odd
            and at most N. Each row sums to 1.

    Returns:
        ``[B, H, N]``, with the same sums.

    Raises:
        ValueError: S is even or above N.

    Source: Graves et al. 2014, equation 8.

    Example:
        >>> shift(torch.tensor([[[0.0, 0.0, 1.0]]]), torch.tensor([[[0.0, 0.0, 1.0]]]))
        tensor([[[1., 0., 0.]]])
    """
    count, slots = shifts.shape[-1], weights.shape[-1]
    if count % 2 == 0 or count > slots:
        raise ValueError(f"{count} shifts of {slots} slots: give an odd number, at most the slots")
    reach = count // 2
    around = torch.cat([weights[..., slots - reach :], weights, weights[..., :reach]], -1)
    windows = around.unfold(-1, count, 1)  # [B, H, N, S]: slot i's neighbours i−reach … i+reach
    return (windows @ shifts.flip(-1).unsqueeze(-1)).squeeze(-1)


def sharpen(weights: Tensor, power: Tensor) -> Tensor:
    """``w(i)^γ / Σ_j w(j)^γ``, computed with logarithms.

    Args:
        weights: at least 0, ``[B, H, N]``. Those below the square root of the smallest number of
            their type count as this root, so that weights of zeros become equal weights.
        power: γ ``[B, H]``, at least 0; any size.

    Returns:
        ``[B, H, N]``; each row sums to 1.

    Source: Graves et al. 2014, equation 9.

    Example:
        >>> sharpen(torch.tensor([[[0.5, 0.4, 0.1]]]), torch.tensor([[2.0]]))
        tensor([[[0.5952, 0.3810, 0.0238]]])
    """
    # With the smallest number itself, the gradient γ / w would overflow.
    least = torch.finfo(weights.dtype).tiny ** 0.5
    return (weights.clamp(min=least).log() * power.unsqueeze(-1)).softmax(-1)


def read_slots(weights: Tensor, memory: Tensor) -> Tensor:
    """``Σ_i w(i) M(i)``: ``[B, H, N]`` and ``[B, N, W]`` give ``[B, H, W]``.

    Source: Graves et al. 2014, equation 2.

    Example:
        >>> read_slots(torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 3.]]])
    """
    return weights @ memory


def erase_and_add(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """The memory after all heads have written: first all erase, then all add.

    Args:
        memory: ``[B, N, W]``.
        weights: ``[B, H, N]``.
        erase: e in [0, 1], ``[B, H, W]``.
        add: a ``[B, H, W]``.

    Returns:
        ``[B, N, W]``.

    Source: Graves et al. 2014, equations 3 and 4.

    Example:
        >>> memory, weights = torch.ones(1, 2, 1), torch.tensor([[[1.0, 0.5]]])
        >>> erase_and_add(memory, weights, torch.ones(1, 1, 1), torch.tensor([[[4.0]]])).flatten()
        tensor([4.0000, 2.5000])
    """
    if weights.shape[1] == 1:  # M + w (a − M ⊙ e), in two passes over the memory
        change = torch.addcmul(add, memory, erase, value=-1)
        return torch.addcmul(memory, weights.mT, change)
    kept = 1 - weights.unsqueeze(-1) * erase.unsqueeze(-2)  # [B, H, N, W]
    return torch.baddbmm(memory * kept.prod(1), weights.mT, add)
