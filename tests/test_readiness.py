"""Models in evaluation mode, and in training mode again when nobody uses them any more."""

import torch
from torch import nn

from heedful.inference.inference_mode import evaluating, ready


def test_the_mode_lasts_until_the_last_user_has_ended() -> None:
    frozen = nn.Dropout(0.5).eval()
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), frozen)
    first, second = evaluating(model), evaluating(model)
    first.__enter__()
    second.__enter__()  # as another thread would
    first.__exit__(None, None, None)
    assert not any(part.training for part in model.modules())
    second.__exit__(None, None, None)
    assert [part.training for part in model] == [True, True, False]
    assert model.training


def test_gradients_are_off_inside() -> None:
    model = nn.Linear(2, 2)
    with ready(model, torch.device("cpu")):
        assert not model(torch.ones(1, 2)).requires_grad
        assert not model.training
    assert model.training
