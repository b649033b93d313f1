"""Fewer heads of keys than of queries in ``attend``, and shapes that are refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import (
    LinearAttention,
    MultiHeadAttention,
    attend,
    attention_weights,
    masks,
    normalizers,
    positions,
    scores,
    use_kernel,
)
from heedful.attention.masks import Mask
from tolerance import assert_near, assert_rounded, reference


@pytest.mark.parametrize("length", [3, 20, 140])
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["none", "padding", "causal", "booleans", "numbers"])
def test_dot_products_are_those_of_pytorch(kind: str, groups: int, length: int) -> None:
    torch.manual_seed(1)
    query = torch.randn(2, 8, length, 4, requires_grad=True)
    key, value = (torch.randn(2, groups, length, 4, requires_grad=True) for _ in range(2))
    dense = torch.rand(2, 8, length, length) < 0.7
    dense[..., 0] = True
    numbers = torch.randn(8, length, length)
    padded = torch.arange(length) < torch.tensor([length, length - 1])[:, None]
    ours: dict[str, Mask | Tensor | None] = {
        "none": None,
        "padding": masks.padding(torch.tensor([length, length - 1])),
        "causal": masks.causal(),
        "booleans": dense,
        "numbers": numbers,
    }
    theirs = {
        "none": None,
        "padding": padded[:, None, None],
        "causal": torch.ones(length, length, dtype=torch.bool).tril(),
        "booleans": dense,
        "numbers": numbers.double(),
    }

    def exactly(*given: Tensor) -> list[Tensor]:
        found = F.scaled_dot_product_attention(*given, attn_mask=theirs[kind], enable_gqa=True)
        return [found, *torch.autograd.grad(found.square().sum(), given)]

    found = attend(query, key, value, mask=ours[kind])
    gradients = torch.autograd.grad(found.square().sum(), (query, key, value))
    expected = reference(exactly, query, key, value, terms=8 * length)
    assert_rounded([found, *gradients], expected)
    weights = attention_weights(query, key, mask=ours[kind])
    each = 8 // groups
    assert_near(weights @ value.repeat_interleave(each, 1), expected.exact[0], terms=2 * length)


@pytest.mark.parametrize(
    "parts",
    [
        {"score": scores.Additive(4, 4, 4)},
        {"score": scores.Gaussian()},
        {"score": scores.General(4, 4)},
        {"normalize": normalizers.Sparsemax()},
        {"positions": positions.Rotary(4)},
        {"positions": positions.Shaw(4, 3)},
        {"positions": positions.ALiBi(8)},
    ],
    ids=lambda parts: type(next(iter(parts.values()))).__name__,
)
@pytest.mark.parametrize("length", [5, 140])
def test_other_parts_read_each_head_several_times(
    parts: dict[str, torch.nn.Module], length: int
) -> None:
    torch.manual_seed(2)
    query = torch.randn(1, 8, length, 4)
    key, value = torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4)
    whole = [part.repeat_interleave(4, 1) for part in (key, value)]
    padding = masks.padding(torch.tensor([length - 2]))
    expected = attend(query, *whole, mask=padding, **parts)  # type: ignore[arg-type]
    assert_near(attend(query, key, value, mask=padding, **parts), expected, terms=length)  # type: ignore[arg-type]
    assert_near(
        attention_weights(query, key, mask=padding, **parts),  # type: ignore[arg-type]
        attention_weights(query, whole[0], mask=padding, **parts),  # type: ignore[arg-type]
        terms=length,
    )


def test_additive_tiles_of_groups() -> None:
    torch.manual_seed(3)
    query, key = torch.randn(1, 4, 6, 4), torch.randn(1, 2, 6, 4)
    score = scores.Additive(4, 4, 4)
    with use_kernel("plain"):
        expected = attend(
            query, key.repeat_interleave(2, 1), key.repeat_interleave(2, 1), score=score
        )
    with use_kernel("tiles"):
        assert_near(attend(query, key, key, score=score), expected, terms=24)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 8, 3, 4), (1, 3, 5, 4), (1, 3, 5, 4)),  # no multiple
        ((1, 8, 3, 4), (1, 2, 5, 4), (1, 4, 5, 4)),  # keys and values differ
        ((1, 2, 3, 4), (1, 8, 5, 4), (1, 8, 5, 4)),  # fewer queries than keys
        ((8, 3, 4), (2, 5, 4), (2, 5, 4)),  # a batch, no heads
        ((2, 8, 3, 4), (3, 4, 5, 4), (3, 4, 5, 4)),  # another batch
    ],
)
def test_heads_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"query \[.*key \[.*: leading dimensions differ"):
        attend(*(torch.zeros(shape) for shape in shapes))


def test_a_module_names_the_shapes_of_batches_that_differ() -> None:
    two, three = torch.zeros(2, 4, 8), torch.zeros(3, 4, 8)
    named = r"query \[2, 4, 8\] and key \[3, 4, 8\]"
    for module in (MultiHeadAttention(8, 2), LinearAttention(8, 2)):
        with pytest.raises(ValueError, match=named):
            module(two, three)
        with pytest.raises(ValueError, match=r"and value \[3, 4, 8\]: leading dimensions differ"):
            module(two, two, three)
    layer = MultiHeadAttention(8, 2)
    with pytest.raises(ValueError, match=r"differ: query \[2\] and memory \[3\]"):
        layer.read(two, layer.remember(three))
    assert layer(two, torch.zeros(1, 5, 8)).shape == (2, 4, 8)  # one stands for all


@pytest.mark.parametrize("width", [0, -1])
def test_a_head_has_a_width(width: int) -> None:
    with pytest.raises(ValueError, match=f"head_dim must be at least 1, not {width}"):
        MultiHeadAttention(8, heads=2, head_dim=width)


@pytest.mark.parametrize("kind", [MultiHeadAttention, LinearAttention])
def test_a_mask_without_its_name_is_refused(
    kind: type[MultiHeadAttention | LinearAttention],
) -> None:
    """The fourth argument of nn.MultiheadAttention is a mask where true means ignore."""
    x = torch.zeros(2, 4, 8)
    with pytest.raises(
        TypeError, match=r"^\w+Attention takes query, key and value; .* mask=allowed"
    ):
        kind(8, 2)(x, x, x, torch.ones(2, 4, dtype=torch.bool))
