"""Selected blocks of keys, against a loop over queries and blocks."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import MultiHeadAttention, attend, block_sparse, masks, watch
from heedful.attention.positions import Rotary


def selected(
    q: Tensor, k: Tensor, place: int | None, size: int, count: int, length: int
) -> list[bool]:
    """Which keys ``[K]`` one query may attend to."""
    fits = {}
    for block in range(math.ceil(len(k) / size)):
        keys = [j for j in range(block * size, (block + 1) * size) if j < length]
        if not keys or (place is not None and block > place // size):
            continue
        fits[block] = float(q @ torch.stack([k[j] for j in keys]).mean(0))
        if place is not None and block == place // size:
            fits[block] = math.inf
    if place is not None and place // size * size >= length:
        fits[place // size] = math.inf  # Its own block, although padding leaves nothing of it.
    best = sorted(fits, key=lambda block: -fits[block])[:count]
    return [j // size in best for j in range(len(k))]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("size", "count"), [(3, 2), (4, 1), (1, 5), (20, 3), (2, 50)])
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_queries_select_the_blocks_with_the_largest_means(
    groups: int, size: int, count: int, causal: bool
) -> None:
    torch.manual_seed(1)
    q = torch.randn(2, 4, 5, 6, dtype=torch.float64)
    k = torch.randn(2, groups, 14, 6, dtype=torch.float64)
    lengths = torch.tensor([14, 8])
    for first in (None, torch.tensor([3, 0])):
        mask = masks.top_blocks(
            q, k, size=size, count=count, causal=causal, lengths=lengths, first=first
        )
        found = mask.dense((2, 4, 5, 14)).expand(2, 4, 5, 14)
        for b in range(2):
            start = 9 if first is None else int(first[b])
            for h in range(4):
                for i in range(5):
                    keys = k[b, h * groups // 4]
                    place = start + i if causal else None
                    expected = selected(q[b, h, i], keys, place, size, count, int(lengths[b]))
                    assert found[b, h, i].tolist() == expected


def test_all_blocks_are_the_whole_attention_and_few_are_their_keys() -> None:
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, 2, 12, 4, dtype=torch.float64).unbind()
    every = masks.causal() & masks.top_blocks(q, k, size=3, count=4)
    torch.testing.assert_close(attend(q, k, v, mask=every), attend(q, k, v, mask=masks.causal()))
    q.requires_grad_()
    k.requires_grad_()
    few = masks.causal() & masks.top_blocks(q, k, size=3, count=2)
    allowed = few.dense((2, 2, 12, 12))
    scores = (q @ k.mT / 2).masked_fill(~allowed, float("-inf"))
    expected, found = scores.softmax(-1) @ v, attend(q, k, v, mask=few)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.sin().sum(), (q, k)),
        torch.autograd.grad(expected.sin().sum(), (q, k)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert allowed.sum(-1).max() == 6


def test_nothing_of_the_future_is_seen() -> None:
    """Other keys after a query change neither its selection nor its context."""
    torch.manual_seed(3)
    x = torch.randn(1, 1, 16, 4)
    changed = torch.cat([x[..., :9, :], torch.randn(1, 1, 7, 4)], -2)
    whole = [
        attend(one, one, one, mask=masks.causal() & masks.top_blocks(one, one, size=4, count=2))
        for one in (x, changed)
    ]
    torch.testing.assert_close(whole[0][..., :9, :], whole[1][..., :9, :])


def test_wrong_numbers_are_refused() -> None:
    x = torch.zeros(1, 1, 3, 4)
    for given in ({"size": 0, "count": 1}, {"size": 1, "count": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            masks.top_blocks(x, x, **given)
    with pytest.raises(ValueError, match=r"expected \[B\]"):
        masks.top_blocks(x, x, size=1, count=1, lengths=torch.ones(1, 1, dtype=torch.long))


def attended(
    q: Tensor, k: Tensor, v: Tensor, mask: masks.Mask, **given: object
) -> tuple[Tensor, list[Tensor]]:
    """A context and its gradients."""
    parts = [part.clone().requires_grad_() for part in (q, k, v)]
    context = attend(*parts, mask=mask, **given)
    return context.detach(), list(torch.autograd.grad(context.sin().sum(), parts))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("length", "size", "count"), [(70, 8, 3), (64, 16, 1), (67, 5, 30)])
@pytest.mark.parametrize("queries", [None, 9])
def test_only_selected_blocks_are_computed(
    groups: int, length: int, size: int, count: int, queries: int | None, monkeypatch: Any
) -> None:
    """The kernel that gathers the queries of each block, against the mask matrix, in float64."""
    monkeypatch.setattr(block_sparse, "_LONG", 0)
    monkeypatch.setattr(block_sparse, "_SAVES", 0)
    calls = []
    kernel = block_sparse.block_sparse_attention
    spy = lambda *given, **named: calls.append(1) or kernel(*given, **named)  # noqa: E731
    monkeypatch.setattr(block_sparse, "block_sparse_attention", spy)
    torch.manual_seed(4)
    q = torch.randn(2, 4, queries or length, 6, dtype=torch.float64)
    k = torch.randn(2, groups, length, 6, dtype=torch.float64)
    v = torch.randn(2, groups, length, 5, dtype=torch.float64)
    dense = masks.causal() & masks.top_blocks(q, k, size=size, count=count)
    for mask in (
        masks.causal() & masks.TopBlocks(size, count),
        masks.TopBlocks(size, count) & masks.causal(),
    ):
        context, gradients = attended(q, k, v, mask, positions=Rotary(6))
        assert calls.pop()
        turned = [Rotary(6).turn_query(q, torch.arange(length - q.shape[-2], length))]
        turned.append(Rotary(6).turn_key(k, torch.arange(length)))
        dense = masks.causal() & masks.top_blocks(*turned, size=size, count=count)
        expected, theirs = attended(q, k, v, dense, positions=Rotary(6))
        assert not calls
        torch.testing.assert_close(context, expected)
        torch.testing.assert_close(gradients, theirs)


def test_one_head_of_queries_reads_the_blocks_of_each_head_of_keys(monkeypatch: Any) -> None:
    monkeypatch.setattr(block_sparse, "_LONG", 0)
    monkeypatch.setattr(block_sparse, "_SAVES", 0)
    torch.manual_seed(7)
    q, k = torch.randn(2, 1, 12, 4), torch.randn(2, 4, 12, 4)
    mask = masks.causal() & masks.TopBlocks(3, 2)
    expected = attend(q.expand(2, 4, 12, 4), k, k, mask=mask)
    torch.testing.assert_close(attend(q, k, k, mask=mask), expected)


def test_other_masks_and_transforms_use_the_matrix(monkeypatch: Any) -> None:
    monkeypatch.setattr(block_sparse, "_LONG", 0)
    monkeypatch.setattr(block_sparse, "_SAVES", 0)
    torch.manual_seed(5)
    q, k, v = torch.randn(3, 2, 2, 12, 4, dtype=torch.float64).unbind()
    top, lengths = masks.TopBlocks(3, 2), masks.padding(torch.tensor([12, 7]))
    dense = masks.top_blocks(q, k, size=3, count=2)
    for found, expected in (
        (masks.causal() & top & lengths, masks.causal() & dense & lengths),
        (masks.causal() & (top | masks.sinks(1)), masks.causal() & (dense | masks.sinks(1))),
        (masks.causal() & ~top, masks.causal() & ~dense),
    ):
        torch.testing.assert_close(attended(q, k, v, found), attended(q, k, v, expected))
    mask = masks.causal() & top
    expected = attend(q, k, v, mask=masks.causal() & dense)
    mapped = torch.func.vmap(lambda *parts: attend(*parts, mask=mask))(q, k, v)
    torch.testing.assert_close(mapped, expected)
    halves = [part.bfloat16() for part in (q, k, v)]
    half, expected = (attend(*map(to, halves), mask=mask) for to in (Tensor.bfloat16, Tensor.float))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half, expected.bfloat16())
    with pytest.raises(ValueError, match="needs queries and keys"):
        mask.dense((2, 2))


def test_watching_shows_the_selected_blocks() -> None:
    torch.manual_seed(6)
    module = MultiHeadAttention(8, 2, mask=masks.TopBlocks(3, 2)).eval()
    x = torch.randn(2, 11, 8)
    expected = module(x, x, mask=masks.causal())
    with watch(module) as seen:
        torch.testing.assert_close(module(x, x, mask=masks.causal()), expected)
    whole = seen[""][0]
    assert int((whole > 0).sum(-1).max()) <= 6
    with watch(module, rows=[4, 10]) as seen:
        module(x, x, mask=masks.causal())
    torch.testing.assert_close(seen[""][0], whole[:, :, [4, 10]])
    ordered = torch.zeros(11, 11).masked_fill(~masks.causal().dense((11, 11)), -torch.inf)
    torch.testing.assert_close(module(x, x, mask=ordered), expected)
