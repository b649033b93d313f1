"""Pointers and learned queries, against loops and PyTorch's modules in float64."""

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    LatentAttention,
    LearnedQueries,
    MultiHeadAttention,
    Pointer,
    masks,
    scores,
    watch,
)
from heedful.attention.positions import Rotary

B, Q, K, DQ, DK, U = 2, 3, 5, 4, 6, 7
TIGHT = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(8)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, **TIGHT)
    cost = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    ours, theirs = (
        torch.autograd.grad((out * cost).sum(), inputs, retain_graph=True)
        for out in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **TIGHT)


# Pointer


def test_a_pointer_is_the_papers() -> None:
    """One query and key after another."""
    pointer = Pointer(scores.Additive(DQ, DK, U)).double()
    d, e = random(B, Q, DQ), random(B, K, DK)
    score = pointer.score
    u = torch.stack(
        [
            score.v
            @ torch.tanh(
                score.key_projection.weight @ e[b, j] + score.query_projection.weight @ d[b, i]
            )
            for b in range(B)
            for i in range(Q)
            for j in range(K)
        ]
    ).view(B, Q, K)
    expected = (u.exp() / u.exp().sum(-1, keepdim=True)).log()
    same(pointer(d, e), expected, [d, e, *pointer.parameters()])
    same(pointer.read(d, pointer.remember(e)), expected, [d, e, *pointer.parameters()])
    with watch(pointer) as seen, watch(pointer, rows=[-1]) as last:
        pointer(d, e)
    torch.testing.assert_close(seen[""][0], expected.exp().unsqueeze(1).detach(), **TIGHT)
    torch.testing.assert_close(last[""][0], seen[""][0][:, :, -1:], **TIGHT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_masked_keys_are_impossible_and_nothing_is_nan(dtype: torch.dtype) -> None:
    pointer = Pointer(scores.Additive(DQ, DK, U)).to(dtype)
    d = torch.randn(B, Q, DQ).to(dtype).requires_grad_()
    e = torch.randn(B, K, DK).to(dtype).requires_grad_()
    allowed = torch.rand(B, Q, K) > 0.3
    allowed[0, 1] = False
    allowed[0, 0, 2] = True
    with watch(pointer) as seen:
        found = pointer(d, e, allowed)
    assert found.dtype == dtype
    assert not found.isnan().any()
    assert found.isneginf().equal(~allowed)
    assert seen[""][0][0, 0, 1].eq(0).all()
    found[0, 0, 2].backward()
    for part in (d, e, *pointer.parameters()):
        assert part.grad is not None
        assert part.grad.isfinite().all()
    assert d.grad is not None
    assert d.grad[0, 1].eq(0).all()
    numbers = torch.zeros(B, Q, K).masked_fill(~allowed, float("-inf"))
    torch.testing.assert_close(pointer(d, e, numbers), found)


def test_a_pointer_learns_to_sort() -> None:
    """Each step points to the smallest number that was not yet chosen."""
    pointer = Pointer(scores.Additive(2, 1, 16))
    optimizer = torch.optim.Adam(pointer.parameters(), lr=0.05)
    for _ in range(150):
        numbers = torch.rand(32, 4, 1)
        order = numbers.squeeze(-1).argsort(-1)
        taken = nn.functional.one_hot(order, 4).cumsum(1) - nn.functional.one_hot(order, 4)
        query = torch.ones(32, 4, 2)
        loss = nn.functional.nll_loss(pointer(query, numbers, taken == 0).transpose(1, 2), order)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert pointer(query, numbers, taken == 0).argmax(-1).eq(order).float().mean() > 0.9


# Learned queries


def test_learned_queries_are_torchs_attention_with_a_parameter() -> None:
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    heads = MultiHeadAttention(8, 2).double()
    pool = LearnedQueries(heads, 3, 8, residual=True).double()
    nn.init.normal_(pool.latents)
    with torch.no_grad():
        parts = (heads.query_projection, heads.key_projection, heads.value_projection)
        for part, weight in zip(parts, theirs.in_proj_weight.chunk(3), strict=True):
            part.weight.copy_(weight)
        heads.output_projection.weight.copy_(theirs.out_proj.weight)
    x, lengths = random(B, K, 8), torch.tensor([5, 2])
    queries = pool.latents.expand(B, 3, 8)
    ignored = torch.arange(K) >= lengths.unsqueeze(1)
    attended, weights = theirs(queries, x, x, key_padding_mask=ignored, average_attn_weights=False)
    found = pool(x, mask=masks.padding(lengths))
    same(found, queries + attended, [x, pool.latents])
    with watch(pool) as seen:
        pool(x, mask=masks.padding(lengths))
    torch.testing.assert_close(seen["attention"][0], weights, **TIGHT)
    pool.residual = False
    same(pool(x, mask=masks.padding(lengths)), attended, [x, pool.latents])


def test_the_order_of_the_input_does_not_matter() -> None:
    pool = LearnedQueries(MultiHeadAttention(8, 2, key_dim=6), 4, 8).double()
    x = random(B, K, 6)
    torch.testing.assert_close(pool(x[:, torch.randperm(K)]), pool(x), **TIGHT)
    assert pool(x[:, :1]).shape == (B, 4, 8)


def test_an_empty_input_gives_the_queries_alone() -> None:
    pool = LearnedQueries(MultiHeadAttention(8, 2, bias=False), 3, 8, residual=True)
    x = torch.randn(B, K, 8, requires_grad=True)
    found = pool(x, mask=masks.padding(torch.tensor([0, 5])))
    assert found[0].equal(pool.latents)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_compiled_without_graph_breaks() -> None:
    torch._dynamo.reset()
    x = random(B, K, 8).detach()
    pool = LearnedQueries(MultiHeadAttention(8, 2), 3, 8).double()
    pointer = Pointer(scores.Additive(8, 8, U)).double()
    with torch.no_grad():
        fast = torch.compile(pool, fullgraph=True, backend="eager")
        torch.testing.assert_close(fast(x), pool(x), **TIGHT)
        quick = torch.compile(pointer, fullgraph=True, backend="eager")
        torch.testing.assert_close(quick(x, x), pointer(x, x), **TIGHT)


def test_what_has_no_meaning_is_refused() -> None:
    heads = MultiHeadAttention(8, 2)
    with pytest.raises(ValueError, match="count must be at least 1"):
        LearnedQueries(heads, 0, 8)
    with pytest.raises(ValueError, match="differs from the width of the attention's queries, 8"):
        LearnedQueries(heads, 2, 6)
    with pytest.raises(ValueError, match="learned queries have no positions"):
        LearnedQueries(MultiHeadAttention(8, 2, positions=Rotary(4)), 2, 8)
    with pytest.raises(ValueError, match="learned queries have no positions"):
        LearnedQueries(LatentAttention(8, 2, 3, rotary=Rotary(2)), 2, 8)
    compressed = LatentAttention(8, 2, 3, query_latent_size=4)
    assert LearnedQueries(compressed, 2, 8)(torch.zeros(1, 3, 8)).shape == (1, 2, 8)
    with pytest.raises(ValueError, match="differs from the width of the attention's queries, 8"):
        LearnedQueries(compressed, 2, 4)
    with pytest.raises(ValueError, match="use a projection"):
        LearnedQueries(MultiHeadAttention(8, 2, aggregate="mean"), 2, 8, residual=True)
    with pytest.raises(TypeError, match="attention must be a MultiHeadAttention"):
        LearnedQueries(Pointer(), 2, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a causal mask has no meaning"):
        LearnedQueries(heads, 2, 8)(torch.zeros(1, 3, 8), mask=masks.causal())
    with pytest.raises(ValueError, match="needs the weights of the step before"):
        Pointer(scores.Coverage(4, 4, 4))
    with pytest.raises(TypeError, match="score must be a Score"):
        Pointer(masks.causal())  # type: ignore[arg-type]
