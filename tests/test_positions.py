"""Positions within the attention: against the equations, and what they promise."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from heedful.attention.positions import ALiBi, RelativePositions, Rotary, Shaw, T5Buckets, ntk_base
from heedful.attention.positions.base import offsets
from heedful.attention.positions.t5 import bucket_starts
from heedful.attention.scores import Additive, Concat, Dot, General, ScaledDot, Score

B, H, Q, K, D = 2, 3, 4, 6, 8


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def filled(part: RelativePositions) -> RelativePositions:
    """In float64, with parameters that are not zero."""
    for parameter in part.double().parameters():
        torch.nn.init.normal_(parameter)
    return part


def all_parts() -> list[RelativePositions]:
    """One of each, for heads [.., H, L, D]."""
    return [
        filled(part)
        for part in (
            Shaw(D, clip=2),
            Shaw(D, clip=0, values=False),
            T5Buckets(H, buckets=8, max_distance=6),
            T5Buckets(H, buckets=4, max_distance=5, bidirectional=False),
            ALiBi(H),
            ALiBi(H, symmetric=False),
            Rotary(D),
            Rotary(4, base=7, length_scale=2, interleaved=True),
        )
    ]


PARTS = pytest.mark.parametrize("part", all_parts(), ids=repr)


def context_by_parts(
    part: RelativePositions, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, score: Score
) -> Tensor:
    """Softmax attention as the contract says that the parts are put together."""
    q = part.turn(q, positions)
    k = part.turn(k, torch.arange(k.shape[-2]))
    weights = part.compare(score, q, k, positions).softmax(-1)
    added = part.context(weights, positions)
    return weights @ v if added is None else weights @ v + added


# Shaw, by the paper's sums


def shaw_in_loops(part: Shaw, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
    """Equations 1 to 4 for q [Q, D], k and v [K, D]."""
    rows = []
    for i, place in enumerate(positions.tolist()):
        places = [max(-part.clip, min(part.clip, j - place)) + part.clip for j in range(len(k))]
        scores = [q[i] @ (k[j] + part.key_table[row]) for j, row in enumerate(places)]
        weights = (torch.stack(scores) / math.sqrt(q.shape[-1])).softmax(0)
        vectors = v
        if part.value_table is not None:
            vectors = v + torch.stack([part.value_table[row] for row in places])
        rows.append(sum(weights[j] * vectors[j] for j in range(len(k))))
    return torch.stack(rows)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("clip", [0, 1, 3, 20])
def test_shaw_equals_the_paper_in_loops(clip: int, values: bool) -> None:
    part = filled(Shaw(D, clip, values))
    assert part.changes_values is values
    q, k, v, positions = rand(Q, D), rand(K, D), rand(K, D), torch.tensor([5, 0, 2, 2])
    inputs = [q, k, v, *part.parameters()]
    loss = torch.linspace(-1, 1, Q * D, dtype=torch.float64).view(Q, D)
    found = context_by_parts(part, q, k, v, positions, ScaledDot())
    expected = shaw_in_loops(part, q, k, v, positions)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    grads = (torch.autograd.grad((out * loss).sum(), inputs) for out in (found, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("leading", [(), (B,), (B, H)])
@pytest.mark.parametrize(
    "score", [Dot(), ScaledDot(), General(D, D), Additive(D, D, D), Concat(D, D, D)], ids=repr
)
def test_shaw_compares_with_moved_keys(score: Score, leading: tuple[int, ...]) -> None:
    part, score = filled(Shaw(D, clip=2)), score.double()
    q = score.project_query(rand(*leading, Q, D))
    k = score.project_key(rand(*leading, K, D))
    positions = torch.arange(2, 2 + Q)
    found = part.compare(score, q, k, positions)
    assert found.shape == (*leading, Q, K)
    for i, j in itertools.product(range(Q), range(K)):
        row = max(-2, min(2, j - (i + 2))) + 2
        moved = k[..., j : j + 1, :] + part.key_table[row]
        expected = score.compare(q[..., i : i + 1, :], moved)[..., 0, 0]
        torch.testing.assert_close(found[..., i, j], expected, rtol=1e-12, atol=1e-12)


def test_shaw_takes_values_of_another_width() -> None:
    part = Shaw(D, clip=1, value_dim=5)
    assert part.context(torch.ones(B, Q, K), torch.arange(Q)).shape == (B, Q, 5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_shaw_adds_up_many_small_weights_in_half_types(kind: torch.dtype) -> None:
    """Added one by one in bfloat16, 4096 weights of 1/4096 stop far below one."""
    part = Shaw(2, clip=1).to(kind)
    weights = torch.full((1, 4096), 1 / 4096, dtype=kind)
    found = part.context(weights, torch.tensor([0]))
    torch.testing.assert_close(found[0], part.value_table[2], rtol=0.01, atol=0.01)
    query = torch.ones(1, 2, dtype=kind, requires_grad=True)
    part.bias(query, 4096, torch.tensor([0]), 1.0).backward(weights)
    torch.testing.assert_close(query.grad[0], part.key_table[2].detach(), rtol=0.01, atol=0.01)


# Buckets


def bucket_by_formula(distance: int, buckets: int, max_distance: int) -> int:
    """One direction; on an edge the logarithm decides by rounding, so nudged upwards."""
    exact = buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return min(buckets - 1, exact + int((buckets - exact) * share + 1e-9))


@given(st.integers(2, 40), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_buckets_begin_where_the_formula_says(buckets: int, beyond: int) -> None:
    max_distance = buckets // 2 + beyond
    part = T5Buckets(1, buckets, max_distance, bidirectional=False)
    distances = range(max_distance + 20)
    found = part.bucket(-torch.tensor(distances)).tolist()
    assert found == [bucket_by_formula(d, buckets, max_distance) for d in distances]
    assert len(bucket_starts(buckets, max_distance)) == buckets - 1
    assert not part.bucket(torch.arange(9)).any()


@given(st.integers(2, 20), st.integers(1, 100))
@settings(max_examples=30, deadline=None)
def test_two_directions_have_the_same_buckets(half: int, beyond: int) -> None:
    max_distance = half // 2 + beyond
    both = T5Buckets(1, 2 * half, max_distance)
    one = T5Buckets(1, half, max_distance, bidirectional=False)
    places = torch.arange(1, max_distance + 9)
    assert both.bucket(-places).equal(one.bucket(-places))
    assert both.bucket(places).equal(one.bucket(-places) + half)


# ALiBi


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("first", "queries", "keys"), [(0, 9, 9), (5, 4, 9), (0, 2, 12), (3, 3, 1)]
)
def test_consecutive_positions_are_computed_by_diagonals(
    first: int, queries: int, keys: int, bidirectional: bool, heads: int
) -> None:
    """Values and gradients are those of positions in another order, which have no diagonals."""
    part = T5Buckets(heads, 8, 6, bidirectional=bidirectional).double()
    nn.init.normal_(part.table.weight)
    query = torch.zeros(heads, queries, 2, dtype=torch.float64)
    places, order = torch.arange(first, first + queries), torch.arange(queries).flip(0)
    weights = torch.randn(*((heads,) * (heads > 1)), queries, keys, dtype=torch.float64)
    found, gradients = [], []
    for bias in (
        part.bias(query, keys, places, 1.0),
        part.bias(query, keys, places[order], 1.0).flip(-2),
    ):
        found.append(bias.detach())
        gradients += torch.autograd.grad((weights * bias).sum(), part.table.weight)
    torch.testing.assert_close(*found, rtol=0, atol=0)
    torch.testing.assert_close(*gradients)


def test_slopes_of_the_paper() -> None:
    def slopes(heads: int) -> list[float]:
        part, query = ALiBi(heads), torch.zeros(heads, 1, 1, dtype=torch.float64)
        return (-part.bias(query, 2, torch.tensor([0]), 1.0)).view(heads, 2)[:, 1].tolist()

    assert slopes(8) == [2.0**-n for n in range(1, 9)]
    assert slopes(16) == pytest.approx([2 ** (-n / 2) for n in range(1, 17)])
    assert slopes(1) == [2.0**-8]
    # The authors' code: those of 8, then every other one of 16.
    assert slopes(12) == pytest.approx(slopes(8) + slopes(16)[0:8:2])


def test_alibi_forms_agree_where_a_causal_mask_allows() -> None:
    query, positions = torch.zeros(H, Q, D), torch.arange(2, 2 + Q)
    symmetric = ALiBi(H).bias(query, K, positions, 1.0)
    signed = ALiBi(H, symmetric=False).bias(query, K, positions, 1.0)
    past = offsets(positions, K) <= 0
    assert symmetric[:, past].equal(signed[:, past])
    assert (signed[:, ~past] == -symmetric[:, ~past]).all()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_alibi_is_rounded_once(kind: torch.dtype) -> None:
    part, far = ALiBi(3).to(kind), torch.tensor([3001])
    exact = part.bias(torch.zeros(3, 1, 1, dtype=torch.float64), 4000, far, 1.0)
    found = part.bias(torch.zeros(3, 1, 1, dtype=kind), 4000, far, 1.0)
    assert found.dtype == kind
    assert ((found.double() - exact).abs() <= exact.abs() * torch.finfo(kind).eps).all()


# Rotary


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_is_the_papers_matrix(interleaved: bool) -> None:
    """Equation 15, as a matrix of 2 × 2 blocks over the pairs."""
    x, place, dim = rand(D), 5, 6
    matrix = torch.eye(D, dtype=torch.float64)
    for i in range(dim // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2)
        angle = place / 3.0 * 50.0 ** (-2 * i / dim)
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
    part = Rotary(dim, base=50, length_scale=3, interleaved=interleaved)
    found = part.turn(x.view(1, D), torch.tensor([place]))[0]
    torch.testing.assert_close(found, matrix @ x, rtol=1e-14, atol=1e-14)


@given(st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 100), st.booleans())
@settings(max_examples=30, deadline=None)
def test_rotary_products_depend_on_the_distance_only(
    shift: int, query_at: int, key_at: int, interleaved: bool
) -> None:
    part = Rotary(D, interleaved=interleaved)
    q, k = rand(1, D), rand(1, D)

    def product(moved: int) -> Tensor:
        turned = part.turn(q, torch.tensor([query_at + moved]))
        return turned @ part.turn(k, torch.tensor([key_at + moved])).T

    torch.testing.assert_close(product(0), product(shift), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(part.turn(q, torch.tensor([shift])).norm(), q.norm())


def test_rotary_pair_conventions_differ_by_an_order() -> None:
    x, places = rand(B, H, Q, D), torch.arange(Q)
    order = torch.arange(D).view(2, D // 2).T.flatten()  # half-split to neighbours
    halves = Rotary(D).turn(x, places)
    neighbours = Rotary(D, interleaved=True).turn(x[..., order], places)
    torch.testing.assert_close(halves[..., order], neighbours)


def test_rotary_scales() -> None:
    x, places = rand(Q, D), torch.arange(Q)
    stretched = Rotary(D, length_scale=4).turn(x, 4 * places)
    torch.testing.assert_close(stretched, Rotary(D).turn(x, places))
    # The slowest pair goes as far as under length_scale, the fastest as before.
    wide = Rotary(D, base=ntk_base(D, 4.0)).turn(x, places)
    slow, fast = [D // 2 - 1, D - 1], [0, D // 2]
    expected = Rotary(D, length_scale=4).turn(x, places)
    torch.testing.assert_close(wide[:, slow], expected[:, slow])
    torch.testing.assert_close(wide[:, fast], Rotary(D).turn(x, places)[:, fast])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_rotary_is_rounded_once_at_far_positions(kind: torch.dtype) -> None:
    x, far = torch.randn(3, D).to(kind), torch.tensor([99_999, 65_521, 3])
    found = Rotary(D).to(kind).turn(x, far)
    exact = Rotary(D).turn(x.double(), far)
    assert found.dtype == kind
    assert ((found.double() - exact).abs() <= 8 * torch.finfo(kind).eps).all()


# All of them


@PARTS
def test_one_query_at_a_time_equals_all_at_once(part: RelativePositions) -> None:
    q, k, v = rand(B, H, K, D), rand(B, H, K, D), rand(B, H, K, D)
    whole = context_by_parts(part, q, k, v, torch.arange(K), ScaledDot())
    for i in range(K):
        one = context_by_parts(part, q[..., i : i + 1, :], k, v, torch.tensor([i]), ScaledDot())
        torch.testing.assert_close(one, whole[..., i : i + 1, :], rtol=1e-12, atol=1e-12)
    rows = torch.tensor([4, 1])
    chosen = context_by_parts(part, q[..., rows, :], k, v, rows, ScaledDot())
    torch.testing.assert_close(chosen, whole[..., rows, :], rtol=1e-12, atol=1e-12)


@PARTS
@given(shift=st.integers(1, 9))
@settings(max_examples=3, deadline=None)
def test_moving_all_positions_changes_no_score(part: RelativePositions, shift: int) -> None:
    """Queries and keys stand ``shift`` later, after other keys."""
    q, k = rand(B, H, K, D), rand(B, H, K, D)
    more = torch.cat([rand(B, H, shift, D), k], dim=-2)

    def scores(keys: Tensor, first: int) -> Tensor:
        positions = torch.arange(first, first + K)
        turned = part.turn(keys, torch.arange(keys.shape[-2]))
        return part.compare(ScaledDot(), part.turn(q, positions), turned, positions)

    moved = scores(more, shift)[..., shift:]
    torch.testing.assert_close(moved, scores(k, 0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("part", [Shaw(D, 2), T5Buckets(H, 8, 6)], ids=repr)
def test_beyond_the_clip_nothing_changes(part: RelativePositions) -> None:
    filled(part)
    q, keys = rand(H, 1, D), 20
    bias = part.bias(q, keys, torch.tensor([10]), 1.0)
    reach = 2 if isinstance(part, Shaw) else 6
    for far in (bias[..., : 11 - reach], bias[..., 10 + reach :]):
        assert (far == far[..., :1]).all()
    assert not torch.equal(bias[..., 0], bias[..., -1])


@PARTS
def test_gradients(part: RelativePositions) -> None:
    inputs = [rand(2, H, 2, 8), rand(2, H, 3, 8), rand(2, H, 3, 8)]
    positions = torch.tensor([2, 0])

    def run(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
        return context_by_parts(part, q, k, v, positions, ScaledDot()).sum(0)[:, :, :3]

    assert gradcheck(run, (*inputs, *part.parameters()), fast_mode=True)


def test_gradients_through_a_score_that_is_no_dot_product() -> None:
    part, score = filled(Shaw(4, clip=1)), Additive(4, 4, 4).double()

    def run(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
        return context_by_parts(part, q, k, k, torch.tensor([2, 0]), score)

    inputs = (rand(H, 2, 4), rand(H, 3, 4), *part.parameters(), *score.parameters())
    assert gradcheck(run, inputs, fast_mode=True)


@PARTS
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_half_types_stay_near(part: RelativePositions, kind: torch.dtype) -> None:
    inputs = [rand(B, H, n, D).detach().to(kind) for n in (Q, K, K)]
    positions = torch.arange(Q)
    found = context_by_parts(part, *inputs, positions, ScaledDot())
    assert found.dtype == kind
    expected = context_by_parts(part, *(x.double() for x in inputs), positions, ScaledDot())
    tolerance = 16 * torch.finfo(kind).eps
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("part", all_parts()[::2], ids=lambda part: type(part).__name__)
def test_compiled_once_for_changing_lengths(part: RelativePositions) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    score = ScaledDot()
    compiled = torch.compile(context_by_parts, backend=backend, fullgraph=True, dynamic=True)
    # No length equals another size, for the compiler takes equal sizes to stay equal.
    for queries, keys in ((5, 7), (4, 10), (6, 9)):
        q, k = rand(B, H, queries, D), rand(B, H, keys, D)
        positions = torch.arange(keys - queries, keys)
        found = compiled(part, q, k, k, positions, score)
        expected = context_by_parts(part, q, k, k, positions, score)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert len(graphs) == 1


def test_without_a_dimension_for_heads() -> None:
    for part in (ALiBi(1), T5Buckets(1), Shaw(D, 1), Rotary(D)):
        q, k = torch.randn(Q, D), torch.randn(K, D)
        assert part.compare(ScaledDot(), q, k, torch.arange(Q)).shape == (Q, K)


def test_the_base_changes_nothing() -> None:
    part, q, k = RelativePositions(), rand(Q, D), rand(K, D)
    assert part.turn(q, torch.arange(Q)) is q
    assert part.compare(Dot(), q, k, torch.arange(Q)).equal(q @ k.T)
    assert part.context(torch.ones(Q, K), torch.arange(Q)) is None
    assert part.changes_values is False


# Wrong input

QUERY = torch.zeros(H, Q, D)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shaw(0, 1), "dim 0 and value_dim 0 must be at least 1"),
        (lambda: Shaw(4, -1), "clip must be at least 0, not -1"),
        (lambda: T5Buckets(0), "heads must be at least 1"),
        (lambda: T5Buckets(1, 7), "buckets 7 must be even"),
        (lambda: T5Buckets(1, 2), "buckets 2 are too few"),
        (lambda: T5Buckets(1, 32, 8), "max_distance 8 must be above 8"),
        (lambda: ALiBi(0), "heads must be at least 1"),
        (lambda: Rotary(3), "dim must be even and at least 2, not 3"),
        (lambda: Rotary(4, length_scale=0), "length_scale 0 must be positive"),
        (lambda: ntk_base(2, 1), "dim 2 must be at least 4"),
        (lambda: Shaw(4, 1).bias(QUERY, K, torch.arange(Q), 1.0), r"expected \[.., 4\]"),
        (lambda: Shaw(D, 1).bias(QUERY, K, torch.arange(3), 1.0), r"positions \[3\] do not match"),
        (lambda: ALiBi(2).bias(QUERY, K, torch.arange(Q), 1.0), r"expected \[.., 2, Q, D\]"),
        (lambda: T5Buckets(2).bias(QUERY[0], K, torch.arange(Q), 1.0), "are for 2 heads"),
        (lambda: Rotary(10).turn(QUERY, torch.arange(Q)), "D at least 10"),
        (lambda: Rotary(D).turn(QUERY, torch.arange(3)), r"positions \[3\] do not match"),
    ],
)
def test_wrong_input_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@PARTS
def test_positions_are_integers(part: RelativePositions) -> None:
    with pytest.raises(TypeError, match=r"positions must be integers, not torch.float32"):
        context_by_parts(part, QUERY, QUERY, QUERY, torch.arange(Q).float(), ScaledDot())
