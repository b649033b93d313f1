"""Conversion and checks of masks for the implementations of attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.attention.masks.algebra import Grid, Mask, as_mask


def split_mask(mask: Mask | Tensor | None, grid: Grid) -> tuple[Tensor | None, Tensor | None]:
    """Split a mask into booleans (true = may attend) and a bias on the scores; each may be None.

    Both broadcast to the grid's scores ``[.., Q, K]``.

    A floating-point tensor is added to the scores; where it is −∞, or the lowest number of its
    type, the key is masked, exactly as by a boolean false. NaN makes the weights of its row NaN.

    Raises:
        TypeError: the argument is not a mask, boolean or floating-point.
        ValueError: it does not broadcast to the scores.

    Example:
        >>> grid = Grid((1, 2), torch.device("cpu"))
        >>> split_mask(torch.tensor([[0.5, float("-inf")]]), grid)
        (tensor([[ True, False]]), tensor([[0.5000, 0.0000]]))
    """
    if mask is None:
        return None, None
    if isinstance(mask, Tensor) and mask.is_floating_point():
        _require_fit(mask, grid, whole=True)
        bias = grid.per_pair(mask)
        allowed = ~(bias <= torch.finfo(bias.dtype).min)  # NaN is kept and makes its row NaN
        return allowed, bias.masked_fill(~allowed, 0.0)
    if isinstance(mask, Tensor):
        _require_fit(mask, grid, whole=True)
    allowed = as_mask(mask).allows(grid)
    _require_fit(allowed, grid, whole=False)
    return allowed, None


def dense_mask(
    mask: Mask | Tensor | None, shape: Sequence[int], device: torch.device
) -> Tensor | None:
    """A mask as booleans that broadcast to ``shape [.., Q, K]``, or None.

    Raises:
        TypeError: a tensor mask is not boolean.
        ValueError: it does not broadcast to the shape.

    Example:
        >>> dense_mask(torch.tensor([True, False]), (1, 2), torch.device("cpu"))
        tensor([ True, False])
    """
    if mask is None:
        return None
    return split_mask(as_mask(mask), Grid(shape, device))[0]


def mask_for_heads(mask: Mask | Tensor | None, dims: int) -> Mask | Tensor | None:
    """The mask for scores ``[.., H, Q, K]``: tensors ``[.., Q, K]`` with ``dims`` dimensions, alone
    or in an expression, are for all heads.

    Example:
        >>> mask_for_heads(torch.ones(2, 4, 5), 3).shape
        torch.Size([2, 1, 4, 5])
    """
    if isinstance(mask, Mask):
        return mask.for_heads(dims)
    return mask.unsqueeze(-3) if mask is not None and mask.dim() == dims else mask


def _require_fit(mask: Tensor, grid: Grid, *, whole: bool) -> None:
    asked = (grid.queries, grid.keys) if whole else grid.sizes
    shape = [*grid.leading, *asked]
    sizes = list(mask.shape)
    fits = len(sizes) <= len(shape) and all(
        size in (1, full) for size, full in zip(reversed(sizes), reversed(shape), strict=False)
    )
    if not fits:
        raise ValueError(f"mask {sizes} does not broadcast to the scores' shape {shape}")
