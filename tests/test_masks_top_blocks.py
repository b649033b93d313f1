"""Selected blocks of keys, against a loop over queries and blocks."""

import math

import pytest
import torch
from torch import Tensor

from heedful.attention import attend, masks


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
