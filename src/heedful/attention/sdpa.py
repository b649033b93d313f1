"""PyTorch's attention kernels, with masks that are correct for all finite keys and values.

The kernels add −∞ to the scores of masked keys and multiply gradients by weights of zero. If a
product with a very large number has overflowed, the first is ∞ − ∞ and the second 0 · ∞: NaN for
the whole row. The plain formula selects with the mask instead.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers.preparing import widened
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.basics.addresses import readable


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout_p: float,
    scale: float,
    enable_gqa: bool,
    is_causal: bool = False,
) -> Tensor:
    """``F.scaled_dot_product_attention``, in which masked keys and values have no influence.

    On the CPU, outside ``torch.compile``, masked keys and values ``[.., K, D]`` may have any finite
    values. Elsewhere this cannot be checked without a synchronisation with the device, and their
    products with queries and gradients must be finite, too.
    """
    rest = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
    careful = (mask is not None or is_causal) and readable(query, key, value)
    learns = careful and torch.is_grad_enabled() and _any_requires_grad(query, key, value)
    if not (learns and _may_overflow(key, value)):
        given = query, key, value, mask
        context = F.scaled_dot_product_attention(*given, is_causal=is_causal, **rest)  # type: ignore[arg-type]
        # Without gradients it is enough, and cheaper, to check the result.
        if not careful or learns or _largest(context) < float("inf"):
            return context
    if is_causal:
        mask = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if mask is None:
        return context
    return _selecting(query, key, value, mask, dropout_p, scale)


def _selecting(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float, scale: float
) -> Tensor:
    """The plain formula. ``mask [.., Q, K]`` has booleans or values to add."""
    if key.shape[-3] not in (1, query.shape[-3]):
        each = query.shape[-3] // key.shape[-3]
        key, value = (part.repeat_interleave(each, dim=-3) for part in (key, value))
    scores = widened(query) * scale @ widened(key).transpose(-2, -1)
    allowed = mask
    if mask.is_floating_point():
        allowed = mask != float("-inf")
        scores = scores + mask.masked_fill(~allowed, 0.0)
    weights = masked_softmax(scores, allowed)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights.to(value.dtype) @ value


def _any_requires_grad(*parts: Tensor) -> bool:
    return any(part.requires_grad for part in parts)


def _may_overflow(*parts: Tensor) -> bool:
    """Whether sums of products with values of usual size can overflow."""
    return not all(_largest(part) < torch.finfo(part.dtype).max ** 0.5 / 1024 for part in parts)


def _largest(part: Tensor) -> float:
    """The largest absolute value; NaN if there is a NaN."""
    if not part.numel():
        return 0.0
    least, most = torch.aminmax(part.detach())
    return max(-float(least), float(most))
