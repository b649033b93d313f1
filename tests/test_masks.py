"""The algebra of masks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import (
    DeltaAttention,
    DifferentialAttention,
    LatentAttention,
    LinearAttention,
    MultiHeadAttention,
)
from heedful.attention.masks import Causal, Grid, Mask, as_mask, causal, dense_mask, padding

CPU = torch.device("cpu")


class Given(Mask):
    """A mask of one's own: a table."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def rule(self, grid: Grid) -> Tensor:
        return grid.per_pair(self.table)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_padding_and_causal_mean_what_they_say(length: int, queries: int, keys: int) -> None:
    shape = (1, queries, keys)
    padded = padding(torch.tensor([length])).dense(shape, CPU).expand(shape)
    ordered = causal().dense(shape, CPU).expand(shape)
    for query in range(queries):
        for key in range(keys):
            assert padded[0, query, key] == (key < length)
            # The last query stands at the last key.
            assert ordered[0, query, key] == (key <= query + keys - queries)


@given(
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
@settings(max_examples=20, deadline=None)
def test_masks_combine_as_booleans(one: list[bool], other: list[bool]) -> None:
    a, b = torch.tensor(one).view(3, 4), torch.tensor(other).view(3, 4)
    A, B = Given(a), Given(b)
    for mask, expected in (
        (A & B, a & b),
        (A | B, a | b),
        (~A, ~a),
        (~(A & B), ~a | ~b),
        (A & B | ~A, a & b | ~a),
    ):
        assert mask.dense((3, 4), CPU).equal(expected)


def test_padding_fits_scores_with_and_without_heads() -> None:
    lengths = torch.tensor([2, 3])
    expected = torch.tensor([[True, True, False], [True, True, True]])
    for shape in ((2, 3), (2, 5, 3), (2, 4, 5, 3)):
        dense = padding(lengths).dense(shape, CPU)
        assert dense.dim() == len(shape)
        assert dense.view(2, 3).equal(expected)
    both = padding(lengths) & causal()
    assert both.dense((2, 4, 3, 3), CPU).shape == (2, 1, 3, 3)
    nested = padding(torch.tensor([[1, 2], [3, 0]])).dense((2, 2, 5, 3), CPU)
    assert nested.sum(-1).squeeze(-1).tolist() == [[1, 2], [3, 0]]


def test_a_square_causal_mask_is_never_made() -> None:
    """The kernel takes it as a flag."""

    class Unmade(Causal):
        def rule(self, grid: Grid) -> Tensor:
            raise AssertionError("made dense")

    from heedful.attention import attend

    x = torch.randn(2, 3, 4)
    attend(x, x, x, mask=Unmade())
    with pytest.raises(AssertionError, match="made dense"):
        attend(x[:, 1:], x, x, mask=Unmade())


def test_dense_mask_takes_masks_tensors_and_none() -> None:
    shape = (2, 3, 4)
    assert dense_mask(None, shape, CPU) is None
    table = torch.ones(3, 1, dtype=torch.bool)
    assert dense_mask(table, shape, CPU) is table
    assert dense_mask(Given(table), shape, CPU) is table


@pytest.mark.parametrize("sizes", [(4, 3), (3, 3, 4), (1, 2, 3, 4), (5,)])
def test_a_mask_that_does_not_fit_is_refused(sizes: tuple[int, ...]) -> None:
    table = torch.ones(sizes, dtype=torch.bool)
    for mask in (table, Given(table)):
        with pytest.raises(
            ValueError, match=r"does not broadcast to the scores' shape \[2, 3, 4\]"
        ):
            dense_mask(mask, (2, 3, 4), CPU)


def test_wrong_masks_are_refused() -> None:
    with pytest.raises(TypeError, match=r"mask must be boolean .* not torch.int64"):
        dense_mask(torch.ones(3, 4, dtype=torch.int64), (3, 4), CPU)
    with pytest.raises(TypeError, match=r"lengths must be integers, not torch.float32"):
        padding(torch.tensor([1.0]))
    with pytest.raises(TypeError, match=r"lengths must be integers, not torch.bool"):
        padding(torch.tensor([True]))
    with pytest.raises(ValueError, match="leading dimensions only"):
        padding(torch.ones(2, 3, 4, dtype=torch.int64)).dense((2, 3, 4), CPU)
    with pytest.raises(NotImplementedError, match="Mask does not implement `allows`"):
        Mask().dense((3, 4), CPU)


@pytest.mark.parametrize("same", [2, 3])
def test_a_tensor_of_an_expression_is_for_all_heads(same: int) -> None:
    """``[B, Q, K]`` means the same in an expression as alone, also if B is the number of heads."""
    torch.manual_seed(1)
    layer = MultiHeadAttention(12, heads=3)
    x, allowed = torch.rand(same, 5, 12), torch.rand(same, 5, 5) < 0.7
    for mask in (causal() & allowed, ~~(allowed & causal()), causal() & (allowed | allowed)):
        found = layer(x, x, mask=mask)
        expected = layer(x, x, mask=allowed & torch.ones(5, 5).bool().tril())
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("same", [2, 3])
@pytest.mark.parametrize(
    "layer",
    [
        lambda mask: MultiHeadAttention(12, heads=2, mask=mask),
        lambda mask: DifferentialAttention(12, heads=1, mask=mask),
        lambda mask: LatentAttention(12, heads=2, latent_size=3, mask=mask),
    ],
)
def test_a_tensor_of_a_module_is_for_all_heads(
    layer: Callable[[Mask | None], MultiHeadAttention], same: int
) -> None:
    """``[B, Q, K]`` means the same as a module's own mask and as that of a call."""
    torch.manual_seed(2)
    x, allowed = torch.rand(same, 5, 12), torch.rand(same, 5, 5) < 0.7
    own, plain = layer(as_mask(allowed)), layer(None)
    plain.load_state_dict(own.state_dict())
    torch.testing.assert_close(own(x, x), plain(x, x, mask=allowed))
    torch.testing.assert_close(
        own(x, x, mask=causal()), plain(x, x, mask=causal() & allowed), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("same", [2, 3])
def test_booleans_of_keys_are_for_all_heads_of_attention_with_sums(same: int) -> None:
    """``[B, 1, K]`` is padding, also if B is the number of heads."""
    torch.manual_seed(3)
    x, lengths = torch.rand(same, 5, 12), torch.tensor([5, 2, 4][:same])
    keys = (torch.arange(5) < lengths[:, None]).unsqueeze(1)
    linear, delta = LinearAttention(12, heads=2), DeltaAttention(12, heads=2)
    torch.testing.assert_close(linear(x, x, mask=keys), linear(x, x, mask=padding(lengths)))
    found, expected = (linear.remember(x, mask=mask) for mask in (keys, padding(lengths)))
    torch.testing.assert_close(found.S, expected.S)
    found, expected = (delta(x, x, mask=causal() & mask) for mask in (keys, padding(lengths)))
    torch.testing.assert_close(found, expected)
