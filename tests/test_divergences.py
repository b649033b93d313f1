"""Kullback–Leibler and Jensen–Shannon divergence against SciPy and PyTorch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr
from torch import Tensor

from heedful.attention.divergences import (
    Given,
    jensen_shannon,
    jensen_shannon_distance,
    kullback_leibler,
)

EXACT = {"rtol": 1e-11, "atol": 1e-12}


def logits(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def as_given(found: Tensor, given: Given) -> Tensor:
    if given == "logits":
        return found
    return found.log_softmax(-1) if given == "log-probabilities" else found.softmax(-1)


@pytest.mark.parametrize("given", ["logits", "log-probabilities", "weights"])
def test_values_are_those_of_scipy(given: Given) -> None:
    a, b = logits(1, 4, 7), logits(2, 4, 7)
    p, q = a.softmax(-1).numpy(), b.softmax(-1).numpy()
    own = as_given(a, given), as_given(b, given)
    right = torch.from_numpy(rel_entr(p, q).sum(-1))
    torch.testing.assert_close(kullback_leibler(*own, given), right, **EXACT)
    squared = torch.from_numpy(jensenshannon(p, q, axis=-1) ** 2)
    torch.testing.assert_close(jensen_shannon(*own, given), squared, **EXACT)
    distance = torch.from_numpy(jensenshannon(p, q, base=2, axis=-1))
    torch.testing.assert_close(jensen_shannon_distance(*own, given), distance, **EXACT)


@pytest.mark.parametrize("given", ["logits", "log-probabilities", "weights"])
def test_gradients_are_those_of_pytorch(given: Given) -> None:
    starts = [as_given(logits(seed, 3, 5), given) for seed in (3, 4)]

    def gradients(divergence: object) -> tuple[Tensor, ...]:
        p, q = (start.clone().requires_grad_() for start in starts)
        return torch.autograd.grad(divergence(p, q), [p, q])  # type: ignore[operator]

    def log(x: Tensor) -> Tensor:
        if given == "weights":
            return x.log()
        return x if given == "log-probabilities" else x.log_softmax(-1)

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return F.kl_div(log(q), log(p), log_target=True, reduction="sum")

    def js(p: Tensor, q: Tensor) -> Tensor:
        m = ((log(p).exp() + log(q).exp()) / 2).log()
        both = [F.kl_div(m, log(each), log_target=True, reduction="sum") for each in (p, q)]
        return (both[0] + both[1]) / 2

    for own, right in ((kullback_leibler, kl), (jensen_shannon, js)):
        found = gradients(lambda p, q, own=own: own(p, q, given).sum())
        for made, wanted in zip(found, gradients(right), strict=True):
            torch.testing.assert_close(made, wanted, **EXACT)


def test_zero_weights_are_finite_or_infinite_as_in_scipy() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    q = torch.tensor([[0.4, 0.6, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    for one, other in ((p, q), (q, p)):
        right = rel_entr(one.numpy(), other.numpy()).sum(-1)
        found = kullback_leibler(one, other)
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-12)
        assert found.isinf().tolist() == np.isinf(right).tolist()
    own, other = p.clone().requires_grad_(), q.clone().requires_grad_()
    found = jensen_shannon(own, other)
    np.testing.assert_allclose(
        found.detach().numpy(), jensenshannon(p.numpy(), q.numpy(), axis=1) ** 2, rtol=1e-12
    )
    assert found[1].item() == pytest.approx(math.log(2))
    found.sum().backward()
    for each, start in ((own, p), (other, q)):
        assert each.grad is not None
        assert bool(each.grad.isfinite().all())
        assert bool((each.grad[start == 0] == 0).all())


def test_kl_of_sparse_weights_has_no_nan_in_its_gradients() -> None:
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64, requires_grad=True)
    kullback_leibler(p, q).backward()
    assert p.grad is not None
    assert q.grad is not None
    torch.testing.assert_close(q.grad, torch.tensor([-2.0, -2 / 3, 0.0], dtype=torch.float64))
    assert bool(p.grad.isfinite().all())
    assert p.grad[2] == 0


@pytest.mark.parametrize("given", ["logits", "log-probabilities", "weights"])
def test_a_mask_leaves_outcomes_out(given: Given) -> None:
    mask = torch.tensor([[True, True, False, True], [False, False, False, False]])
    short = [logits(seed, 1, 3) for seed in (5, 6)]
    some = torch.full((2, 4), 1e3, dtype=torch.float64)
    full = []
    for each in short:
        own = some.clone()
        own[:1, [0, 1, 3]] = as_given(each, given)
        full.append(own.requires_grad_())
    for divergence in (kullback_leibler, jensen_shannon):
        found = divergence(*full, given, mask)
        right = divergence(*(as_given(each, given) for each in short), given)
        torch.testing.assert_close(found, torch.cat([right, right.new_zeros(1)]), **EXACT)
        for made in torch.autograd.grad(found.sum(), full):
            assert bool(made.isfinite().all())
            assert bool((made[~mask] == 0).all())


def test_large_logits_stay_finite() -> None:
    a = torch.tensor([[1e4, 0.0, -1e4]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[-1e4, 0.0, 1e4]], dtype=torch.float64, requires_grad=True)
    found = kullback_leibler(a, b, "logits")
    assert found.item() == pytest.approx(2e4)
    both = jensen_shannon(a, b, "logits")
    assert both.item() == pytest.approx(math.log(2))
    for made in torch.autograd.grad((found + both).sum(), [a, b]):
        assert bool(made.isfinite().all())


def test_logits_of_minus_infinity_are_zero_probabilities() -> None:
    a = torch.tensor([0.3, -math.inf, 0.1], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([-math.inf, 0.2, 0.1], dtype=torch.float64, requires_grad=True)
    p, q = a.detach().softmax(0).numpy(), b.detach().softmax(0).numpy()
    found = jensen_shannon(a, b, "logits")
    assert found.item() == pytest.approx(jensenshannon(p, q) ** 2, rel=1e-12)
    assert kullback_leibler(a, b, "logits").item() == math.inf
    for made in torch.autograd.grad(found, [a, b]):
        assert bool(made.isfinite().all())


def test_gradcheck() -> None:
    p, q = (logits(seed, 2, 4).softmax(-1).requires_grad_() for seed in (7, 8))
    for divergence in (kullback_leibler, jensen_shannon):
        assert torch.autograd.gradcheck(divergence, (p, q))
        assert torch.autograd.gradgradcheck(divergence, (p, q))


def test_half_precision_is_computed_in_float32() -> None:
    p, q = (logits(seed, 2, 4).softmax(-1).bfloat16() for seed in (9, 10))
    found = kullback_leibler(p, q)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, kullback_leibler(p.float(), q.float()))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="logits, log-probabilities, weights"):
        kullback_leibler(torch.ones(2), torch.ones(2), "odds")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="floating point"):
        jensen_shannon(torch.ones(2, dtype=torch.long), torch.ones(2))
