"""Structured self-attention and the disagreement of attentions."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention, masks, watch
from heedful.attention.disagreement import disagreement
from heedful.attention.normalizers import Sparsemax
from heedful.attention.structured import StructuredSelfAttention

DIM, HIDDEN, HOPS = 4, 5, 3


def layer(**more: object) -> StructuredSelfAttention:
    torch.manual_seed(0)
    return StructuredSelfAttention(DIM, HIDDEN, HOPS, **more).double()


def states(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, DIM, dtype=dtype, requires_grad=True)


def test_it_is_the_papers_two_layers() -> None:
    """Against linear layers and a softmax of PyTorch's, an entry at a time."""
    pool, given_states = layer(), states(2, 6)
    network = nn.Sequential(
        nn.Linear(DIM, HIDDEN, bias=False), nn.Tanh(), nn.Linear(HIDDEN, HOPS, bias=False)
    ).double()
    network[0].weight, network[2].weight = pool.W_s1, pool.W_s2
    expected = torch.stack([torch.softmax(network(entry), 0).T @ entry for entry in given_states])
    made = pool(given_states)
    torch.testing.assert_close(made, expected)
    leaves, probe = [given_states, *pool.parameters()], torch.randn_like(made)
    got = torch.autograd.grad(made, leaves, probe)
    for one, other in zip(got, torch.autograd.grad(expected, leaves, probe), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_finite_differences() -> None:
    pool = layer()
    names = [name for name, _ in pool.named_parameters()]
    mask = masks.padding(torch.tensor([4, 0]))

    def pooled(given: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
        parameters = dict(zip(names, parts, strict=True))
        with watch(pool, keep_gradients=True) as seen:
            made = torch.func.functional_call(pool, parameters, (given, mask))
        return made, disagreement(seen[""][0])

    parts = [part.detach().requires_grad_() for part in pool.parameters()]
    assert torch.autograd.gradcheck(pooled, [states(2, 4), *parts])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=2, max_size=2))
def test_padding_has_exactly_no_influence(seed: int, sizes: list[int]) -> None:
    pool = layer()
    torch.manual_seed(seed)
    given_states, lengths = states(2, 5), torch.tensor(sizes)
    there = torch.arange(5) < lengths[:, None]
    made = pool(given_states, masks.padding(lengths))
    assert torch.equal(made, pool(given_states, there[:, None]))
    made.sum().backward()
    assert not given_states.grad[~there].any()
    changed = torch.where(there[..., None], given_states, 9.0)
    assert torch.equal(pool(changed, masks.padding(lengths)), made)
    for entry, length in enumerate(sizes):
        if length:
            short = pool(given_states[entry, :length])
            torch.testing.assert_close(made[entry], short)
        else:
            assert not made[entry].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_empty_sequence_is_zero_in_every_type(dtype: torch.dtype) -> None:
    pool, given_states = layer().to(dtype), states(2, 5, dtype=dtype)
    made = pool(given_states, masks.padding(torch.tensor([0, 5])))
    made.sum().backward()
    assert made.dtype == dtype
    assert not made[0].any()
    for part in (given_states, *pool.parameters()):
        assert part.grad.isfinite().all()


def test_it_can_be_watched() -> None:
    pool, given_states = layer(), states(2, 6)
    mask = masks.padding(torch.tensor([6, 2]))
    plain = pool(given_states, mask)
    with watch(pool) as seen:
        assert torch.equal(pool(given_states, mask), plain)
    (weights,) = seen[""]
    assert weights.shape == (2, 1, HOPS, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, HOPS).double())
    torch.testing.assert_close(weights.squeeze(1) @ given_states, plain)
    with watch(pool, rows=[-1], top_k=2) as some:
        assert torch.equal(pool(given_states, mask), plain)
    assert torch.equal(some[""][0], weights[:, :, -1:])
    assert torch.equal(some.top[""][0].weights, weights.topk(2).values)


def test_the_regulariser_parts_the_hops() -> None:
    """Trained on the disagreement alone, hops end at states of their own."""
    pool, given_states = layer(), states(1, 6).detach()
    optimiser = torch.optim.Adam(pool.parameters(), lr=0.1)
    for step in range(150):
        with watch(pool, keep_gradients=True) as seen:
            pool(given_states)
        loss = disagreement(seen[""][0]).mean()
        if step == 0:
            first = loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05 < 1 < first
    assert len({*seen[""][0].squeeze().argmax(-1).tolist()}) == HOPS


