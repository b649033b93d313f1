"""Watching: weights on demand, under the module's own name, without changing anything."""

import copy

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import Attention, MultiHeadAttention, attention_weights, masks, scores, watch


class Two(nn.Module):
    """Two attentions, one of them in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.first = MultiHeadAttention(8, heads=2, dropout=0.5)
        self.layers = nn.ModuleList([Attention(scores.Additive(8, 8, hidden_dim=4), dropout=0.5)])

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.layers[0](self.first(query, key), key, mask=masks.padding(torch.tensor([2, 4])))


@pytest.fixture
def model() -> Two:
    torch.manual_seed(1)
    return Two().double().eval()


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)


def test_weights_come_under_the_modules_names_one_a_call(model: Two) -> None:
    query, key = inputs()
    with watch(model) as seen:
        assert seen["first"] == []
        model(query, key)
        model(query[:, :1], key)
    assert list(seen) == ["first", "layers.0"]
    assert [tuple(part.shape) for part in seen["first"]] == [(2, 2, 3, 4), (2, 2, 1, 4)]
    assert [tuple(part.shape) for part in seen["layers.0"]] == [(2, 1, 3, 4), (2, 1, 1, 4)]
    for part in (*seen["first"], *seen["layers.0"]):
        torch.testing.assert_close(part.sum(-1), torch.ones_like(part[..., 0]))
        assert not part.requires_grad
    assert seen["layers.0"][0][0, ..., 2:].eq(0).all()


def test_watching_changes_no_output(model: Two) -> None:
    query, key = inputs()
    plain = model(query, key)
    with watch(model):
        watched = model(query, key)
    torch.testing.assert_close(watched, plain, rtol=1e-12, atol=1e-13)
    assert model(query, key).equal(plain)


def test_the_weights_are_those_of_the_definition_and_before_dropout(model: Two) -> None:
    query, key = inputs()
    with watch(model) as seen:
        model(query, key)
    model.train()
    with watch(model, ["first"]) as seen_in_training:
        model(query, key)
    assert seen_in_training["first"][0].equal(seen["first"][0])
    part = model.first
    expected = attention_weights(
        part.query_projection(query).view(2, 3, 2, 4).transpose(1, 2),
        part.key_projection(key).view(2, 4, 2, 4).transpose(1, 2),
    )
    torch.testing.assert_close(seen["first"][0], expected)


def test_only_the_named_are_watched(model: Two) -> None:
    with watch(model, ["layers.0"]) as seen:
        assert not model.first.watched
        assert model.layers[0].watched
        model(*inputs())
    assert list(seen) == ["layers.0"]
    assert len(seen) == 1
    with pytest.raises(KeyError):
        seen["first"]


def test_weights_can_be_part_of_a_loss(model: Two) -> None:
    query, key = inputs()
    with watch(model, keep_gradients=True) as seen:
        model(query, key)
    seen["layers.0"][0].square().sum().backward()
    assert model.layers[0].score.v.grad.ne(0).any()
    assert model.first.query_projection.weight.grad.ne(0).any()


def test_watching_ends_with_the_block_even_by_an_error(model: Two) -> None:
    def broken() -> None:
        with watch(model):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        broken()
    assert not model.first.watched
    with watch(model) as seen:
        pass
    model(*inputs())
    assert seen["first"] == []


def test_two_may_watch_at_once(model: Two) -> None:
    with watch(model, ["first"]) as outer:
        model(*inputs())
        with watch(model) as inner:
            model(*inputs())
        model(*inputs())
    assert len(outer["first"]) == 3
    assert len(inner["first"]) == len(inner["layers.0"]) == 1
    assert outer["first"][1] is not None
    torch.testing.assert_close(outer["first"][1], inner["first"][0])


def test_a_wrong_name_is_refused_with_the_nearest(model: Two) -> None:
    with (
        pytest.raises(ValueError, match=r"named 'layer\.0'; did you mean 'layers\.0'\?"),
        watch(model, ["layer.0"]),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"named 'first.query_projection'"),
        watch(model, ["first", "first.query_projection"]),
    ):
        pass
    assert not model.first.watched
    with (
        pytest.raises(ValueError, match=r"no attention module named 'any'$"),
        watch(nn.Linear(2, 2), ["any"]),
    ):
        pass


def test_watching_leaves_no_trace_in_what_is_saved_or_copied(model: Two) -> None:
    names = list(model.state_dict())
    with watch(model) as seen:
        assert list(model.state_dict()) == names
        twin = copy.deepcopy(model)
        model(*inputs())
    assert len(seen["first"]) == 1
    assert list(twin.state_dict()) == names
    assert not twin.first.watched
    assert twin(*inputs()).shape == (2, 3, 8)
