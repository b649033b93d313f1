"""Attention along one axis of a grid: each line attends to itself.

Ho et al. 2019, "Axial Attention in Multidimensional Transformers", section 3.1. One layer of a grid
of R × C places costs R C² or R² C instead of (R C)².
Shapes: B batch, L places of the grid, D width.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from heedful.attention.checking import check_inputs, check_part
from heedful.attention.masks import Mask
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.places import check_shape


class AxialAttention(nn.Module):
    """Multi-head self-attention within each line of a grid.

    The same as the attention over the whole grid with :func:`~heedful.attention.masks.axial`, but
    lines are entries of the batch. Positions and masks of the attention count within a line.
    Watchers of ``attention`` get the weights of each line, ``[B · lines, H, n, n]``.

    Args:
        attention: the attention within a line of n places.
        shape: sizes of the axes, such as (rows, columns).
        axis: 1 for the rows of a picture, 0 for its columns.

    Raises:
        TypeError: ``attention`` has another class.
        ValueError: a size is below 1, or there is no such axis; at the call, if the input does not
            have as many places as the grid.

    Source: Ho et al. 2019, section 3.1.

    Example:
        >>> import torch
        >>> rows = AxialAttention(MultiHeadAttention(8, heads=2), shape=(4, 5), axis=1)
        >>> rows(torch.zeros(3, 20, 8)).shape  # [B, L, D]
        torch.Size([3, 20, 8])
    """

    def __init__(self, attention: MultiHeadAttention, shape: Sequence[int], axis: int) -> None:
        super().__init__()
        check_part("attention", attention, MultiHeadAttention)
        check_shape(shape)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis {axis}: shape {tuple(shape)} has {len(shape)} axes")
        self.attention, self.shape, self.axis = attention, tuple(shape), axis % len(shape)

    def forward(
        self, x: Tensor, mask: Mask | Tensor | None = None, allowed: Tensor | None = None
    ) -> Tensor:
        """``[B, L, D]`` for ``x [B, L, D]``, the places of the grid row by row.

        Args:
            x: the input.
            mask: which places of a line may attend to which, the same for all lines: a mask
                (``causal()``), or a tensor ``[n, n]``.
            allowed: booleans ``[B, L]``: the places that may be attended to; all by default.
        """
        check_inputs(x=x)
        places = 1
        for size in self.shape:
            places *= size
        if x.dim() != 3 or x.shape[1] != places:
            raise ValueError(f"x has shape {list(x.shape)}: expected [B, {places}, D]")
        lines = self._lines(x)  # [B, others, n, D]
        flat = lines.flatten(0, -3)
        if allowed is not None:
            keys = self._lines(allowed.unsqueeze(-1)).flatten(0, -3).transpose(-2, -1)
            mask = self._joined(mask, keys, flat)
        result: Tensor = self.attention(flat, flat, mask=mask)
        width = result.shape[-1]
        back = result.view(*lines.shape[:-1], width).movedim(-2, self.axis + 1)
        return back.reshape(len(x), places, width)

    def _lines(self, x: Tensor) -> Tensor:
        """``[B, L, D] -> [B, .., n, D]`` with the axis next to last."""
        lines: Tensor = x.unflatten(1, self.shape).movedim(self.axis + 1, -2)
        return lines

    @staticmethod
    def _joined(mask: Mask | Tensor | None, keys: Tensor, lines: Tensor) -> Tensor:
        """The mask of each line, ``[B · lines, n, n]``, with ``keys [B · lines, 1, n]``."""
        count, size, _ = lines.shape
        if isinstance(mask, Mask):
            mask = mask.dense((count, size, size), lines.device)
        if mask is None:
            return keys
        if mask.is_floating_point():
            return mask.masked_fill(~keys, float("-inf"))
        return mask & keys

    def extra_repr(self) -> str:
        return f"shape={self.shape}, axis={self.axis}"