def test_another_normalizer() -> None:
    pool, given_states = layer(normalize=Sparsemax()), 9 * states(2, 6)
    with watch(pool) as seen:
        pool(given_states)
    assert (seen[""][0] == 0).any()


def test_it_compiles_whole_with_lengths_that_change() -> None:
    torch._dynamo.reset()
    pool = layer()
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="eager")
    for length in (6, 7, 5):
        given_states, lengths = states(2, length), torch.tensor([length, 2])
        with torch.compiler.set_stance("default" if length == 6 else "fail_on_recompile"):
            made = compiled(given_states, masks.padding(lengths))
        torch.testing.assert_close(made, pool(given_states, masks.padding(lengths)))


# Disagreement


def test_disagreement_is_the_sum_over_pairs_of_rows() -> None:
    torch.manual_seed(1)
    weights = torch.randn(2, 3, HOPS, 5).double().softmax(-1).requires_grad_()
    expected = torch.zeros(2, 3).double()
    for i in range(HOPS):
        for j in range(HOPS):
            pair = (weights[..., i, :] * weights[..., j, :]).sum(-1) - float(i == j)
            expected = expected + pair**2
    made = disagreement(weights)
    torch.testing.assert_close(made, expected)
    matrix = weights @ weights.mT - torch.eye(HOPS)
    torch.testing.assert_close(made, torch.linalg.matrix_norm(matrix, "fro") ** 2)
    probe = torch.randn(2, 3).double()
    got = torch.autograd.grad(made, weights, probe)
    torch.testing.assert_close(got, torch.autograd.grad(expected, weights, probe))
    assert torch.autograd.gradcheck(disagreement, weights)


def test_disagreement_is_zero_for_rows_that_share_no_key() -> None:
    assert disagreement(torch.eye(3, 7)) == 0
    assert disagreement(torch.eye(1, 7).expand(3, 7)) == 6  # all six pairs of rows
    nothing = torch.zeros(2, 3, 5, requires_grad=True)
    made = disagreement(nothing)
    assert made.tolist() == [3, 3]
    made.sum().backward()
    assert not nothing.grad.any()


def test_disagreement_of_watched_heads() -> None:
    torch.manual_seed(2)
    attention = MultiHeadAttention(8, heads=2)
    with watch(attention, keep_gradients=True) as seen:
        attention(torch.randn(3, 4, 8), torch.randn(3, 5, 8))
    by_query = disagreement(seen[""][0].transpose(1, 2))
    assert by_query.shape == (3, 4)
    by_query.mean().backward()
    assert attention.query_projection.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_disagreement_in_half_precision_and_under_autocast(dtype: torch.dtype) -> None:
    weights = torch.randn(4, HOPS, 30).softmax(-1)
    made, exact = disagreement(weights.to(dtype)), disagreement(weights.to(dtype).double())
    assert made.dtype == torch.float32
    torch.testing.assert_close(made.double(), exact, rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(disagreement(weights), disagreement(weights.double()).float())


# Wrong input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StructuredSelfAttention(0, 5, 3), "dim must be"),
        (lambda: StructuredSelfAttention(4, 0, 3), "hidden_dim"),
        (lambda: StructuredSelfAttention(4, 5, 0), "hops"),
        (lambda: layer()(torch.zeros(2, 6, 5)), "states has shape"),
        (lambda: layer()(torch.zeros(4)), "states has shape"),
        (lambda: layer()(states(2, 6), torch.ones(2, 6).bool()), "does not broadcast"),
        (lambda: disagreement(torch.zeros(4)), "weights has shape"),
    ],
)
def test_wrong_values_are_told(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: disagreement(torch.zeros(2, 4).long()),
        lambda: layer()(torch.zeros(2, 6, 4).long()),
        lambda: layer()(states(2, 6), torch.ones(2, 1, 6).int()),
        lambda: StructuredSelfAttention(4, 5, 3, normalize=Sparsemax),
    ],
)
def test_wrong_types_are_told(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()
