"""Positions of each row of a batch: as each row alone with its own position."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    DifferentialAttention,
    Memory,
    MultiHeadAttention,
    attend,
    attention_weights,
    dot,
    masks,
    normalizers,
    positions,
    scores,
    watch,
)
from heedful.attention.mechanism import FusedForm

B, H, Q, K, W = 3, 4, 2, 9, 6
FIRST = torch.tensor([5, 0, 7])
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
POSITIONS: dict[str, Callable[[], positions.RelativePositions | None]] = {
    "none": lambda: None,
    "rotary": lambda: positions.Rotary(W),
    "grid": lambda: positions.GridRotary(4, (3, 3)),
    "alibi": lambda: positions.ALiBi(H),
    "t5": lambda: positions.T5Buckets(H),
    "shaw": lambda: positions.Shaw(W, 3),
    "shaw, keys": lambda: positions.Shaw(W, 3, values=False),
    "xl": lambda: positions.TransformerXL(W, H),
}
MASKS: dict[str, Callable[[], masks.Mask | None]] = {
    "none": lambda: None,
    "causal": masks.causal,
    "window": lambda: masks.causal() & masks.window(2),
    "prefix": lambda: masks.prefix(torch.tensor([1, 3, 0])),
    "padding": lambda: masks.causal() & masks.padding(torch.tensor([9, 2, 0])),
    "block": lambda: masks.block(4) | masks.function(lambda q, k: (q - k) % 5 == 0),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


def made(kind: str) -> positions.RelativePositions | None:
    part = POSITIONS[kind]()
    if part is None:
        return None
    for one in part.parameters():
        nn.init.normal_(one)
    return part.double()


def of_row(mask: masks.Mask | None, row: int) -> Tensor | None:
    """The mask of one row, as booleans over its own positions."""
    if mask is None:
        return None
    first = int(FIRST[row])
    whole = mask.dense((B, 1, Q, K), first=first).expand(B, 1, Q, K)
    return whole[row : row + 1]


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(B, H, Q, W, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(B, H, K, W, dtype=torch.float64, requires_grad=True) for _ in "kv")
    return q, k, v


@pytest.mark.parametrize("first", [FIRST, FIRST.unsqueeze(1) + torch.arange(Q)], ids=["B", "BQ"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", POSITIONS)
def test_each_row_is_as_alone(kind: str, mask: str, first: Tensor) -> None:
    """Fused and plain; outputs and gradients."""
    q, k, v = inputs()
    part, rule = made(kind), MASKS[mask]()
    found = attend(q, k, v, positions=part, mask=rule, first=first)
    rows = [
        attend(
            *(one[row : row + 1] for one in (q, k, v)),
            positions=part,
            mask=of_row(rule, row),
            first=int(FIRST[row]),
        )
        for row in range(B)
    ]
    expected = torch.cat(rows)
    torch.testing.assert_close(found, expected, **TIGHT)
    cost = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    every = [q, k, v, *(part.parameters() if part is not None else ())]
    grads = [
        torch.autograd.grad((out * cost).sum(), every, allow_unused=True)
        for out in (found, expected)
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, **TIGHT)
    weights = attention_weights(q, k, positions=part, mask=rule, first=first)
    for row in range(B):
        single = attention_weights(
            q[row : row + 1],
            k[row : row + 1],
            positions=part,
            mask=of_row(rule, row),
            first=int(FIRST[row]),
        )
        torch.testing.assert_close(weights[row : row + 1], single, **TIGHT)


LAYERS: dict[str, Callable[[], MultiHeadAttention]] = {
    "rotary": lambda: MultiHeadAttention(16, 4, key_heads=2, positions=positions.Rotary(4)),
    "t5": lambda: MultiHeadAttention(16, 4, positions=positions.T5Buckets(4)),
    "shaw": lambda: MultiHeadAttention(16, 4, positions=positions.Shaw(4, 2)),
    "xl": lambda: MultiHeadAttention(16, 4, positions=positions.TransformerXL(4, 4)),
    "additive": lambda: MultiHeadAttention(16, 4, score=scores.Additive(4, 4, 5)),
    "sinks": lambda: MultiHeadAttention(
        16, 4, normalize=normalizers.SinkSoftmax(4), positions=positions.Rotary(4)
    ),
    "differential": lambda: DifferentialAttention(16, 2, positions=positions.ALiBi(4)),
    "local-m": lambda: MultiHeadAttention(16, 4, normalize=normalizers.LocalMonotonic(2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_of_rows_of_different_lengths(name: str) -> None:
    """Batched decoding: one cache with room for all, filled to a different length in each row."""
    layer = LAYERS[name]().double().eval()
    x = torch.randn(3, 8, 16, dtype=torch.float64)
    lengths = torch.tensor([4, 8, 1])
    room = layer.remember(x)
    garbage = Memory(*(torch.full_like(part, 1e6) for part in room))
    there = (torch.arange(8) < lengths.unsqueeze(1)).view(3, 1, 8, 1)
    memory = Memory(
        *(torch.where(there, one, other) for one, other in zip(room, garbage, strict=True))
    )
    new = x[torch.arange(3), lengths - 1].unsqueeze(1)
    found = layer.read(new, memory, masks.causal(), first=lengths - 1)
    with watch(layer) as seen, watch(layer, rows=[0]) as rows, watch(layer, top_k=1):
        watched = layer.read(new, memory, masks.causal(), first=lengths - 1)
    torch.testing.assert_close(watched, found, **TIGHT)
    torch.testing.assert_close(rows[""][0], seen[""][0], **TIGHT)
    for row, length in enumerate(lengths.tolist()):
        own = layer.remember(x[row : row + 1, :length])
        alone = layer.read(new[row : row + 1], own, first=length - 1)
        torch.testing.assert_close(found[row : row + 1], alone, **TIGHT)


def test_keys_at_positions_of_their_own() -> None:
    """Rotary: a batch padded on the left is as each row without padding."""
    layer = MultiHeadAttention(16, 4, positions=positions.Rotary(4)).double().eval()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    places = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
    allowed = torch.tensor([[True] * 5, [False, False, True, True, True]])[:, None, :]
    memory = layer.remember(x, first=places)
    found = layer.read(x[:, -1:], memory, allowed, first=places[:, -1])
    alone = layer(x[1:, -1:], x[1:, 2:])
    torch.testing.assert_close(found[1:], alone, **TIGHT)


def test_one_head_has_positions_of_each_row_too() -> None:
    for part in (positions.Rotary(W), positions.ALiBi(1), positions.T5Buckets(1)):
        attention = Attention(positions=part.double())
        q, k = torch.randn(B, Q, W).double(), torch.randn(B, K, W).double()
        found = attention(q, k, mask=masks.causal(), first=FIRST)
        for row in range(B):
            alone = attention(q[row], k[row], mask=masks.causal(), first=int(FIRST[row]))
            torch.testing.assert_close(found[row], alone, **TIGHT)


@pytest.mark.parametrize("first", [FIRST, FIRST.unsqueeze(1) + torch.arange(Q)], ids=["B", "BQ"])
def test_flex_attention_knows_them(first: Tensor) -> None:
    q, k, v = (part.detach() for part in inputs())
    mask = masks.causal() & masks.window(3)
    grid = masks.Grid((B, H, Q, K), q.device, first=first)
    with torch.no_grad():
        found = dot.flex_context(q, k, v, mask, grid, form=FusedForm(W**-0.5), compiled=False)
    torch.testing.assert_close(found, attend(q, k, v, mask=mask, first=FIRST))


def test_large_masks_by_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs()
    for first in (FIRST, FIRST.unsqueeze(1) + torch.arange(Q)):
        expected = attend(q, k, v, mask=masks.causal(), first=first)
        monkeypatch.setattr(dot, "_LARGE", 1)
        monkeypatch.setattr(dot, "_BLOCK", 1)
        torch.testing.assert_close(attend(q, k, v, mask=masks.causal(), first=first), expected)


@pytest.mark.parametrize("kind", ["rotary", "alibi", "t5", "xl"])
def test_compiled_without_graph_breaks(kind: str) -> None:
    torch._dynamo.reset()
    q, k, v = (part.detach() for part in inputs())
    part = made(kind)

    def call(first: Tensor) -> Tensor:
        return attend(q, k, v, positions=part, mask=masks.causal(), first=first)

    fast = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(fast(FIRST), call(FIRST), **TIGHT)


@pytest.mark.parametrize("kind", [positions.Learned(4, 12), positions.Sinusoidal(4)], ids=str)
def test_positions_that_are_added(kind: positions.AddedPositions) -> None:
    x = torch.randn(2, 3, 4)
    places = torch.tensor([[4, 5, 6], [9, 0, 11]])
    found = kind(x, places)
    for row in range(2):
        for place in range(3):
            alone = kind(x[row : row + 1, place : place + 1], int(places[row, place]))
            torch.testing.assert_close(found[row, place], alone[0, 0])
    torch.testing.assert_close(kind(x, places[:, 0])[0], found[0])


@pytest.mark.parametrize("first", [torch.zeros(0).long(), torch.zeros(0, 2).long()])
def test_no_rows_have_no_positions(first: Tensor) -> None:
    assert positions.Sinusoidal(4)(torch.zeros(0, 2, 4), first).shape == (0, 2, 4)


def test_wrong_positions_are_refused() -> None:
    x = torch.zeros(2, 3, 4)
    with pytest.raises(TypeError, match="first must be integers"):
        attend(x, x, x, positions=positions.Rotary(4), first=torch.zeros(2))
    with pytest.raises(ValueError, match=r"expected an integer, or integers \[B\]"):
        attend(x, x, x, positions=positions.Rotary(4), first=torch.zeros(2, 3, 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"expected an integer, or integers \[B\]"):
        attend(x[0], x[0], x[0], positions=positions.Rotary(4), first=torch.tensor([1]))
