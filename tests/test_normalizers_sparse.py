"""Sparsemax and the entmax family, against the `entmax` package and against their definitions."""

import math

import entmax as reference
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention.normalizers import Entmax, entmax15, entmax_bisect, sparsemax
from heedful.attention.normalizers.softmax import masked_softmax

ROWS = [
    [0.0, 0.0, 0.0],
    [1.0, 0.0, -1.0],  # On sparsemax's edge: the second is exactly 1 below the first.
    [3.0, 1.0, -3.0],  # On 1.5-entmax's edge.
    [1e3, 1e3 - 0.3, -1e3],
    [-700.0, -700.5, -701.0],
]


def scores_of(keys: int, scale: float = 1.0) -> Tensor:
    torch.manual_seed(keys)
    scores = torch.randn(20, keys, dtype=torch.float64) * scale
    scores[::5] = scores[::5].round()  # Ties.
    return scores.requires_grad_()


def gradients(weights: Tensor, *to: Tensor) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return torch.autograd.grad(weights, to, torch.randn_like(weights), retain_graph=True)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 200])
def test_the_exact_ones_are_those_of_the_entmax_package(keys: int, scale: float) -> None:
    scores = scores_of(keys, scale)
    pairs = ((sparsemax, reference.sparsemax), (entmax15, reference.entmax15))
    for ours, theirs in pairs:
        found, expected = ours(scores), theirs(scores, dim=-1)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-13)
        torch.testing.assert_close(
            gradients(found, scores), gradients(expected, scores), rtol=1e-8, atol=1e-10
        )


def test_edges_and_ties_are_those_of_the_entmax_package() -> None:
    scores = torch.tensor(ROWS, dtype=torch.float64).requires_grad_()
    pairs = ((sparsemax, reference.sparsemax), (entmax15, reference.entmax15))
    for ours, theirs in pairs:
        found, expected = ours(scores), theirs(scores, dim=-1)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradients(found, scores), gradients(expected, scores))


def test_masked_rows_are_those_of_the_entmax_package() -> None:
    scores, allowed = scores_of(9), torch.rand(20, 9) > 0.4
    allowed[:, 3] = True  # The package stops at a row of nothing.
    masked = scores.masked_fill(~allowed, float("-inf"))
    pairs = (
        (sparsemax(scores, allowed), reference.sparsemax(masked, dim=-1)),
        (entmax15(scores, allowed), reference.entmax15(masked, dim=-1)),
        (entmax_bisect(scores, 1.4, allowed), reference.entmax_bisect(masked, 1.4, n_iter=60)),
    )
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradients(found, scores), gradients(expected, scores))


@pytest.mark.parametrize("alpha", [1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("keys", [2, 7, 50])
def test_bisection_is_that_of_the_entmax_package(alpha: float, keys: int) -> None:
    scores = scores_of(keys).detach().requires_grad_()
    ours, theirs = (torch.full((20, 1), alpha).double().requires_grad_() for _ in range(2))
    found = entmax_bisect(scores, ours)
    expected = reference.entmax_bisect(scores, theirs, dim=-1, n_iter=100)
    # A weight is a root of the score less the threshold, whose rounding it magnifies near zero.
    root = (2 * torch.finfo(torch.float64).eps) ** (1 / (alpha - 1))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=max(1e-10, root))
    torch.testing.assert_close(entmax_bisect(scores, alpha), found)
    # Above 2 the power of a small weight magnifies the rounding: for p = 6e-4, 1e6 times at 4.
    magnified = 1e-6 if alpha <= 2.5 else 1e-4
    torch.testing.assert_close(
        gradients(found, scores, ours),
        gradients(expected, scores, theirs),
        rtol=magnified,
        atol=magnified / 100,
    )


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 200])
def test_bisection_and_closed_forms_agree(alpha: float, keys: int) -> None:
    scores, allowed = scores_of(keys, 2.0), torch.rand(20, keys) > 0.2
    for mask in (None, allowed):
        closed = Entmax(alpha)(scores, mask)
        found = entmax_bisect(scores, alpha, mask)
        torch.testing.assert_close(found, closed, rtol=1e-9, atol=1e-13)
        torch.testing.assert_close(gradients(found, scores), gradients(closed, scores))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_next_to_one_it_is_next_to_the_softmax(data: st.DataObject) -> None:
    keys, power = data.draw(st.integers(1, 9)), data.draw(st.integers(2, 300))
    numbers = st.lists(st.floats(-5, 5), min_size=keys, max_size=keys)
    scores = torch.tensor(data.draw(numbers), dtype=torch.float64).requires_grad_()
    epsilon = 10.0**-power
    alpha = torch.tensor(1.0, dtype=torch.float64).requires_grad_()
    near, softmax = entmax_bisect(scores, 1 + epsilon), masked_softmax(scores)
    torch.testing.assert_close(near, softmax, rtol=0, atol=30 * epsilon + 1e-14)
    at_one = entmax_bisect(scores, alpha)
    torch.testing.assert_close(at_one, softmax, rtol=1e-13, atol=1e-15)
    # ∂p/∂α at 1 is ½·p·(Σ p log² p − log² p): the difference quotient's limit.
    squares = softmax.detach().log().square()
    slopes = softmax.detach() * ((softmax.detach() * squares).sum() - squares) / 2
    direction = torch.linspace(-1, 1, keys, dtype=torch.float64)
    (found,) = torch.autograd.grad(at_one, alpha, direction)
    torch.testing.assert_close(found, (slopes * direction).sum(), rtol=1e-9, atol=1e-13)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_it_is_the_maximum_that_defines_it(data: st.DataObject) -> None:
    """⟨p, z⟩ + H_α(p) is no less than at any other distribution (Tsallis' entropy H_α)."""
    keys, alpha = data.draw(st.integers(1, 8)), data.draw(st.floats(1.01, 5))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    scores = torch.randn(keys, dtype=torch.float64) * data.draw(st.sampled_from([0.3, 1, 5]))

    def objective(p: Tensor) -> Tensor:
        return (p * scores).sum(-1) + (p - p**alpha).sum(-1) / (alpha * (alpha - 1))

    found = entmax_bisect(scores, alpha)
    others = torch.distributions.Dirichlet(torch.full((keys,), 0.5).double()).sample((200,))
    near = 0.99 * found + 0.01 * others
    assert objective(found) >= torch.cat([objective(others), objective(near)]).max() - 1e-12


