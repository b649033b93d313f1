"""Cross-entropy in blocks against PyTorch's, and properties of dropout."""

import pytest
import torch
import torch.nn.functional as F

from heedful.kernels import cross_entropy as losses
from heedful.kernels import cross_entropy_compiled as compiled_losses
from heedful.kernels.cross_entropy import cross_entropy, plain_cross_entropy
from heedful.kernels.dropout import dropout, plain_dropout
from heedful.layers.dropout import Dropout
from heedful.training.operations import operation_counter
from tolerance import assert_rounded, reference

compiled = pytest.mark.skipif(compiled_losses.library() is None, reason="no C compiler")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 512, 1100])
def test_loss_and_gradients_match_pytorch(smoothing: float, rows: int) -> None:
    torch.manual_seed(rows)
    states = torch.randn(rows, 8, dtype=torch.float64, requires_grad=True)
    table = torch.randn(37, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(37, (rows,))
    found = []
    for function in (cross_entropy, plain_cross_entropy):
        smooth, exact = function(states, table, labels, smoothing)
        gradients = torch.autograd.grad(3 * smooth, (states, table))
        found.append((smooth.double(), exact.double(), *gradients))
    for ours, theirs in zip(*found, strict=True):
        # torch's side went through float32.
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_float64_gradient_matches_finite_differences() -> None:
    torch.manual_seed(0)
    states = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 6, 6, 1])
    torch.autograd.gradcheck(
        lambda s, t: cross_entropy(s, t, labels, 0.1)[0], (states, table), rtol=1e-4
    )


def _single(rows: int, width: int, symbols: int, scale: float) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows)
    states, table = torch.randn(rows, width) * scale, torch.randn(symbols, width)
    return states.requires_grad_(), table.requires_grad_(), torch.randint(symbols, (rows,))


@compiled
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("rows", "width", "symbols", "scale"),
    [(1, 3, 5, 1.0), (7, 16, 480, 1.0), (130, 128, 1000, 0.3), (245, 37, 961, 4.0)],
)
def test_the_loss_in_c_matches_float64(
    rows: int, width: int, symbols: int, scale: float, smoothing: float
) -> None:
    states, table, labels = _single(rows, width, symbols, scale)
    assert compiled_losses.is_supported(states, table, labels)
    smooth, exact = cross_entropy(states, table, labels, smoothing)
    found = (smooth.detach(), exact, *torch.autograd.grad(3 * smooth, (states, table)))

    def in_double(*wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = wide[0] @ wide[1].T
        total = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
        each = F.cross_entropy(logits, labels, reduction="none")
        return (total, each, *torch.autograd.grad(3 * total, wide))

    assert_rounded(found, reference(in_double, states, table, terms=max(rows, width, symbols)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_bias_is_one_more_column(smoothing: float) -> None:
    states, table, labels = _single(9, 4, 30, 1.0)
    bias = torch.randn(30).requires_grad_()
    smooth, exact = cross_entropy(states, table, labels, smoothing, bias)
    found = (smooth.detach(), exact, *torch.autograd.grad(smooth, (states, table, bias)))

    def in_double(*wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = F.linear(*wide)
        total = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
        each = F.cross_entropy(logits, labels, reduction="none")
        return (total, each, *torch.autograd.grad(total, wide))

    assert_rounded(found, reference(in_double, states, table, bias, terms=30))


@compiled
def test_the_loss_in_c_does_not_depend_on_threads() -> None:
    states, table, labels = _single(500, 24, 2000, 1.0)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(losses.losses_in_c(states.detach(), table.detach(), labels, 0.1))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


@compiled
def test_the_loss_in_c_propagates_nan_and_infinity() -> None:
    states, table, labels = _single(9, 8, 30, 1.0)
    for wrong in (float("nan"), float("inf")):
        with torch.no_grad():
            states[4, 2] = wrong
        assert not cross_entropy(states, table, labels, 0.1)[0].isfinite()


def test_a_label_out_of_range_raises() -> None:
    states, table, _ = _single(3, 8, 30, 1.0)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        cross_entropy(states, table, torch.tensor([1, 30, 2]), 0.1)


@compiled
def test_operations_in_c_are_counted() -> None:
    states, table, labels = _single(10, 8, 30, 1.0)
    with operation_counter() as counter:
        cross_entropy(states, table, labels, 0.1)[0].backward()
    assert counter.get_total_flops() == 3 * 2 * 10 * 8 * 30


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_dropout_rate_and_mean(share: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(401, 777, requires_grad=True)
    kept = dropout(ones, share)
    assert abs((kept == 0).double().mean().item() - share) < 0.005
    assert abs(kept.mean().item() - 1) < 0.01
    (gradient,) = torch.autograd.grad(kept.sum(), ones)
    torch.testing.assert_close(gradient, kept.detach())


def test_dropout_is_off_in_evaluation_and_deterministic_with_a_seed() -> None:
    layer = Dropout(0.5)
    hidden = torch.randn(3, 5)
    assert layer.eval()(hidden) is hidden
    layer.train()
    torch.manual_seed(4)
    one = layer(hidden)
    torch.manual_seed(4)
    assert torch.equal(one, layer(hidden))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 5, 8)])
def test_dropout_in_c_is_identical_to_the_reference(shape: tuple[int, ...], share: float) -> None:
    torch.manual_seed(2)
    hidden = torch.randn(shape).mT.requires_grad_() if len(shape) > 1 else torch.randn(shape)
    hidden = hidden.detach().requires_grad_()
    torch.manual_seed(3)
    ours = dropout(hidden, share)
    torch.manual_seed(3)
    words = torch.empty((hidden.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    dropped = round(share * 65536)
    plain = plain_dropout(hidden, words, dropped - 32768, 65536 / (65536 - dropped))
    assert torch.equal(ours, plain)
    given = torch.randn_like(ours)
    (one,) = torch.autograd.grad(ours, hidden, given)
    (other,) = torch.autograd.grad(plain, hidden, given)
    assert torch.equal(one, other)
