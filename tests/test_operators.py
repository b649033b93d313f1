"""Operators of ours under ``torch.ops.heedful``: PyTorch's own checks, and its transforms."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jacrev, vmap
from torch.library import opcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.attention.kernels import short, short_operators
from tolerance import assert_near

OPERATORS = torch.ops.heedful
Given = tuple[Any, ...]

SHORT = [
    # B, H, G, Q, K, D, E; mask
    ((2, 4, 2, 5, 7, 8, 6), "pairs", torch.float32),
    ((2, 4, 2, 5, 7, 8, 6), "causal", torch.float32),
    ((2, 4, 4, 5, 7, 8, 6), "keys", torch.float64),
    ((1, 2, 2, 2, 3, 4, 4), None, torch.float32),  # too short for C
]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


def short_given(
    shape: tuple[int, ...], kind: str | None, dtype: torch.dtype, needs: bool = True
) -> Given:
    batch, heads, groups, queries, keys, width, value_width = shape
    sizes = [(heads, queries, width), (groups, keys, width), (groups, keys, value_width)]
    parts = [torch.randn(batch, *size, dtype=dtype).requires_grad_(needs) for size in sizes]
    mask = None
    if kind in ("pairs", "keys"):
        mask = torch.rand((queries, keys) if kind == "pairs" else (batch, 1, 1, keys)) < 0.7
    return *parts, mask, kind == "causal", 0.4


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("case", SHORT)
def test_short_attention_and_its_backward(case: Given, needs: bool) -> None:
    given = short_given(*case, needs)
    opcheck(OPERATORS.short_attention.default, given)
    if needs:
        return
    context, weights = OPERATORS.short_attention(*given)
    back = (torch.randn_like(context), *given[:3], weights, given[-1])
    opcheck(OPERATORS.short_attention_backward.default, back)


def plain_short(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """By PyTorch's own kernel, of its plain formula."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, is_causal=causal, enable_gqa=True
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_of_short_attention(dtype: torch.dtype) -> None:
    shape = (2, 4, 2, 5, 7, 8, 6)
    query, key, value, mask, *others = short_given(shape, "keys", dtype, needs=False)
    masks = torch.rand(3, 2, 1, 5, 7) < 0.8
    queries, values = torch.randn(3, *query.shape).to(dtype), torch.randn(3, *value.shape).to(dtype)

    def found(attention: Callable[..., Tensor], *, wide: bool) -> list[Tensor]:
        change = Tensor.double if wide else Tensor.clone
        q, k, v, q3, v3 = map(change, (query, key, value, queries, values))

        def loss(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return attention(q, k, v, mask, *others).square().sum()

        def length(q: Tensor, k: Tensor) -> Tensor:
            return grad(loss, 1)(q, k, v, mask).square().sum()

        each, both = grad(loss, (0, 1, 2)), vmap(loss, (0, None, 0, 0))
        return [
            *each(q, k, v, mask),
            both(q3, k, v3, masks),
            vmap(loss, (None, None, 0, None))(q, k, v3, mask),
            *vmap(each, (0, None, 0, 0))(q3, k, v3, masks),
            *grad(lambda *given: both(*given, masks).sum(), (0, 1, 2))(q3, k, v3),
            *grad(length, (0, 1))(q, k),
            jacrev(lambda k: attention(q, k, v, mask, *others).sum((0, 1)))(k),
        ]

    def ours(*given: Any) -> Tensor:
        return short_operators.attention(*given)[0]

    results = found(ours, wide=False), found(plain_short, wide=True)
    for one, other in zip(*results, strict=True):
        assert_near(one, other, terms=64, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_of_short_attention(dtype: torch.dtype) -> None:
    given = short_given((1, 2, 1, 5, 4, 3, 2), "pairs", dtype)

    def found(attention: Callable[..., Tensor], parts: list[Tensor]) -> Sequence[Tensor]:
        context = attention(*parts, *given[3:])
        by = torch.autograd.grad(context.pow(3).sum(), parts, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in by), parts)

    ours = (
        found(short_operators.short_attention, list(given[:3])) if dtype == torch.float32 else None
    )
    wide = [part.detach().double().requires_grad_() for part in given[:3]]
    expected = found(plain_short, wide)
    if ours is None:
        ours = found(lambda *given: short_operators.attention(*given)[0], wide)
    for one, other in zip(ours, expected, strict=True):
        assert_near(one, other, terms=64, dtype=dtype)


@pytest.mark.skipif(short.library() is None, reason="no C compiler")
def test_batched_gradients_of_short_attention() -> None:
    """C was given the address of a batch of gradients, which has none."""
    given = short_given((2, 2, 2, 5, 7, 8, 6), None, torch.float32)
    grads = torch.randn(3, 2, 2, 5, 6)
    found = [
        torch.autograd.grad(attention(*given), given[:3], grads, is_grads_batched=True)
        for attention in (short_operators.short_attention, plain_short)
    ]
    for one, other in zip(*found, strict=True):
        assert_near(one, other, terms=64)