def test_sparsity_grows_with_alpha() -> None:
    scores = scores_of(200)
    kept = [(entmax_bisect(scores, a) > 0).sum().item() for a in (1.0, 1.2, 1.5, 2.0, 3.0)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == scores.numel()
    assert kept[-1] < kept[1]


@pytest.mark.parametrize("alpha", [1.0, 1.0 + 1e-9, 1.2, 1.5, 2.0, 2.7])
def test_gradients_to_scores_and_alpha_are_those_of_finite_differences(alpha: float) -> None:
    torch.manual_seed(3)
    scores = torch.randn(4, 6, dtype=torch.float64).requires_grad_()
    allowed = torch.rand(4, 6) > 0.2
    allowed[2] = False
    above = torch.full((4, 1), max(alpha, 1.001), dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(lambda z: entmax_bisect(z, alpha, allowed), (scores,))
    assert torch.autograd.gradcheck(
        lambda z, a: entmax_bisect(z, a, allowed), (scores, above), eps=1e-7, atol=1e-5
    )


@pytest.mark.parametrize("alpha", [1.3, 1.5])
def test_second_derivatives_too(alpha: float) -> None:
    torch.manual_seed(4)
    scores = torch.randn(3, 5, dtype=torch.float64).mul(0.5).requires_grad_()
    above = torch.tensor(alpha, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(sparsemax, (scores,))
    assert torch.autograd.gradgradcheck(entmax15, (scores,))
    assert torch.autograd.gradgradcheck(entmax_bisect, (scores, above))


def test_it_works_under_vmap_and_func_grad() -> None:
    scores = scores_of(6)
    rows = torch.func.vmap(lambda row: entmax_bisect(row, 1.3))(scores)
    torch.testing.assert_close(rows, entmax_bisect(scores, 1.3))
    found = torch.func.jacrev(lambda row: entmax_bisect(row, 1.3))(scores[0])
    expected = torch.autograd.functional.jacobian(lambda row: entmax_bisect(row, 1.3), scores[0])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("alpha", [1.01, 1.3, 2.0, 3.0])
@pytest.mark.parametrize("start", [1.01, 1.5, 2.5, 80.0])
def test_alpha_starts_where_it_is_told_and_learns(alpha: float, start: float) -> None:
    normalize = Entmax(start, learned=True)
    assert math.isclose(normalize.alpha.item(), start, rel_tol=1e-5)
    if start == 80.0:
        return
    torch.manual_seed(5)
    scores = torch.randn(50, 8)
    target = entmax_bisect(scores, alpha)
    optimiser = torch.optim.Adam(normalize.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        loss = (normalize(scores) - target).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        assert math.isfinite(losses[-1])
    assert losses[-1] <= losses[0] / 4 or losses[-1] < 0.05


def test_one_alpha_a_head() -> None:
    alphas = torch.tensor([1.0, 1.5, 2.0]).view(3, 1, 1)
    scores = torch.randn(2, 3, 4, 6)
    for normalize in (Entmax(alphas), Entmax(alphas + 1e-4, learned=True)):
        found = normalize(scores)
        closed = (masked_softmax, entmax15, sparsemax)
        for head, function in enumerate(closed):
            torch.testing.assert_close(
                found[:, head], function(scores[:, head]), rtol=1e-3, atol=1e-3
            )
    sum(part.sum() for part in (found * torch.randn_like(found)).unbind(1)).backward()
    assert normalize.raw_alpha.grad.ne(0).all()
    assert "learned" in repr(normalize)
    assert "alpha=1.5" in repr(Entmax())


@pytest.mark.parametrize("keys", [1000, 20000])
def test_float32_keeps_its_digits_over_many_keys(keys: int) -> None:
    torch.manual_seed(6)
    for scale in (1e-4, 1e-2, 1.0):
        wide = torch.randn(4, keys, dtype=torch.float64) * scale
        for function in (sparsemax, entmax15, lambda z: entmax_bisect(z, 1.3)):
            found, expected = function(wide.float()), function(wide.float().double())
            torch.testing.assert_close(found.sum(-1), torch.ones(4), rtol=1e-4, atol=0)
            torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)
