"""What holds for every normalizer, whatever its mathematics."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import normalizers
from heedful.attention.normalizers import Normalizer, Queries
from heedful.attention.normalizers.plain_sum import plain_sum
from heedful.attention.normalizers.smoothed import smoothed
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.attention.normalizers.softmax_off_by_one import softmax_off_by_one

DQ = 4
KINDS: dict[str, Callable[[], Normalizer]] = {
    "softmax": normalizers.Softmax,
    "softmax with temperature": lambda: normalizers.Softmax(temperature=0.7),
    "softmax off by one": normalizers.SoftmaxOffByOne,
    "sink": normalizers.SinkSoftmax,
    "smoothed": normalizers.Smoothed,
    "plain sum": normalizers.PlainSum,
    "sparsemax": normalizers.Sparsemax,
    "entmax 1.5": normalizers.Entmax15,
    "entmax by bisection": lambda: normalizers.Entmax(alpha=1.3),
    "entmax above 2": lambda: normalizers.Entmax(alpha=2.5),
    "entmax learned": lambda: normalizers.Entmax(alpha=1.7, learned=True),
    "hard": normalizers.Hard,
    "sampled hard": normalizers.SampledHard,
    "gumbel": lambda: normalizers.GumbelStraightThrough(temperature=0.8),
    "local-m": lambda: normalizers.LocalMonotonic(window=2),
    "local-p": lambda: normalizers.LocalPredictive(DQ, hidden_dim=5, window=3),
}
LOCAL = ("local-m", "local-p")
BELOW_ONE = ("softmax off by one", "sink", "local-p")
DRAWN = ("sampled hard", "gumbel")
ONE_HOT = ("hard", *DRAWN)
LONG = ("entmax above 2", "entmax learned")
"""As entmax by bisection, whose loop takes seconds to trace."""
every = pytest.mark.parametrize("kind", KINDS)


def scores_of(*shape: int, dtype: torch.dtype = torch.float64, kind: str = "") -> Tensor:
    scores = torch.randn(*shape, dtype=torch.float64).mul(2)
    if kind == "plain sum":
        scores = scores.abs() + 0.1
    return scores.to(dtype).requires_grad_()


def queries_of(*leading: int, queries: int, dtype: torch.dtype = torch.float64) -> Queries:
    vectors = torch.randn(*leading, queries, DQ, dtype=torch.float64).to(dtype)
    return Queries(vectors.requires_grad_(), torch.arange(queries))


def made(kind: str, *, training: bool = False, dtype: torch.dtype = torch.float64) -> Normalizer:
    return KINDS[kind]().to(dtype).train(training)


def seeded(normalize: Normalizer, *given: object) -> Tensor:
    torch.manual_seed(0)
    return normalize(*given)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_rows_sum_to_one_or_nothing_and_masked_weights_are_zero(data: st.DataObject) -> None:
    kind, training = data.draw(st.sampled_from(sorted(KINDS))), data.draw(st.booleans())
    queries, keys = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 7))
    bits = data.draw(st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys))
    factor = data.draw(st.sampled_from([1e-3, 1.0, 1e3, 1e30]))
    allowed = torch.tensor(bits).view(queries, keys)
    scores = scores_of(2, queries, keys, kind=kind) * factor
    weights = made(kind, training=training)(scores, allowed, queries_of(2, queries=queries))
    assert weights.shape == scores.shape
    assert weights.isfinite().all()
    assert weights.ge(0).all()
    assert weights.masked_select(~allowed).eq(0).all()
    sums, some = weights.sum(-1), allowed.any(-1).double().expand(2, -1)
    if kind in BELOW_ONE:
        assert sums.le(some + 1e-12).all()
    elif kind == "local-m":
        torch.testing.assert_close(sums, sums.round())
    else:
        torch.testing.assert_close(sums, some)
    if kind in ONE_HOT:
        assert ((weights == 0) | (weights == 1)).all()


@every
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_a_row_that_allows_nothing_is_zero_and_gets_no_gradient(
    kind: str, training: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    normalize = made(kind, training=training, dtype=dtype)
    scores = scores_of(2, 3, 4, dtype=dtype, kind=kind)
    queries = queries_of(2, queries=3, dtype=dtype)
    allowed = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    with torch.autograd.set_detect_anomaly(True):
        weights = normalize(scores, allowed, queries)
        (weights * torch.randn_like(weights)).sum().backward()
    assert weights.dtype == dtype
    assert weights.isfinite().all()
    assert weights[:, 1].eq(0).all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad[:, 1].eq(0).all()
    assert scores.grad[:, 0, 2].eq(0).all()
    if kind == "local-p":
        assert queries.vectors.grad is not None
        assert queries.vectors.grad[:, 1].eq(0).all()
    for parameter in normalize.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@every
def test_no_parameter_moves_where_everything_is_masked(kind: str) -> None:
    normalize = made(kind, training=True)
    scores = scores_of(2, 3, kind=kind)
    weights = normalize(scores, torch.tensor(False), queries_of(queries=2))
    weights.sum().backward()
    for part in (scores, *normalize.parameters()):
        assert part.grad is not None
        assert part.grad.eq(0).all()


@every
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_finite_differences(kind: str, masked: bool) -> None:
    torch.manual_seed(2)
    normalize = made(kind)
    scores = scores_of(2, 3, 5, kind=kind)
    allowed = torch.rand(3, 5) > 0.3 if masked else None
    if allowed is not None:
        allowed[1] = False
    queries = queries_of(2, queries=3)
    names = [name for name, _ in normalize.named_parameters()]
    parameters = [part.detach().requires_grad_() for part in normalize.parameters()]

    def weights(scores: Tensor, vectors: Tensor, *given: Tensor) -> Tensor:
        asked = (scores, allowed, Queries(vectors, queries.positions))
        return torch.func.functional_call(normalize, dict(zip(names, given, strict=True)), asked)

    if kind == "gumbel":
        # Forwards it is hard: its gradient is by intention not that of what it computes.
        soft = torch.softmax(scores / 0.8, -1) if allowed is None else None
        if soft is not None:
            direction = torch.randn_like(soft)
            expected = torch.autograd.grad(soft, scores, direction)
            found = torch.autograd.grad(weights(scores, queries.vectors), scores, direction)
            torch.testing.assert_close(found, expected)
        return
    vectors = queries.vectors if kind == "local-p" else queries.vectors.detach()
    assert torch.autograd.gradcheck(weights, (scores, vectors, *parameters))


@every
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("found_there", [0.0, -7.5, 1e6, -1e300, float("nan"), float("inf")])
def test_masked_keys_have_exactly_no_influence(
    kind: str, training: bool, found_there: float
) -> None:
    torch.manual_seed(3)
    normalize = made(kind, training=training)
    scores, queries = scores_of(2, 4, 6, kind=kind).detach(), queries_of(2, queries=4)
    allowed = torch.rand(2, 4, 6) > 0.4
    before = seeded(normalize, scores, allowed, queries)
    changed = scores.masked_fill(~allowed, found_there).requires_grad_()
    after = seeded(normalize, changed, allowed, queries)
    assert after.equal(before)
    (after * torch.randn_like(after)).sum().backward()
    assert changed.grad is not None
    assert changed.grad.isfinite().all()
    assert changed.grad.masked_select(~allowed).eq(0).all()


@every
def test_masking_keys_is_leaving_them_out(kind: str) -> None:
    torch.manual_seed(4)
    normalize = made(kind)
    scores, queries = scores_of(2, 4, 7, kind=kind), queries_of(2, queries=4)
    allowed = torch.arange(7) < 5
    masked = normalize(scores, allowed, queries)
    torch.testing.assert_close(masked[..., :5], normalize(scores[..., :5], None, queries))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_keys_does_not_matter(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(set(KINDS) - {*LOCAL})))
    keys = data.draw(st.integers(1, 8))
    order = torch.tensor(data.draw(st.permutations(range(keys))))
    scores, allowed = scores_of(3, keys, kind=kind), torch.rand(3, keys) > 0.3
    normalize = made(kind)
    before = normalize(scores, allowed)[..., order]
    after = normalize(scores[..., order], allowed[..., order])
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-12)


@every
def test_rows_are_independent_and_masks_broadcast(kind: str) -> None:
    torch.manual_seed(5)
    normalize = made(kind)
    scores, queries = scores_of(2, 3, 4, 6, kind=kind), queries_of(2, 3, queries=4)
    for shape in ((), (1,), (6,), (4, 1), (4, 6), (3, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6)):
        allowed = torch.rand(shape) > 0.4
        whole = normalize(scores, allowed, queries)
        full = allowed.expand(scores.shape)
        torch.testing.assert_close(normalize(scores, full, queries), whole)
        chosen = torch.tensor([3, 1])
        asked = Queries(queries.vectors[..., chosen, :], queries.positions[chosen])
        rows = normalize(scores[..., chosen, :], full[..., chosen, :], asked)
        torch.testing.assert_close(rows, whole[..., chosen, :])


@every
def test_no_keys_and_no_queries(kind: str) -> None:
    for training, allowed in itertools.product((False, True), (None, torch.tensor(True))):
        normalize = made(kind, training=training)
        for shape in ((2, 3, 0), (2, 0, 3), (0, 2, 3), (2, 0, 0)):
            scores = torch.randn(shape, dtype=torch.float64)
            queries = queries_of(shape[0], queries=shape[1])
            assert normalize(scores, allowed, queries).shape == shape


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_the_float64_result_rounded(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    scores = scores_of(8, 20, dtype=dtype, kind=kind).detach()
    queries = queries_of(queries=8, dtype=dtype)
    normalize = made(kind, dtype=dtype)
    found = normalize(scores, None, queries)
    wide = Queries(queries.vectors.double(), queries.positions)
    expected = normalize.double()(scores.double(), None, wide)
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=2e-6)


@every
def test_autocast_changes_nothing(kind: str) -> None:
    torch.manual_seed(7)
    normalize = made(kind, dtype=torch.float32)
    scores = scores_of(2, 8, 20, dtype=torch.float32, kind=kind)
    queries = queries_of(2, queries=8, dtype=torch.float32)
    plain = normalize(scores, None, queries)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(normalize(scores, None, queries), plain)


@pytest.mark.parametrize(
    ("kind", "training"),
    [
        *(pytest.param(kind, False, marks=[pytest.mark.slow] * (kind in LONG)) for kind in KINDS),
        *((kind, True) for kind in DRAWN),
    ],
)
def test_it_compiles_whole_and_once_for_all_lengths(kind: str, training: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(8)
    normalize = made(kind, training=training, dtype=torch.float32)
    compiled = torch.compile(normalize, fullgraph=True, dynamic=True, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for queries, keys in ((3, 5), (4, 7), (6, 9)):
            scores = scores_of(2, queries, keys, dtype=torch.float32, kind=kind)
            asked = queries_of(2, queries=queries, dtype=torch.float32)
            allowed = torch.rand(2, queries, keys) > 0.3
            found = seeded(compiled, scores, allowed, asked)
            expected = seeded(normalize, scores, allowed, asked)
            torch.testing.assert_close(found, expected)
            parts = [scores, *normalize.parameters()]
            direction = torch.randn_like(found)
            torch.testing.assert_close(
                torch.autograd.grad(found, parts, direction),
                torch.autograd.grad(expected, parts, direction),
            )


def test_the_exponential_with_the_plain_sum_is_the_softmax() -> None:
    scores, allowed = scores_of(4, 6), torch.rand(4, 6) > 0.3
    direction = torch.randn(4, 6, dtype=torch.float64)
    found, expected = plain_sum(scores.exp(), allowed), masked_softmax(scores, allowed)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, scores, direction),
        torch.autograd.grad(expected, scores, direction),
    )


def test_the_plain_sum_takes_a_negative_score_for_nothing_and_does_not_overflow() -> None:
    scores = torch.tensor([[2.0, -3.0, 6.0], [0.0, -1.0, 0.0], [3e38, 3e38, 0.0]]).requires_grad_()
    weights = plain_sum(scores)
    expected = torch.tensor([[0.25, 0.0, 0.75], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(weights, expected)
    weights[:2, 0].sum().backward()
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad[0], torch.tensor([6 / 64, 0.0, -2 / 64]))
    assert scores.grad[1].eq(0).all()


def test_off_by_one_is_a_softmax_with_one_more_key_of_score_zero() -> None:
    scores = (scores_of(5, 6) * 100).detach().requires_grad_()
    more = torch.cat([scores, torch.zeros(5, 1, dtype=scores.dtype)], -1)
    direction = torch.randn(5, 6, dtype=torch.float64)
    found, expected = softmax_off_by_one(scores), torch.softmax(more, -1)[..., :-1]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, scores, direction),
        torch.autograd.grad(expected, scores, direction),
    )
    assert softmax_off_by_one(torch.full((3,), -200.0).double()).sum() < 1e-80


def by_the_formula(scores: Tensor, allowed: Tensor) -> Tensor:
    """``σ(e_j) / Σ_k σ(e_k)``, key by key; zeros where there are no keys."""
    rows = []
    for e, keys in zip(scores, allowed.tolist(), strict=True):
        parts = [1 / (1 + torch.exp(-one)) for one in e]
        total = sum(part for part, there in zip(parts, keys, strict=True) if there)
        rows += [
            part / total if there else e[0] * 0 for part, there in zip(parts, keys, strict=True)
        ]
    return torch.stack(rows).view_as(scores)


@pytest.mark.parametrize("offset", [0.0, 30.0, -300.0])
def test_smoothing_is_the_papers_formula(offset: float) -> None:
    """As long as no exponential overflows, with masked keys and a row without any."""
    torch.manual_seed(9)
    scores = (scores_of(6, 5) + offset).detach().requires_grad_()
    allowed = torch.rand(6, 5) > 0.3
    allowed[0], allowed[1] = True, False
    direction = torch.randn(6, 5, dtype=torch.float64)
    found, expected = smoothed(scores, allowed), by_the_formula(scores, allowed)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, scores, direction),
        torch.autograd.grad(expected, scores, direction),
        rtol=1e-7,
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_smoothing_of_large_scores(dtype: torch.dtype) -> None:
    """Equal weights far above 0; a softmax far below it, where every sigmoid is zero."""
    above = torch.tensor([3e3, 3e4, 4e3, 6e4], dtype=dtype).requires_grad_()
    below = torch.tensor([-3e4, -3e4, -4e4, -6e4], dtype=dtype).requires_grad_()
    weights, few = smoothed(above), smoothed(below)
    assert weights.tolist() == [0.25] * 4
    assert few.tolist() == [0.5, 0.5, 0.0, 0.0]
    (weights[0] + few[0]).backward()
    assert above.grad is not None
    assert above.grad.tolist() == [0.0] * 4
    assert below.grad is not None
    assert below.grad.tolist() == [0.25, -0.25, 0.0, 0.0]


def test_smoothing_lets_a_key_have_at_most_its_sigmoids_share() -> None:
    """A key with σ = 1 beside n keys with σ = ½ gets 2 / (n + 2), whatever its score."""
    for n in (1, 2, 6):
        weights = smoothed(torch.cat([torch.tensor([1e4]), torch.zeros(n)]))
        assert math.isclose(float(weights[0]), 2 / (n + 2), rel_tol=1e-6)


def test_hard_takes_the_first_of_equals() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [3.0, 3.0, 3.0], [0.0, 9.0, 3.0]])
    allowed = torch.tensor([[True] * 3, [False, True, True], [True, False, True]])
    expected = torch.tensor([[0.0, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert normalizers.Hard()(scores, allowed).equal(expected)


SCORES = torch.zeros(2, 3)
WRONG: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "integers": (TypeError, "scores must be", lambda: normalizers.Sparsemax()(SCORES.long())),
    "float mask": (TypeError, "allowed must be", lambda: normalizers.Hard()(SCORES, SCORES)),
    "mask": (
        ValueError,
        r"allowed \[2, 2\] does not broadcast to scores \[2, 3\]",
        lambda: normalizers.PlainSum()(SCORES, torch.ones(2, 2) > 0),
    ),
    "big mask": (
        ValueError,
        "does not broadcast",
        lambda: normalizers.Entmax15()(SCORES, torch.ones(4, 2, 3) > 0),
    ),
    "no keys' dimension": (ValueError, "scores has shape", lambda: plain_sum(torch.tensor(1.0))),
    "alpha": (ValueError, "alpha must be at least 1", lambda: normalizers.Entmax(0.9)),
    "alpha of all": (ValueError, "finite", lambda: normalizers.Entmax(float("inf"))),
    "alpha learned": (ValueError, "above 1", lambda: normalizers.Entmax(1.0, learned=True)),
    "alphas": (
        ValueError,
        r"alpha \[3\] does not broadcast to \[2, 1\]",
        lambda: normalizers.Entmax(torch.full((3,), 1.5))(SCORES),
    ),
    "temperature": (ValueError, "above 0", lambda: normalizers.GumbelStraightThrough(0.0)),
    "smoothed integers": (TypeError, "scores must be", lambda: smoothed(SCORES.long())),
    "window": (ValueError, "window must be", lambda: normalizers.LocalMonotonic(-1)),
    "median": (ValueError, "window must be at least 0", lambda: normalizers.Windowed(-1)),
    "windowed mask": (
        TypeError,
        "allowed must be boolean",
        lambda: normalizers.Windowed()(SCORES[:1], SCORES[:1]),
    ),
    "gaussian": (ValueError, "window must be", lambda: normalizers.LocalPredictive(2, 2, 0)),
    "widths": (ValueError, "query_dim must be", lambda: normalizers.LocalPredictive(0, 2, 2)),
    "no queries (m)": (
        ValueError,
        "LocalMonotonic needs queries",
        lambda: normalizers.LocalMonotonic(1)(SCORES),
    ),
    "no queries (p)": (
        ValueError,
        "LocalPredictive needs queries",
        lambda: normalizers.LocalPredictive(2, 2, 2)(SCORES),
    ),
    "other queries": (
        ValueError,
        r"positions \[5\] do not match scores \[2, 3\]",
        lambda: normalizers.LocalMonotonic(1)(SCORES, None, queries_of(queries=5)),
    ),
    "wide queries": (
        ValueError,
        r"expected \[.., 9\]",
        lambda: normalizers.LocalPredictive(9, 2, 2)(SCORES, None, queries_of(queries=2)),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused(case: str) -> None:
    error, said, call = WRONG[case]
    with pytest.raises(error, match=said):
        call()
