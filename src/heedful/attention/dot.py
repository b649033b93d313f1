"""Dot products with softmax, computed by the fused kernel that suits the mask.

``scaled_dot_product_attention`` takes no mask, a causal flag, or a matrix. If the matrix would be
large, the kernel is called for blocks of rows, each with the keys that it may attend to; on NVIDIA
GPUs FlexAttention is used, which skips blocks itself. Short sequences on the CPU are computed in C
(:mod:`heedful.kernels.short_attention`). PyTorch's kernels may return wrong results if masked keys
have very large values; :mod:`~.sdpa` corrects them.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from heedful.attention.masks import Causal, Grid, Mask, flex_mask, split_mask
from heedful.attention.mechanism import FusedForm
from heedful.attention.sdpa import masked_attention
from heedful.attention.sinks import per_head, with_sink
from heedful.basics.addresses import forward_mode, is_transformed
from heedful.kernels.additive_rows import span
from heedful.kernels.short_attention_operators import short_attention_or

_LARGE = 1 << 22  # a mask with at least as many entries is not built as a whole
_BLOCK = 512  # rows of a block
_SHORT = 1 << 14  # scores that need little memory


def dot_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid | None,
    *,
    form: FusedForm,
    dropout: float = 0.0,
    added: bool = False,
) -> Tensor:
    """The context ``[.., Q, dv]`` of ``softmax(scale · query · keyᵀ)`` over the allowed keys.

    With a sink, the kernels get one more key. :func:`supports` must be true.

    Args:
        query: ``[.., Q, D]``.
        key: ``[.., K, D]``; with heads, there may be fewer of them than of the queries.
        value: ``[.., K, dv]``.
        mask: a mask, or a tensor as for :func:`~heedful.attention.masks.split_mask`.
        grid: the queries and keys that the mask is evaluated on; None without a mask.
        form: the factor on the dot products, and the sink or cap.
        dropout: share of the weights set to zero.
        added: whether the mask is a result of :func:`added_form`, which kernels can use as it is.
    """
    if form.cap is not None or (form.sink is not None and _by_flex(query, key, mask, dropout)):
        return flex_context(query, key, value, mask, grid, form=form)
    if form.sink is not None:
        given = with_sink(query, key, value, mask, grid, form)
        return _dot_context(*given, form.scale, dropout)[..., : value.shape[-1]]
    return _dot_context(query, key, value, mask, grid, form.scale, dropout, added)


def supports(
    form: FusedForm, query: Tensor, mask: Mask | Tensor | None, dropout: float, *, biased: bool
) -> bool:
    """Whether :func:`dot_context` computes this form: with a cap, by FlexAttention only.

    Args:
        form: the form.
        query: ``[.., Q, D]``.
        mask: the mask.
        dropout: share of the weights set to zero.
        biased: whether positions add to the scores.
    """
    if form.cap is None:
        return True
    if biased or isinstance(mask, Tensor) or torch.compiler.is_compiling():
        return False
    return _on_gpu(query, dropout)


def _on_gpu(query: Tensor, dropout: float) -> bool:
    """Whether FlexAttention can be used. It does not compile for float64."""
    fits = query.device.type == "cuda" and query.dim() == 4 and query.dtype != torch.float64
    return fits and not dropout


def _by_flex(query: Tensor, key: Tensor, mask: Mask | Tensor | None, dropout: float) -> bool:
    """Whether the mask is large, and FlexAttention evaluates it block by block."""
    large = isinstance(mask, Mask) and query.shape[-2] * key.shape[-2] > _LARGE
    return large and not torch.compiler.is_compiling() and _on_gpu(query, dropout)


def _dot_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid | None,
    scale: float,
    dropout: float,
    added: bool = False,
) -> Tensor:
    kernel = functools.partial(
        _fused, dropout_p=dropout, scale=scale, enable_gqa=_is_grouped(query, key)
    )
    if mask is None or grid is None:
        return kernel(query, key, value)
    if added and isinstance(mask, Tensor):
        return kernel(query, key, value, attn_mask=mask)
    square = query.shape[-2] == key.shape[-2]
    from_start = grid.first is None or (isinstance(grid.first, int) and grid.first == 0)
    if isinstance(mask, Causal) and from_start and square:
        return kernel(query, key, value, is_causal=True)  # Q = K: top-left alignment is the same.
    if isinstance(mask, Mask) and _by_flex(query, key, mask, dropout):
        return flex_context(query, key, value, mask, grid, form=FusedForm(scale))
    large = query.shape[-2] * key.shape[-2] > _LARGE and not torch.compiler.is_compiling()
    if isinstance(mask, Mask) and large:
        return _by_blocks(kernel, query, key, value, mask, grid)
    allowed, bias = split_mask(mask, grid)
    return kernel(query, key, value, attn_mask=added_form(allowed, bias, query.dtype))


def _fused(
    query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor | None = None, **others: Any
) -> Tensor:
    """PyTorch's kernel, which is fused for four dimensions only; missing dimensions are added.

    On the CPU, short sequences without dropout are computed by heedful's kernel.
    """
    most = max(query.dim(), key.dim(), value.dim())
    if most > 3:
        return short_attention_or(_by_pytorch, query, key, value, attn_mask=attn_mask, **others)
    query, key, value = (part[(None,) * (4 - part.dim())] for part in (query, key, value))
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unsqueeze(0)
    context = _by_pytorch(query, key, value, attn_mask=attn_mask, **others)
    return context[(0,) * (4 - most)]


def _by_pytorch(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, **others: Any
) -> Tensor:
    if forward_mode(query, key, value) or _transformed_bias(attn_mask):
        # The fused kernels have no forward-mode gradients, and under torch.func those for the CPU
        # have none for the bias.
        with sdpa_kernel(SDPBackend.MATH):
            given = query, key, value, attn_mask
            return F.scaled_dot_product_attention(*given, **others)
    narrow = value.shape[-1] - query.shape[-1]
    if narrow > 0 and query.device.type == "cpu" and query.shape[-2] * key.shape[-2] > _SHORT:
        # PyTorch's kernel for the CPU needs equal widths, and otherwise makes all scores.
        query, key = F.pad(query, (0, narrow)), F.pad(key, (0, narrow))
    return masked_attention(query, key, value, attn_mask, **others)


def _transformed_bias(mask: Tensor | None) -> bool:
    if mask is None or torch.compiler.is_compiling():
        return False
    return mask.is_floating_point() and is_transformed(mask)


def added_form(allowed: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The mask for PyTorch's kernels: booleans, or a bias with −∞ for masked keys."""
    added = allowed
    if bias is not None:
        added = _narrowed(bias, dtype)
        if allowed is not None and allowed.numel() < added.numel():
            # A small mask is added: biases are finite, and a sum has the simpler gradient.
            added = added + added.new_zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
        elif allowed is not None:
            added = torch.where(allowed, added, float("-inf"))
    if added is not None and added.dim() < 2:
        added = added.view(1, -1)  # The kernels require a query and a key dimension.
    return added


