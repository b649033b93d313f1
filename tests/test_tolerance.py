"""The tolerances: every order of summation passes with half of them, and mistakes do not."""

import copy

import pytest
import torch
from torch import Tensor, nn

import tolerance
from tolerance import assert_near, assert_rounded, quantised, reference


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(11)


def sums(terms: Tensor) -> dict[str, Tensor]:
    """The same sums ``[R]`` over ``terms [R, n]``, added in different orders."""
    onward = torch.zeros(len(terms))
    for column in terms.unbind(1):
        onward = onward + column
    shuffled = terms[:, torch.randperm(terms.shape[1])]
    return {
        "one by one": onward,
        "torch": terms.sum(1),
        "backward": terms.flip(1).cumsum(1)[:, -1],
        "product": terms @ torch.ones(terms.shape[1]),
        "blocks": shuffled.unflatten(1, (-1, 16)).sum(1).sum(1),
    }


@pytest.mark.parametrize("terms", [16, 256, 4096])
@pytest.mark.parametrize("positive", [False, True])
def test_every_order_of_a_sum_passes_with_half_the_tolerance(
    terms: int, positive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tolerance, "MARGIN", 4.0)
    given = torch.randn(100, terms)
    given = given.abs() if positive else given
    exact = given.double().sum(1)
    for found in sums(given).values():
        assert_near(found, exact, terms=terms)


@pytest.mark.parametrize("terms", [16, 256, 4096])
def test_a_lost_term_and_a_coarser_type_are_refused(terms: int) -> None:
    given = torch.randn(100, terms)
    exact = given.double().sum(1)
    wrong = {
        "one lost": given[:, 1:].sum(1),
        "one twice": given.sum(1) + given[:, 0],
        "bfloat16": given.bfloat16().float().sum(1),
        "ten bits": given.half().float().sum(1),
    }
    for found in wrong.values():
        with pytest.raises(AssertionError):
            assert_near(found, exact, terms=terms)
    with pytest.raises(AssertionError):  # float32 where float64 is asked for
        assert_near(given.sum(1), exact, terms=terms, dtype=torch.float64)


def test_infinities_and_nan_must_stand_in_the_same_places() -> None:
    exact = torch.tensor([1.0, torch.inf, torch.nan, -torch.inf], dtype=torch.float64)
    assert_near(exact.float(), exact, terms=1)
    for place, other in ((0, torch.nan), (1, 3e38), (2, 0.0), (3, torch.inf)):
        changed = exact.float()
        changed[place] = other
        with pytest.raises(AssertionError):
            assert_near(changed, exact, terms=1)


class Deep(nn.Module):
    """Layers with a norm and softmax: errors of the first are magnified by the later ones."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.enter(inputs)
        for layer in self.layers:
            hidden = hidden + nn.functional.layer_norm(layer(hidden * 3).tanh(), (64,))
            hidden = (hidden @ hidden.mT).softmax(-1) @ hidden
        return hidden


INPUTS = torch.linspace(-2, 2, 5 * 8).view(5, 8)


def results(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    out = model(inputs)
    return [out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_and_its_gradients_pass_and_mistakes_do_not(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tolerance, "MARGIN", 4.0)  # half
    model = Deep().to(dtype)
    for parameter in model.parameters():  # numbers with all digits of the type
        parameter.data += 0.01 * torch.randn_like(parameter)
    expected = reference(results, model, INPUTS, terms=64, dtype=dtype)
    assert_rounded(results(model, INPUTS.to(dtype)), expected)
    assert_rounded([part.detach() for part in expected.exact], expected)
    monkeypatch.undo()
    expected = reference(results, model, INPUTS, terms=64, dtype=dtype)
    coarse = copy.deepcopy(model)
    for parameter in coarse.parameters():
        narrow = torch.bfloat16 if dtype == torch.float32 else torch.float32
        parameter.data = parameter.data.to(narrow).to(dtype)
    with pytest.raises(AssertionError, match="result 0"):
        assert_rounded(results(coarse, INPUTS.to(dtype)), expected)
    changed = results(model, INPUTS.to(dtype))
    changed[3] = changed[3] * (1 + 1e-2 if dtype == torch.float32 else 1 + 1e-9)
    with pytest.raises(AssertionError, match="result 3"):
        assert_rounded(changed, expected)


def test_a_gradient_that_is_zero_by_cancellation_has_a_tolerance() -> None:
    """A key's bias moves all scores of a query alike: its gradient is zero but for rounding."""

    def gradient(query: Tensor, key: Tensor, bias: Tensor) -> list[Tensor]:
        weights = (query @ (key + bias).mT).softmax(-1)
        return list(torch.autograd.grad((weights @ key).square().sum(), [bias]))

    query, key, bias = torch.randn(4, 6), torch.randn(5, 6), torch.randn(6, requires_grad=True)
    expected = reference(gradient, query, key, bias, terms=20)
    assert 0 < expected.allowed[0] < 1e-2
    found = gradient(query, key, bias)
    assert tolerance.largest(expected.exact[0]) < 1e-12 < tolerance.largest(found[0])
    assert_rounded(found, expected)


def test_the_numbers_of_a_test_are_not_disturbed() -> None:
    model = Deep()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    reference(results, model, INPUTS, terms=64)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


@pytest.mark.parametrize("bits", ["int8", "bfloat16"])
def test_rounded_weights_are_within_half_the_tolerance(
    bits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tolerance, "SHARE", 0.5)
    weight, inputs = torch.randn(300, 256), torch.randn(40, 256)
    exact = inputs @ weight.T
    if bits == "int8":
        step = weight.abs().amax(1, keepdim=True) / 127
        found, allowed = inputs @ ((weight / step).round() * step).T, quantised(1, 63)
    else:
        found, allowed = inputs @ weight.bfloat16().float().T, quantised(1)
    error = float((found - exact).norm() / exact.norm())
    assert allowed / 10 < error < allowed
