"""Addressing and allocation of a memory: the papers' equations as loops, gradients, and limits."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import addressing, allocation

B, H, N, W = 2, 3, 5, 4
_drawn = torch.Generator().manual_seed(8)
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
Loop = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def share(*shape: int) -> Tensor:
    """Numbers between 0 and 1, as a leaf."""
    return torch.rand(*shape, dtype=torch.float64, generator=_drawn).requires_grad_()


def rows(*shape: int) -> Tensor:
    """Rows that sum to 1, as a leaf."""
    return torch.rand(*shape, dtype=torch.float64, generator=_drawn).softmax(-1).requires_grad_()


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=_drawn).requires_grad_()


def same(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, **TIGHT)
    probe = torch.randn_like(found)
    ours, theirs = (
        torch.autograd.grad(one, leaves, probe, retain_graph=True) for one in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


# The equations, one number at a time


def content_loop(key: Tensor, strength: Tensor, memory: Tensor) -> Tensor:
    def length(x: Tensor) -> Tensor:
        return (sum(x[i] ** 2 for i in range(W)) + addressing.CONTENT_EPSILON).sqrt()

    result = []
    for b in range(B):
        for h in range(H):
            k = key[b, h]
            powers = [
                (strength[b, h] * (k * m).sum() / (length(k) * length(m))).exp() for m in memory[b]
            ]
            result += [one / sum(powers) for one in powers]
    return torch.stack(result).view(B, H, N)


def shift_loop(weights: Tensor, shifts: Tensor) -> Tensor:
    reach = shifts.shape[-1] // 2
    moved = [
        sum(
            weights[:, :, j] * shifts[:, :, d + reach]
            for j in range(N)
            for d in range(-reach, reach + 1)
            if (j + d) % N == i
        )
        for i in range(N)
    ]
    return torch.stack(moved, -1)


def sharpen_loop(weights: Tensor, power: Tensor) -> Tensor:
    raised = [weights[:, :, i] ** power for i in range(N)]
    return torch.stack([one / sum(raised) for one in raised], -1)


def write_loop(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    for h in range(weights.shape[1]):
        memory = memory * (1 - torch.einsum("bn,bw->bnw", weights[:, h], erase[:, h]))
    for h in range(weights.shape[1]):
        memory = memory + torch.einsum("bn,bw->bnw", weights[:, h], add[:, h])
    return memory


def allocation_loop(usage: Tensor) -> Tensor:
    result = []
    for row in usage:
        used = 1 - (1 - allocation.USAGE_EPSILON) * (1 - row)
        weights: dict[int, Tensor] = {}
        product = torch.ones((), dtype=row.dtype)
        for place in row.argsort().tolist():
            weights[place] = (1 - used[place]) * product
            product = product * used[place]
        result.append(torch.stack([weights[i] for i in range(N)]))
    return torch.stack(result)


def links_loop(links: Tensor, precedence: Tensor, weights: Tensor) -> Tensor:
    result = torch.zeros_like(links)
    for i in range(N):
        for j in range(N):
            if i != j:
                result[:, i, j] = (1 - weights[:, i] - weights[:, j]) * links[:, i, j] + weights[
                    :, i
                ] * precedence[:, j]
    return result


CASES: dict[str, tuple[Loop, Loop, list[Tensor]]] = {
    "content": (
        addressing.content_weights,
        content_loop,
        [vectors(B, H, W), share(B, H), vectors(B, N, W)],
    ),
    "interpolate": (
        addressing.interpolate,
        lambda g, w, p: g[..., None] * w + (1 - g[..., None]) * p,
        [share(B, H), rows(B, H, N), rows(B, H, N)],
    ),
    "shift by 1": (addressing.shift, shift_loop, [rows(B, H, N), rows(B, H, 3)]),
    "shift by 2": (addressing.shift, shift_loop, [rows(B, H, N), rows(B, H, 5)]),
    "no shift": (addressing.shift, shift_loop, [rows(B, H, N), rows(B, H, 1)]),
    "sharpen": (addressing.sharpen, sharpen_loop, [rows(B, H, N), share(B, H)]),
    "read": (
        addressing.read_slots,
        lambda w, m: torch.einsum("bhn,bnw->bhw", w, m),
        [rows(B, H, N), vectors(B, N, W)],
    ),
    "write, one head": (
        addressing.erase_and_add,
        write_loop,
        [vectors(B, N, W), rows(B, 1, N), share(B, 1, W), vectors(B, 1, W)],
    ),
    "write": (
        addressing.erase_and_add,
        write_loop,
        [vectors(B, N, W), rows(B, H, N), share(B, H, W), vectors(B, H, W)],
    ),
    "retention": (
        allocation.retention,
        lambda f, w: torch.stack([1 - f[:, r, None] * w[:, r] for r in range(H)]).prod(0),
        [share(B, H), rows(B, H, N)],
    ),
    "usage": (
        allocation.next_usage,
        lambda u, w, kept: (u + w - u * w) * kept,
        [share(B, N), rows(B, N), share(B, N)],
    ),
    "allocation": (allocation.allocation_weights, allocation_loop, [share(B, N)]),
    "write weights": (
        allocation.write_weights,
        lambda g, ga, a, c: g * (ga * a + (1 - ga) * c),
        [share(B, 1), share(B, 1), rows(B, N), rows(B, N)],
    ),
    "links": (allocation.next_links, links_loop, [share(B, N, N), rows(B, N), rows(B, N)]),
    "precedence": (
        allocation.next_precedence,
        lambda p, w: (1 - w.sum(-1, keepdim=True)) * p + w,
        [rows(B, N), rows(B, N)],
    ),
    "follow": (
        lambda links, w: torch.cat(allocation.follow_links(links, w)),
        lambda links, w: torch.cat(
            [torch.einsum("bji,bhj->bhi", links, w), torch.einsum("bij,bhj->bhi", links, w)]
        ),
        [share(B, N, N), rows(B, H, N)],
    ),
    "read weights": (
        allocation.read_weights,
        lambda m, b, c, f: m[..., :1] * b + m[..., 1:2] * c + m[..., 2:] * f,
        [rows(B, H, 3), rows(B, H, N), rows(B, H, N), rows(B, H, N)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_equations(case: str) -> None:
    function, loop, leaves = CASES[case]
    same(function(*leaves), loop(*leaves), leaves)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(case: str) -> None:
    function, _, leaves = CASES[case]
    assert torch.autograd.gradcheck(function, leaves)


# Limits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [0.0, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("strength", [0.0, 100.0, 1e6])
def test_no_number_is_lost(power: float, strength: float, dtype: torch.dtype) -> None:
    """A memory and a key of zeros, weights of zeros and one-hot weights, huge β and γ."""
    memory = torch.stack([torch.zeros(N, W), torch.randn(N, W)]).to(dtype).requires_grad_()
    key = torch.stack([torch.zeros(H, W), torch.randn(H, W)]).to(dtype).requires_grad_()
    many = torch.full((2, H), strength, dtype=dtype, requires_grad=True)
    found = addressing.content_weights(key, many, memory)
    torch.testing.assert_close(found[0], torch.full_like(found[0], 1 / N))
    hard = torch.stack([torch.eye(N)[:H], torch.zeros(H, N)]).to(dtype).requires_grad_()
    gamma = torch.full((2, H), power, dtype=dtype, requires_grad=True)
    sharp = addressing.sharpen(hard, gamma)
    again = addressing.sharpen(found, gamma)
    for one in (found, sharp, again):
        assert one.isfinite().all()
        torch.testing.assert_close(one.sum(-1), torch.ones(2, H, dtype=dtype))
    leaves = [memory, key, many, hard, gamma]
    total = (found * torch.randn_like(found)).sum() + (sharp * sharp.detach()).sum()
    total = total + (again * torch.randn_like(again)).sum()
    for gradient in torch.autograd.grad(total, leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_empty_memory_has_finite_gradients(dtype: torch.dtype) -> None:
    key, memory = (torch.zeros(1, size, 4, dtype=dtype, requires_grad=True) for size in (1, 3))
    weights = addressing.content_weights(key, torch.ones(1, 1, dtype=dtype), memory)
    assert weights.dtype == dtype
    assert all(
        each.isfinite().all() for each in torch.autograd.grad(weights.square().sum(), (key, memory))
    )


def test_sharpening_by_a_hundred_takes_the_largest() -> None:
    found = addressing.sharpen(torch.tensor([[[0.3, 0.4, 0.3]]]), torch.tensor([[100.0]]))
    torch.testing.assert_close(found, torch.tensor([[[0.0, 1.0, 0.0]]]))


def test_a_shift_of_one_moves_around_the_end() -> None:
    weights, right = torch.eye(N).unsqueeze(0), torch.tensor([0.0, 0.0, 1.0]).expand(1, N, 3)
    torch.testing.assert_close(addressing.shift(weights, right), weights.roll(1, -1))
    torch.testing.assert_close(addressing.shift(weights, right.flip(-1)), weights.roll(-1, -1))


@pytest.mark.parametrize("count", [2, 7])
def test_shifts_that_do_not_fit_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} shifts of 5 slots: give an odd number"):
        addressing.shift(rows(B, H, N), rows(B, H, count))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 30), hard=st.booleans())
def test_weights_stay_weights(seed: int, steps: int, hard: bool) -> None:
    """Over many steps, also with gates of exactly 0 and 1: at least 0, and sums at most 1."""
    torch.manual_seed(seed)

    def gate(*shape: int) -> Tensor:
        return torch.rand(*shape).round() if hard else torch.rand(*shape)

    def weights(*shape: int) -> Tensor:
        return (torch.randn(*shape) * (100 if hard else 1)).softmax(-1)

    usage, written, precedence = torch.zeros(B, N), torch.zeros(B, N), torch.zeros(B, N)
    links, read = torch.zeros(B, N, N), torch.zeros(B, H, N)
    for _ in range(steps):
        usage = allocation.next_usage(usage, written, allocation.retention(gate(B, H), read))
        free = allocation.allocation_weights(usage)
        written = allocation.write_weights(gate(B, 1), gate(B, 1), free, weights(B, N))
        links = allocation.next_links(links, precedence, written)
        precedence = allocation.next_precedence(precedence, written)
        backward, forward = allocation.follow_links(links, read)
        read = allocation.read_weights(weights(B, H, 3), backward, weights(B, H, N), forward)
        for one in (free, written, precedence, read, backward, forward, links, links.mT):
            assert one.min() >= -1e-6
            assert one.sum(-1).max() <= 1 + 1e-5
        assert usage.min() >= 0
        assert usage.max() <= 1 + 1e-6
        assert links.diagonal(dim1=1, dim2=2).abs().max() == 0


def test_allocation_prefers_free_slots() -> None:
    """All slots used: nothing is allocated. One free: it gets everything."""
    full = torch.ones(1, N)
    assert allocation.allocation_weights(full).abs().max() == 0
    one_free = full.clone()
    one_free[0, 3] = 0
    torch.testing.assert_close(
        allocation.allocation_weights(one_free), torch.eye(N)[3:4], atol=1e-5, rtol=0
    )


def test_links_follow_the_order_of_writing() -> None:
    """Slots written as 2, 0, 4: forward from 2 leads to 0, and backward from 4 leads to 0."""
    links, precedence = torch.zeros(1, N, N), torch.zeros(1, N)
    for place in (2, 0, 4):
        written = torch.eye(N)[place].unsqueeze(0)
        links = allocation.next_links(links, precedence, written)
        precedence = allocation.next_precedence(precedence, written)
    backward, forward = allocation.follow_links(links, torch.eye(N)[[2, 4]].unsqueeze(0))
    torch.testing.assert_close(forward[0, 0], torch.eye(N)[0])
    torch.testing.assert_close(backward[0, 1], torch.eye(N)[0])
