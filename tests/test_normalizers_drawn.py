"""Normalizers that draw: frequencies, the REINFORCE surrogate, the straight-through gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers import GumbelStraightThrough, Hard, Normalizer, SampledHard
from heedful.attention.normalizers.sampled_hard import log_probability_of

DRAWN = {"sampled": SampledHard, "gumbel": lambda: GumbelStraightThrough(temperature=0.3)}
every = pytest.mark.parametrize("kind", DRAWN)
SCORES = torch.tensor([0.5, -1.0, 2.0, 1.0, 0.0], dtype=torch.float64)
ALLOWED = torch.tensor([True, True, True, False, True])
TRUE = torch.softmax(SCORES.masked_fill(~ALLOWED, float("-inf")), -1)


def drawn(normalize: Normalizer, draws: int, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(7)
    return normalize.train()(SCORES.to(dtype).expand(draws, 5), ALLOWED)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_keys_are_drawn_as_often_as_the_softmax_says(kind: str, dtype: torch.dtype) -> None:
    found = drawn(DRAWN[kind](), 40_000, dtype).double().mean(0)
    assert found[3] == 0
    spread = (TRUE * (1 - TRUE) / 40_000).sqrt()
    assert ((found - TRUE).abs() <= 5 * spread).all()


@every
def test_draws_are_independent_in_training_and_the_best_in_evaluation(kind: str) -> None:
    normalize = DRAWN[kind]().train()
    assert normalize.draws
    scores = SCORES.expand(3, 50, 5)
    assert not normalize(scores, ALLOWED).equal(normalize(scores, ALLOWED))
    torch.manual_seed(1)
    first = normalize(scores, ALLOWED)
    torch.manual_seed(1)
    assert normalize(scores, ALLOWED).equal(first)
    normalize.eval()
    assert not normalize.draws
    assert normalize(scores, ALLOWED).equal(Hard()(scores, ALLOWED))
    assert normalize.log_probability(scores, ALLOWED, first) is None


def test_the_log_probability_is_that_of_the_drawn_key() -> None:
    torch.manual_seed(2)
    normalize = SampledHard().train()
    scores = torch.randn(3, 4, 6, dtype=torch.float64).requires_grad_()
    allowed = torch.rand(4, 6) > 0.3
    allowed[1], allowed[2] = False, True
    weights = normalize(scores, allowed)
    found = normalize.log_probability(scores, allowed, weights)
    assert found is not None
    assert found.shape == (3, 4)
    assert found[:, 1].eq(0).all()
    rows = torch.distributions.Categorical(logits=scores[:, 2])
    torch.testing.assert_close(found[:, 2], rows.log_prob(weights[:, 2].argmax(-1)))
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    probabilities = torch.softmax(scores.masked_fill(~allowed, float("-inf")), -1).nan_to_num()
    torch.testing.assert_close(gradient, (weights - probabilities) * allowed.any(-1, keepdim=True))
    assert torch.autograd.gradcheck(
        lambda z: log_probability_of(weights.detach(), z, allowed), (scores,)
    )


def test_the_log_probability_of_half_precision_is_float32() -> None:
    scores = torch.randn(4, 300).to(torch.bfloat16)
    weights = SampledHard().train()(scores)
    found = log_probability_of(weights, scores)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), log_probability_of(weights, scores.double()))


@pytest.mark.parametrize("baseline", [0.0, 1.5])
def test_the_surrogate_has_the_gradient_of_the_expected_reward(baseline: float) -> None:
    """∇ Σ p_i r_i, exactly, against the mean of (r − b)·∇ log p over many draws."""
    reward = torch.tensor([1.0, 4.0, -2.0, 100.0, 3.0], dtype=torch.float64)
    scores = SCORES.clone().requires_grad_()
    expected_reward = (torch.softmax(scores.masked_fill(~ALLOWED, -1e300), -1) * reward).sum()
    (exact,) = torch.autograd.grad(expected_reward, scores)
    draws = 200_000
    torch.manual_seed(3)
    normalize, rows = SampledHard().train(), scores.expand(draws, 5)
    weights = normalize(rows, ALLOWED)
    log_probability = normalize.log_probability(rows, ALLOWED, weights)
    assert log_probability is not None
    surrogate = ((weights.detach() @ reward - baseline) * log_probability).mean()
    (found,) = torch.autograd.grad(surrogate + (weights @ reward).mean(), scores)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.03)
    assert exact.abs().max() > 0.3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_gumbel_is_that_of_torch(temperature: float) -> None:
    scores = torch.randn(30, 7, dtype=torch.float64).requires_grad_()
    direction = torch.randn(30, 7, dtype=torch.float64)
    torch.manual_seed(4)
    found = GumbelStraightThrough(temperature).train()(scores)
    torch.manual_seed(4)
    expected = F.gumbel_softmax(scores, tau=temperature, hard=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, scores, direction),
        torch.autograd.grad(expected, scores, direction),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_straight_through_is_exactly_one_hot(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    scores = (torch.randn(20_000, 5) * torch.logspace(-3, 2, 20_000).unsqueeze(-1)).to(dtype)
    for training in (True, False):
        weights = GumbelStraightThrough().train(training)(scores.requires_grad_())
        assert ((weights == 0) | (weights == 1)).all()
        assert weights.sum(-1).eq(1).all()


def test_a_scorer_learns_by_either_which_key_pays() -> None:
    """From a reward alone (REINFORCE), or through the straight-through gradient."""
    pay = torch.tensor([0.0, 0.0, 1.0, 0.2])
    for kind in DRAWN:
        torch.manual_seed(6)
        scores = torch.zeros(4, requires_grad=True)
        normalize, optimiser = DRAWN[kind]().train(), torch.optim.Adam([scores], lr=0.1)
        for _ in range(80):
            rows = scores.expand(32, 4)
            weights = normalize(rows)
            reward = weights @ pay
            loss = -reward.mean()
            log_probability = normalize.log_probability(rows, None, weights)
            if log_probability is not None:
                loss = loss - ((reward - reward.mean()).detach() * log_probability).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        assert torch.softmax(scores, -1)[2] > 0.9


def test_a_share_of_the_rows_reads_the_expectation_with_an_exact_gradient() -> None:
    torch.manual_seed(3)
    normalize = SampledHard(expected=0.25).train()
    scores = SCORES.expand(20_000, 5).clone().requires_grad_()
    weights = normalize(scores, ALLOWED)
    soft = weights.max(-1).values < 1
    share = soft.double().mean()
    assert abs(float(share) - 0.25) < 5 * (0.25 * 0.75 / 20_000) ** 0.5
    torch.testing.assert_close(weights[soft], TRUE.expand(int(soft.sum()), 5))
    drawn_rows = weights[~soft].detach()
    spread = (TRUE * (1 - TRUE) / len(drawn_rows)).sqrt()
    assert ((drawn_rows.mean(0) - TRUE).abs() <= 5 * spread).all()
    surprise = normalize.log_probability(scores, ALLOWED, weights)
    assert surprise is not None
    assert surprise[soft].eq(0).all()
    assert surprise[~soft].lt(0).all()
    # No gradient passes a draw; the expectation's is the softmax's, and its surrogate has none.
    values = torch.tensor([3.0, 1.0, -2.0, 5.0, 0.5], dtype=torch.float64)
    found = torch.autograd.grad((weights @ values).sum(), scores, retain_graph=True)[0]
    assert found[~soft].eq(0).all()
    exact = TRUE * (values - TRUE @ values)
    torch.testing.assert_close(found[soft], exact.expand_as(found[soft]))
    surrogate = torch.autograd.grad(surprise.sum(), scores)[0]
    assert surrogate[soft].eq(0).all()
    assert surrogate[~soft].abs().sum() > 0
    normalize.eval()
    assert normalize(scores, ALLOWED).equal(Hard()(scores, ALLOWED))


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="expected must be in"):
        SampledHard(expected=share)
