"""Attention that reads its earlier weights, against loops over the papers' equations in float64."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    AttentionState,
    Memory,
    MultiHeadAttention,
    RecurrentAttention,
    attend,
    coverage_loss,
    masks,
    normalizers,
    scores,
    watch,
)
from heedful.attention.normalizers import expected_alignment, hard_alignment, linear_recurrence

B, T, K, DQ, DK, U = 2, 5, 6, 3, 4, 7
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
LENGTHS = torch.tensor([6, 4])
n = normalizers


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(6)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def made(score: scores.Score, normalize: n.Normalizer | None = None) -> RecurrentAttention:
    attention = RecurrentAttention(score, normalize).double()
    for part in attention.parameters():
        nn.init.normal_(part)
    return attention


def same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, **TIGHT)
    cost = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    ours, theirs = (
        torch.autograd.grad((out * cost).sum(), inputs, retain_graph=True)
        for out in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **TIGHT)


# Against the papers' equations


def convolved(score: scores.LocationAware, before: list[Tensor], j: int) -> Tensor:
    """``Σ_f U_·f Σ_d F_f,d α_j+d``, without a convolution."""
    reach = score.filters.shape[-1] // 2
    features = [
        sum(
            (
                filter_[0, d + reach] * before[j + d]
                for d in range(-reach, reach + 1)
                if 0 <= j + d < len(before)
            ),
            start=before[0] * 0,
        )
        for filter_ in score.filters
    ]
    return score.feature_projection.weight @ torch.stack(features)


def received(score: scores.Coverage, sums: list[Tensor], h: Tensor, j: int) -> Tensor:
    if score.fertility_projection is None:
        return score.w_c * sums[j]
    Φ = score.largest_fertility * torch.sigmoid(score.fertility_projection.weight[0] @ h)
    return score.w_c * (sums[j] / Φ)


def loop(attention: RecurrentAttention, q: Tensor, h: Tensor, lengths: Tensor) -> Tensor:
    """Steps, rows and keys one after another."""
    score = attention.score
    contexts = []
    for b in range(len(q)):
        keys = int(lengths[b])
        last = [h.new_zeros(())] * h.shape[1]
        sums = last
        for i in range(q.shape[1]):
            e = []
            for j in range(keys):
                if isinstance(score, scores.LocationAware):
                    more = convolved(score, sums if score.accumulated else last, j)
                else:
                    more = received(score, sums, h[b, j], j)
                W, V, b_ = (
                    score.query_projection.weight,
                    score.key_projection.weight,
                    score.key_projection.bias,
                )
                e.append(score.v @ torch.tanh(W @ q[b, i] + V @ h[b, j] + b_ + more))
            α = list(torch.softmax(torch.stack(e), 0).unbind()) if keys else []
            α += [h.new_zeros(())] * (h.shape[1] - keys)
            last, sums = α, [one + other for one, other in zip(sums, α, strict=True)]
            contexts.append(sum(weight * vector for weight, vector in zip(α, h[b], strict=True)))
    return torch.stack(contexts).view(*q.shape[:2], -1)


SCORES: dict[str, Callable[[], scores.Score]] = {
    "location": lambda: scores.LocationAware(DQ, DK, U, filters=2, width=3),
    "location, wide": lambda: scores.LocationAware(DQ, DK, U, filters=3, width=15),
    "location, accumulated": lambda: scores.LocationAware(
        DQ, DK, U, filters=2, width=3, accumulated=True
    ),
    "coverage": lambda: scores.Coverage(DQ, DK, U),
    "coverage, fertility": lambda: scores.Coverage(DQ, DK, U, largest_fertility=2.0),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_the_papers(name: str) -> None:
    """Teacher forcing, and steps; rows of different lengths."""
    attention = made(SCORES[name]())
    q, h = random(B, T, DQ), random(B, K, DK)
    expected = loop(attention, q, h, LENGTHS)
    mask = masks.padding(LENGTHS)
    same(attention(q, h, mask=mask), expected, [q, h, *attention.parameters()])
    memory = attention.remember(h)
    state, contexts = attention.start(memory), []
    for query in q.unbind(1):
        context, state = attention.step(query, memory, state, mask)
        contexts.append(context)
    same(torch.stack(contexts, 1), expected, [q, h, *attention.parameters()])


def paths(p: Tensor) -> Tensor:
    """α ``[T, K]`` from p ``[T, K]``: the sum over all ways to stop once in each step."""
    steps, keys = p.shape
    α = [[p.new_zeros(()) for _ in range(keys)] for _ in range(steps)]
    for count in range(1, steps + 1):
        for stops in itertools.combinations_with_replacement(range(keys), count):
            chance, place = p.new_ones(()), 0
            for i, stop in enumerate(stops):
                for j in range(place, stop):
                    chance = chance * (1 - p[i, j])
                chance, place = chance * p[i, stop], stop
            α[count - 1][stops[-1]] = α[count - 1][stops[-1]] + chance
    return torch.stack([torch.stack(row) for row in α])


def test_expected_weights_are_sums_over_paths() -> None:
    """Every way through 4 steps and 5 keys; outputs and gradients."""
    e = random(1, 4, 5)
    expected = paths(torch.sigmoid(e[0]))
    before, rows = n.Monotonic().start(e[:, 0])[0], []
    for i in range(4):
        before = expected_alignment(torch.sigmoid(e[:, i]), before)
        rows.append(before[0])
    same(torch.stack(rows), expected, [e])


def test_expected_weights_are_the_papers_parallel_formula() -> None:
    """``p ⊙ cumprod(1 − p) ⊙ cumsum(α / cumprod(1 − p))``, where it does not underflow."""
    p, before = torch.rand(3, 40, dtype=torch.float64) * 0.3, torch.rand(3, 40).double()
    product = torch.cumprod(1 - p, -1).roll(1, -1)
    product[:, 0] = 1.0
    expected = p * product * torch.cumsum(before / product, -1)
    torch.testing.assert_close(expected_alignment(p, before), expected, **TIGHT)


def test_long_inputs_neither_underflow_nor_overflow() -> None:
    e = torch.full((1, 3000), 20.0).requires_grad_()
    before = torch.zeros(1, 3000)
    before[0, 2990] = 1.0
    found = expected_alignment(torch.sigmoid(e), before)
    found.square().sum().backward()
    assert found[0, 2990] > 0.999
    assert e.grad is not None
    assert e.grad.isfinite().all()


@pytest.mark.parametrize("keys", [1, 2, 3, 8, 13])
def test_a_linear_recurrence_is_a_loop(keys: int) -> None:
    decay, inputs = random(2, keys), random(2, keys)
    q, expected = torch.zeros(2, dtype=torch.float64), []
    for j in range(keys):
        q = decay[:, j] * q + inputs[:, j]
        expected.append(q)
    found = linear_recurrence(decay, inputs)
    torch.testing.assert_close(found, torch.stack(expected, 1), **TIGHT)
    same(found + 0 * decay, torch.stack(expected, 1) + 0 * decay, [decay, inputs])


def test_hard_weights_are_algorithm_1() -> None:
    attention = made(scores.Energy(DQ, DK, U), n.Monotonic()).eval()
    with torch.no_grad():
        attention.score.offset.zero_()
    q, h = random(20, T, DQ).detach(), random(20, K, DK).detach()
    with watch(attention) as seen:
        found = attention(q, h)
    energies = attention.score(q, h)
    stopped = 0
    for b in range(20):
        t: int | None = 0
        for i in range(T):
            context = torch.zeros(DK, dtype=torch.float64)
            places = [] if t is None else [j for j in range(t, K) if energies[b, i, j] > 0]
            t = places[0] if places else None
            if t is not None:
                context, stopped = h[b, t], stopped + 1
                assert seen[""][0][b, 0, i, t] == 1
            torch.testing.assert_close(found[b, i], context, **TIGHT)
    assert 10 < stopped < 90  # Both cases occur.
    chosen = hard_alignment(torch.tensor([[True, False, True]]), torch.tensor([[0.0, 1.0, 0.0]]))
    assert chosen.tolist() == [[0.0, 0.0, 1.0]]


def test_monotonic_attention_trains_by_its_expectation() -> None:
    """In an attention, with padding; without noise, evaluation may be soft, too."""
    attention = made(scores.Energy(DQ, DK, U), n.Monotonic(noise=0.0, hard=False))
    q, h = random(B, T, DQ), random(B, K, DK)
    e = attention.score(q, h)
    score = attention.score
    again = score.scale * (
        torch.tanh(
            (q @ score.query_projection.weight.T).unsqueeze(2)
            + (h @ score.key_projection.weight.T + score.key_projection.bias).unsqueeze(1)
        )
        @ (score.v / score.v.square().sum().sqrt())
    )
    torch.testing.assert_close(e, again + score.offset, **TIGHT)
    p = torch.sigmoid(e) * (torch.arange(K) < LENGTHS.view(B, 1, 1))
    expected = torch.stack([paths(p[b]) @ h[b] for b in range(B)])
    for training in (True, False):
        attention.train(training)
        found = attention(q, h, mask=masks.padding(LENGTHS))
        same(found, expected, [q, h, *score.parameters()])


def test_noise_is_of_training_alone() -> None:
    attention = made(scores.Energy(DQ, DK, U), n.Monotonic(noise=2.0))
    q, h = random(B, T, DQ).detach(), random(B, K, DK).detach()
    assert not torch.equal(attention(q, h), attention(q, h))
    assert torch.equal(attention.eval()(q, h), attention(q, h))
    with watch(attention.train(), top_k=1), pytest.raises(ValueError, match="only be watched with"):
        attention(q, h)


def test_the_coverage_loss_is_the_papers() -> None:
    a = torch.softmax(random(B, T, K), -1)
    expected = torch.stack(
        [
            sum(torch.minimum(a[:, t, i], a[:, :t, i].sum(1)) for i in range(K))
            for t in range(T)
        ],
        1,
    )  # fmt: skip
    torch.testing.assert_close(coverage_loss(a), expected, **TIGHT)
    attention = made(SCORES["coverage"]())
    with watch(attention, keep_gradients=True) as seen:
        attention(random(B, T, DQ), random(B, K, DK))
    coverage_loss(seen[""][0]).sum().backward()
    assert attention.score.w_c.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="expected"):
        coverage_loss(torch.ones(3))


# What holds for all

EVERY: dict[str, Callable[[], RecurrentAttention]] = {
    **{name: (lambda make=make: RecurrentAttention(make())) for name, make in SCORES.items()},
    "monotonic": lambda: RecurrentAttention(scores.Energy(DQ, DK, U), n.Monotonic(noise=0.0)),
    "both": lambda: RecurrentAttention(SCORES["location"](), n.Monotonic(noise=0.0)),
    "coverage, sparse": lambda: RecurrentAttention(SCORES["coverage"](), n.Sparsemax()),
    "coverage, windowed": lambda: RecurrentAttention(
        SCORES["coverage"](), n.Windowed(1, in_training=True)
    ),
    "coverage, local-m": lambda: RecurrentAttention(SCORES["coverage"](), n.LocalMonotonic(2)),
    "additive": lambda: RecurrentAttention(scores.Additive(DQ, DK, U)),
}
every = pytest.mark.parametrize("name", EVERY)


@every
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_masked_rows_are_zero_and_nothing_is_nan(
    name: str, training: bool, dtype: torch.dtype
) -> None:
    attention = EVERY[name]().to(dtype).train(training)
    q = torch.randn(B, T, DQ).to(dtype).requires_grad_()
    h = torch.randn(B, K, DK).to(dtype).requires_grad_()
    allowed = torch.rand(B, T, K) > 0.4
    allowed[0, 2] = False
    allowed[1] = False
    with watch(attention) as seen:
        context = attention(q, h, mask=allowed)
    assert context.dtype == dtype
    assert context.isfinite().all()
    assert context[1].eq(0).all()
    assert context[0, 2].eq(0).all()
    assert not (seen[""][0][:, 0].ne(0) & ~allowed).any()
    for grad in torch.autograd.grad(context.sum(), [q, h, *attention.parameters()],
                                    allow_unused=True):  # fmt: skip
        assert grad is None or grad.isfinite().all()


@every
def test_a_search_may_reorder_its_rows(name: str) -> None:
    """Rows of a beam: dropped, repeated, in another order."""
    attention = EVERY[name]().double().eval()
    for part in attention.parameters():
        nn.init.normal_(part)
    q, h = random(3, 4, DQ).detach(), random(3, K, DK).detach()
    lengths = torch.tensor([6, 3, 5])
    memory = attention.remember(h)
    state = attention.start(memory)
    for i in range(2):
        _, state = attention.step(q[:, i], memory, state, masks.padding(lengths))
    rows = torch.tensor([2, 0, 2, 1])
    state, memory = state.select(rows), Memory(*(part[rows] for part in memory))
    assert isinstance(state, AttentionState)
    asked = random(4, DQ).detach()
    found, state = attention.step(asked, memory, state, masks.padding(lengths[rows]))
    whole = torch.cat([q[rows, :2], asked.unsqueeze(1)], 1)
    expected = attention(whole, h[rows], mask=masks.padding(lengths[rows]))
    torch.testing.assert_close(found, expected[:, -1], **TIGHT)
    assert state.step == 3


@every
def test_watching_changes_nothing_and_sees_all(name: str) -> None:
    attention = EVERY[name]().double().eval()
    q, h = random(B, T, DQ).detach(), random(B, K, DK).detach()
    plainly = attention(q, h, mask=masks.padding(LENGTHS))
    with (
        watch(attention) as whole,
        watch(attention, rows=[3, -1]) as rows,
        watch(attention, top_k=2) as top,
    ):
        watched = attention(q, h, mask=masks.padding(LENGTHS))
    torch.testing.assert_close(watched, plainly, **TIGHT)
    weights = whole[""][0]
    assert weights.shape == (B, 1, T, K)
    torch.testing.assert_close(weights[:, 0] @ h, plainly, **TIGHT)
    torch.testing.assert_close(rows[""][0], weights[..., [3, T - 1], :], **TIGHT)
    torch.testing.assert_close(top.top[""][0].weights, weights.topk(2).values, **TIGHT)
    memory = attention.remember(h)
    with watch(attention) as steps:
        attention.step(q[:, 0], memory, attention.start(memory), masks.padding(LENGTHS))
    torch.testing.assert_close(steps[""][0], weights[..., :1, :], **TIGHT)


@every
def test_compiled_without_graph_breaks(name: str) -> None:
    torch._dynamo.reset()
    attention = EVERY[name]().double().eval()
    q, h = random(B, 3, DQ).detach(), random(B, K, DK).detach()
    fast = torch.compile(attention, fullgraph=True, backend="eager")
    with torch.no_grad():
        found = fast(q, h, mask=masks.padding(LENGTHS))
    torch.testing.assert_close(found, attention(q, h, mask=masks.padding(LENGTHS)), **TIGHT)


@pytest.mark.parametrize("normalize", [n.Softmax, n.Entmax15, lambda: n.LocalMonotonic(2)])
def test_parts_without_a_state_are_as_in_attention(normalize: Callable[[], n.Normalizer]) -> None:
    score = scores.Additive(DQ, DK, U)
    ours = RecurrentAttention(score, normalize()).double()
    plain = Attention(score, normalize()).double()
    q, h = random(B, T, DQ), random(B, K, DK)
    mask = masks.padding(LENGTHS)
    same(ours(q, h, mask=mask), plain(q, h, mask=mask), [q, h, *score.parameters()])
    numbers = torch.randn(B, T, K, dtype=torch.float64)
    same(ours(q, h, mask=numbers), plain(q, h, mask=numbers), [q, h])


def test_draws_reach_a_loss() -> None:
    attention = RecurrentAttention(SCORES["coverage"](), n.SampledHard()).double().train()
    q, h = random(B, T, DQ), random(B, K, DK)
    with watch(attention, keep_gradients=True) as seen:
        attention(q, h)
    assert seen.log_probability[""][0].shape == (B, 1, T)
    seen.log_probability[""][0].sum().backward()
    assert attention.score.v.grad.abs().sum() > 0


@pytest.mark.parametrize(("rows", "keys"), [(2, 0), (0, 3)])
def test_no_keys_and_no_rows(rows: int, keys: int) -> None:
    attention = RecurrentAttention(scores.LocationAware(4, 4, 3))
    read = attention(torch.ones(rows, 2, 4), torch.ones(rows, keys, 4))
    assert torch.equal(read, torch.zeros(rows, 2, 4))


def test_dropout_is_of_training_and_not_in_the_state() -> None:
    attention = RecurrentAttention(SCORES["coverage"](), dropout=0.5).double()
    q, h = random(B, T, DQ).detach(), random(B, K, DK).detach()
    with watch(attention) as seen:
        attention(q, h)
        attention.eval()(q, h)
    torch.testing.assert_close(*seen[""], **TIGHT)
    assert not torch.equal(attention.train()(q, h), attention(q, h))


# Refused


def test_only_a_recurrent_attention_takes_them() -> None:
    x = torch.zeros(1, 2, 4)
    match = "needs the weights of the step before: use it in RecurrentAttention"
    with pytest.raises(ValueError, match=match):
        Attention(scores.Coverage(4, 4, 4))
    with pytest.raises(ValueError, match=match):
        MultiHeadAttention(8, 2, normalize=n.Monotonic())
    with pytest.raises(ValueError, match=match):
        Attention(normalize=n.Windowed())
    with pytest.raises(ValueError, match=match):
        attend(x, x, x, score=scores.LocationAware(4, 4, 4))
    with pytest.raises(TypeError, match="score must be a Score"):
        RecurrentAttention(n.Softmax())  # type: ignore[arg-type]
    for make, message in (
        (lambda: scores.LocationAware(4, 4, 4, width=4), "width must be odd"),
        (lambda: scores.LocationAware(4, 4, 4, filters=0), "filters must be at least 1"),
        (lambda: scores.Coverage(4, 4, 4, largest_fertility=0.0), "must be above 0"),
        (lambda: scores.Coverage(4, 0, 4), "must be at least 1"),
        (lambda: scores.Energy(4, 0, 4), "must be at least 1"),
        (lambda: n.Monotonic(-1.0), "noise must be at least 0"),
        (lambda: n.Monotonic(math.inf), "noise must be at least 0"),
        (lambda: RecurrentAttention(dropout=1.0), "dropout must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
