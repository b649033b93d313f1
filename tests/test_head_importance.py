"""The importance of heads against finite differences, and curves against zeroed weights."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import MultiHeadAttention
from heedful.basics.errors import UserError
from heedful.evaluation.head_importance import (
    gate_gradients,
    head_importance,
    normalized_by_layer,
)
from heedful.inference.removal import head_gates, removable_heads, removed_heads
from heedful.models.pairs import Source
from test_lens import gpt, transformer
from test_removal import zeroed


def losses(model: Any, tokens: Tensor) -> Tensor:
    """The loss of each row ``[B]``."""
    logits = model.logits(model.states(tokens[:, :-1]))
    parts = torch.nn.functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    return parts.sum(1)


def scaled(model: Any, name: str, head: int, factor: float) -> Any:
    """A copy that reads the head's result times a factor."""
    other = copy.deepcopy(model)
    part = other.get_submodule(name)
    with torch.no_grad():
        part.output_projection.weight[:, head * part.head_dim : (head + 1) * part.head_dim] *= (
            factor
        )
    return other


def test_gradients_are_those_of_finite_differences() -> None:
    model = gpt(2, True).double()
    tokens = torch.tensor([[3, 70, 80, 90], [3, 9, 9, 50], [3, 7, 11, 30]])
    names = ["layers.0.self_attention", "layers.1.self_attention"]
    found = gate_gradients(model, names, lambda: losses(model, tokens).sum())
    step, expected = 1e-5, {}
    for name in names:
        assert found[name].shape == (3, 2)
        for head in range(2):
            with torch.no_grad():
                more = losses(scaled(model, name, head, 1 + step), tokens)
                less = losses(scaled(model, name, head, 1 - step), tokens)
            slope = (more - less) / (2 * step)
            torch.testing.assert_close(found[name][:, head], slope, rtol=1e-6, atol=1e-8)
            expected[name, head] = float(slope.abs().mean())
    importance = head_importance(
        model, [lambda: losses(model, tokens[:2]).sum(), lambda: losses(model, tokens[2:]).sum()]
    )
    assert importance == pytest.approx(expected, rel=1e-5)
    assert not any(one.requires_grad is False for one in model.parameters())


def test_all_attention_of_a_translator_has_gates() -> None:
    model = transformer(2, True)
    heads = removable_heads(model)
    names = {name for name, _ in heads}
    assert names == set(model.attention_axes())
    source = Source(torch.tensor([[7, 8, 3], [9, 3, 0]]), torch.tensor([3, 2]))
    target = torch.tensor([[2, 7, 8], [2, 9, 9]])
    found = gate_gradients(
        model, sorted(names), lambda: model.teacher_force(source, target).square().sum()
    )
    assert {name: own.shape for name, own in found.items()} == dict.fromkeys(names, (2, 2))
    assert all(bool(own.any()) for own in found.values())


def test_gates_of_one_change_nothing() -> None:
    torch.manual_seed(1)
    layer, x = MultiHeadAttention(12, heads=3, key_heads=1), torch.randn(2, 4, 12)
    expected = layer(x, x)
    with head_gates(layer, [""]) as gates:
        torch.testing.assert_close(layer(x, x), expected)
        with pytest.raises(UserError, match="different numbers of rows"):
            layer(x[:1], x[:1])
    assert gates[""].tolist() == [[1.0] * 3] * 2


def test_removed_heads_are_those_of_zeroed_weights() -> None:
    model = gpt(2, True)
    tokens = torch.tensor([[3, 70, 80, 90]])
    heads = removable_heads(model)

    def measure(own: Any = model) -> float:
        with torch.no_grad():
            return float(losses(own, tokens))

    order = [heads[2], heads[0], heads[3], heads[1]]
    found = []
    for count in (0, 1, 3):
        with removed_heads(model, order[:count]):
            found.append(measure())
        assert found[-1] == pytest.approx(measure(zeroed(model, order[:count])), abs=1e-5)
    assert len({round(one, 4) for one in found}) == 3


def test_heads_without_a_projection_are_not_there() -> None:
    averaged = MultiHeadAttention(8, heads=2, aggregate="mean")
    assert removable_heads(averaged) == []
    with pytest.raises(UserError, match="no attention heads that can be removed"):
        head_importance(averaged, [])
    with pytest.raises(UserError, match="no examples"):
        head_importance(gpt(1, True), [])
    layer = MultiHeadAttention(8, heads=2)
    assert removable_heads(layer) == [("", 0), ("", 1)]
    with removed_heads(layer, removable_heads(layer)):
        assert bool(
            (layer(torch.ones(1, 2, 8), torch.ones(1, 2, 8)) == layer.output_projection.bias).all()
        )


def test_importances_are_divided_by_the_norm_of_their_layer() -> None:
    found = normalized_by_layer({("a", 0): 3.0, ("a", 1): 4.0, ("b", 0): 0.0})
    assert found == pytest.approx({("a", 0): 0.6, ("a", 1): 0.8, ("b", 0): 0.0})
