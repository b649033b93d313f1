"""The masks of ``nn.MultiheadAttention``, where true means the opposite.

Shapes: B batch, H heads, Q queries, K keys.
"""

import torch
from torch import Tensor


def from_torch(
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    heads: int | None = None,
) -> Tensor | None:
    """The mask, for modules of this library, that ``nn.MultiheadAttention`` has in two arguments.

    There, true = masked. Here, true = may attend. Numbers are added to the scores in both.

    Args:
        attn_mask: ``[Q, K]`` or ``[B·H, Q, K]``, booleans or numbers.
        key_padding_mask: ``[B, K]``, or ``[K]`` without a batch; booleans or numbers.
        heads: H; necessary if ``attn_mask`` has three dimensions.

    Returns:
        ``[Q, K]``, ``[B, 1, 1, K]`` or what both broadcast to; booleans, or numbers if one of the
        arguments has numbers. None if both are.

    Raises:
        TypeError: a mask has neither booleans nor floating-point numbers.
        ValueError: a mask has another number of dimensions, or its entries are not a multiple of
            the heads.

    Example:
        >>> import torch
        >>> from_torch(key_padding_mask=torch.tensor([[False, False, True]]))
        tensor([[[[ True,  True, False]]]])
    """
    if attn_mask is not None and attn_mask.dim() == 3:
        if heads is None or len(attn_mask) % heads:
            raise ValueError(
                f"attn_mask {list(attn_mask.shape)} is not [B·H, Q, K] with heads={heads}"
            )
        attn_mask = attn_mask.unflatten(0, (-1, heads))
    elif attn_mask is not None and attn_mask.dim() != 2:
        raise ValueError(f"attn_mask {list(attn_mask.shape)}: expected [Q, K] or [B·H, Q, K]")
    if key_padding_mask is not None:
        if key_padding_mask.dim() not in (1, 2):
            raise ValueError(f"key_padding_mask {list(key_padding_mask.shape)}: expected [B, K]")
        key_padding_mask = key_padding_mask[..., None, None, :]
    given = [mask for mask in (attn_mask, key_padding_mask) if mask is not None]
    for mask in given:
        if not (mask.is_floating_point() or mask.dtype == torch.bool):
            raise TypeError(f"a mask must have booleans or numbers to add, not {mask.dtype}")
    numbers = [mask for mask in given if mask.is_floating_point()]
    allowed = [~mask for mask in given if not mask.is_floating_point()]
    if len(allowed) == 2:
        return allowed[0] & allowed[1]
    if len(numbers) == 2:
        return numbers[0] + numbers[1]
    if numbers and allowed:
        barred = ~allowed[0]
        return numbers[0] + torch.zeros_like(barred, dtype=numbers[0].dtype).masked_fill(
            barred, float("-inf")
        )
    return next(iter(numbers + allowed), None)