def _narrowed(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in this type; finite numbers stay finite."""
    largest = torch.finfo(dtype).max
    if torch.finfo(bias.dtype).max > largest:
        bias = torch.where(bias.isinf(), bias, bias.clamp(-largest, largest))
    return bias.to(dtype)


def _by_blocks(
    kernel: Any, query: Tensor, key: Tensor, value: Tensor, mask: Mask, grid: Grid
) -> Tensor:
    """Block by block: no whole mask is built, and keys that a block cannot read are skipped."""
    parts = []
    for start in range(0, query.shape[-2], _BLOCK):
        rows = slice(start, min(start + _BLOCK, query.shape[-2]))
        allowed = mask.allows(grid.part(rows))
        keys = span(allowed, key.shape[-2])
        if allowed.shape[-1] > 1:
            allowed = allowed[..., keys]
        if allowed.dim() < 2:
            allowed = allowed.view(1, -1)
        if keys.start == keys.stop:
            keys = slice(0, 1)  # Nothing is allowed: one masked key makes the result zero.
            allowed = torch.zeros(1, 1, dtype=torch.bool, device=query.device)
        part = (query[..., rows, :], key[..., keys, :], value[..., keys, :])
        parts.append(kernel(*part, attn_mask=allowed))
    return torch.cat(parts, -2)


@functools.cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def flex_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid | None,
    *,
    form: FusedForm,
    compiled: bool = True,
) -> Tensor:
    """The same as :func:`dot_context` with FlexAttention, ``query [B, H, Q, D]``.

    Args:
        query: queries.
        key: keys.
        value: values.
        mask: any mask.
        grid: the queries and keys that the mask is evaluated on; None without a mask.
        form: the factor on the dot products, and the sink or cap.
        compiled: False for FlexAttention's eager implementation.
    """
    block = None
    if isinstance(mask, Mask) and grid is not None:
        shape = (*query.shape[:3], key.shape[2])
        block = flex_mask(mask, shape, query.device, first=grid.first)
    flex = _compiled_flex() if compiled else flex_attention
    width = value.shape[-1]
    if compiled:
        query, key, value = (_at_least_16(part) for part in (query, key, value))
    given: dict[str, Any] = {"scale": form.scale, "enable_gqa": _is_grouped(query, key)}
    if form.cap is not None:
        given["score_mod"] = _capped(form.cap, form.factor)
    if form.sink is None:
        context: Tensor = flex(query, key, value, block_mask=block, **given)
        return context[..., :width]
    aux = AuxRequest(lse=True)
    context, found = flex(query, key, value, block_mask=block, return_aux=aux, **given)
    # exp(s) more in the sum S of the exponentials: S / (exp(s) + S) = sigmoid(log S − s).
    share = torch.sigmoid(found.lse - per_head(form.sink, query).squeeze(-1))
    return context[..., :width] * share.unsqueeze(-1).to(context.dtype)


def _at_least_16(part: Tensor) -> Tensor:
    """Zeros up to 16 entries, which the compiled kernel needs; dot products stay the same."""
    missing = 16 - part.shape[-1]
    return F.pad(part, [0, missing]) if missing > 0 else part


def _capped(cap: float, factor: float) -> Callable[..., Tensor]:
    """``factor · c tanh(score / c)``, for FlexAttention."""

    def change(score: Tensor, *where: Tensor) -> Tensor:
        return torch.tanh(score / cap) * (cap * factor)

    return change


def _is_grouped(query: Tensor, key: Tensor) -> bool:
    """Whether each head of keys is read by several heads of queries."""
    if query.dim() < 3 or key.dim() < 3:
        return False
    heads, key_heads = query.shape[-3], key.shape[-3]
    if heads == key_heads or heads == 1 or key_heads == 1:  # noqa: SIM103
        return False  # A constant, even if the sizes are symbolic.
    return True
