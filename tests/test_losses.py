"""The chunked cross-entropy against torch's, and the cheap dropout's promises."""

import pytest
import torch

from heedful.layers.dropout import Dropout, dropout
from heedful.layers.losses import cross_entropy, plain_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 512, 1100])
def test_loss_and_gradients_are_torchs(smoothing: float, rows: int) -> None:
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


def test_gradient_in_float64_is_that_of_the_loss() -> None:
    torch.manual_seed(0)
    states = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 6, 6, 1])
    torch.autograd.gradcheck(
        lambda s, t: cross_entropy(s, t, labels, 0.1)[0], (states, table), rtol=1e-4
    )


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(401, 777, requires_grad=True)
    kept = dropout(ones, share)
    assert abs((kept == 0).double().mean().item() - share) < 0.005
    assert abs(kept.mean().item() - 1) < 0.01
    (gradient,) = torch.autograd.grad(kept.sum(), ones)
    torch.testing.assert_close(gradient, kept.detach())


def test_dropout_does_nothing_in_evaluation_and_repeats_with_the_seed() -> None:
    layer = Dropout(0.5)
    hidden = torch.randn(3, 5)
    assert layer.eval()(hidden) is hidden
    layer.train()
    torch.manual_seed(4)
    one = layer(hidden)
    torch.manual_seed(4)
    assert torch.equal(one, layer(hidden))
