"""Attention of short sequences in C, against the plain formula in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import MultiHeadAttention, attend, watch
from heedful.attention.masks import causal, document, padding
from heedful.kernels import short_attention as short
from heedful.kernels import short_attention_operators as short_operators
from heedful.training.operations import operation_counter
from tolerance import assert_near

pytestmark = pytest.mark.skipif(short.library() is None, reason="no C compiler")

LEAST = short._LEAST


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most test cases are below the size from which C is used."""
    monkeypatch.setattr(short, "_LEAST", 1)


#            B, H, G, Q, K, D, E
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (3, 4, 4, 12, 12, 32, 32),
    (2, 4, 2, 7, 13, 8, 24),
    (2, 3, 1, 16, 17, 5, 9),
    (2, 2, 2, 33, 3, 64, 64),
    (1, 2, 2, 128, 128, 16, 16),
]


def _projected(batch: int, length: int, heads: int, width: int) -> Tensor:
    """``[B, H, L, D]`` in the memory layout of projections."""
    made = torch.randn(batch, length, heads * width)
    return made.view(batch, length, heads, width).transpose(1, 2).detach().requires_grad_()


def _plain(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, scale: float) -> Tensor:
    each = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(each, 1) for part in (key, value))
    scores = (query @ key.mT * scale).masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ value


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "keys", "pairs", "heads"])
@pytest.mark.parametrize("shape", SHAPES)
def test_contexts_and_gradients(shape: tuple[int, ...], kind: str, is_causal: bool) -> None:
    batch, heads, groups, queries, keys, width, value_width = shape
    torch.manual_seed(queries)
    query = _projected(batch, queries, heads, width)
    key, value = (_projected(batch, keys, groups, n) for n in (width, value_width))
    mask = {
        "none": None,
        "keys": torch.arange(keys) < torch.randint(0, keys + 1, (batch, 1, 1, 1)),
        "pairs": torch.rand(queries, keys) < 0.6,
        "heads": torch.rand(batch, heads, queries, keys) < 0.6,
    }[kind]
    assert short.is_supported(query, key, value, mask) == (queries >= 4)
    ours = short_operators.short_attention(query, key, value, mask, is_causal, 0.3)
    given = torch.randn_like(ours)
    found = (ours.detach(), *torch.autograd.grad(ours, (query, key, value), given))

    seen = torch.ones(batch, heads, queries, keys, dtype=torch.bool)
    if is_causal:
        seen = seen.tril(keys - queries)
    if mask is not None:
        seen = seen & mask
    wide = [part.detach().double().requires_grad_() for part in (query, key, value)]
    context = _plain(*wide, seen, 0.3)
    expected = (context.detach(), *torch.autograd.grad(context, wide, given.double()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_multi_head_attention_uses_it_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    layer, given = MultiHeadAttention(16, heads=4, key_heads=2), torch.randn(3, 9, 16)
    masks = (None, causal(), padding(torch.tensor([9, 4, 1])), document(torch.arange(9) // 4))
    found: list[list[Tensor]] = [[], []]
    calls, compiled = 0, short_operators.short_attention

    def counted(*arguments: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return compiled(*arguments)

    for way in (0, 1):
        monkeypatch.setattr(short_operators, "short_attention", counted)
        if way:
            monkeypatch.setattr(short_operators, "is_supported", lambda *_: False)
        for mask in masks:
            own = given.clone().requires_grad_()
            result = layer(own, own, mask=mask)
            found[way] += [result, *torch.autograd.grad(result.square().sum(), own)]
    assert calls == len(masks)
    for one, other in zip(*found, strict=True):
        # Projections of 16 numbers before and after sums over 9 keys.
        assert_near(one, other, terms=16 * 9)


def test_small_inputs_use_pytorchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short, "_LEAST", LEAST)
    for batch, heads, length, width, ours in (
        (1, 4, 16, 8, False),
        (4, 4, 16, 32, False),
        (16, 4, 16, 32, True),  # exactly 2^19
        (15, 4, 16, 32, False),
        (1, 1, 128, 32, True),
    ):
        query, key, value = (_projected(batch, length, heads, width) for _ in range(3))
        assert short.is_supported(query, key, value, None) == ours
        assert short.is_supported(query, key[:, :, :-1], value[:, :, :-1], None) == (
            batch * heads * length * (length - 1) * width >= 1 << 19
        )


def test_it_is_not_used_with_dropout_or_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(short_operators, "short_attention", never)
    given = torch.randn(2, 5, 8)
    MultiHeadAttention(8, heads=2, dropout=0.5).train()(given, given)
    layer = MultiHeadAttention(8, heads=2)
    with watch(layer):
        layer(given, given)
    with pytest.raises(AssertionError, match="called"):
        layer(given, given)


def test_results_do_not_depend_on_threads() -> None:
    torch.manual_seed(1)
    query, key, value = (_projected(40, 20, 4, 16) for _ in range(3))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            context = short_operators.short_attention(query, key, value, None, True, 0.25)
            gradients = torch.autograd.grad(context.square().sum(), (query, key, value))
            found.append((context, *gradients))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_nan_stays_in_its_entry() -> None:
    query, key, value = (torch.randn(2, 1, 4, 8) for _ in range(3))
    query[0, 0, 2, 3] = float("nan")
    context = attend(query, key, value)
    assert context[0, 0, 2].isnan().all()
    assert context.isnan().sum() == 8


def test_operations_are_counted_like_pytorchs_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    for _ in range(2):
        query, key, value = (_projected(2, 6, 2, 8) for _ in range(3))
        with operation_counter() as counter:
            attend(query, key, value).sum().backward()
        counts.append(counter.get_total_flops())
        monkeypatch.setattr(short_operators, "is_supported", lambda *_: False)
    assert counts[0] == counts[1] > 0
