"""What masked keys and values hold has no influence, however large: all scores and masks."""

import random
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import (
    MultiHeadAttention,
    attend,
    attention_weights,
    masks,
    normalizers,
    scores,
    use_kernel,
    watch,
)
from heedful.attention.masks import Mask
from heedful.kernels import additive_compiled as compiled
from tolerance import assert_near, assert_rounded, largest, reference

SCORES = {
    "scaled dot": scores.ScaledDot,
    "dot": scores.Dot,
    "general": lambda: scores.General(4, 4),
    "additive": lambda: scores.Additive(4, 4, 4),
    "concat": lambda: scores.Concat(4, 4, 4),
    "cosine": scores.Cosine,
    "gaussian": scores.Gaussian,
}
MASKS = ["padding", "booleans", "numbers", "causal", "causal and padding", "window"]
DEAD = 3
"""Keys at the end that no query may attend to."""


def made_mask(kind: str, queries: int, keys: int) -> tuple[Mask | Tensor, int | None]:
    """A mask under which the last keys are dead, and where the first query stands."""
    allowed = (torch.arange(keys) < keys - DEAD).expand(queries, keys)
    if kind == "padding":
        return masks.padding(torch.tensor([keys - DEAD])), None
    if kind == "booleans":
        return allowed, None
    if kind == "numbers":
        return torch.rand(queries, keys).masked_fill(~allowed, float("-inf")), None
    if kind == "causal and padding":
        return masks.causal() & allowed, None
    causal = masks.causal() if kind == "causal" else masks.causal() & masks.window(4, 4)
    return causal, keys - DEAD - queries


def filled(part: Tensor, number: float) -> Tensor:
    """With ``number`` and its opposite at the dead keys."""
    signs = torch.where(torch.arange(DEAD) % 2 == 0, number, -number)
    live = part[..., :-DEAD, :]
    return torch.cat([live, signs[:, None].expand_as(part[..., -DEAD:, :]).to(part)], -2)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", MASKS)
def test_masked_numbers_of_any_size_change_nothing(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    dims = chance.choice([3, 4] if kind == "padding" else [2, 3, 4])
    keys = chance.choice([4, 9, 40, 200])
    queries = min(chance.choice([1, 5, 20, 150]), keys - DEAD)
    leading = (1, 2)[: dims - 2]
    made = SCORES[chance.choice(list(SCORES))]()
    for parameter in made.parameters():
        parameter.data.mul_(0.2)  # so that what is projected is finite, too
    mask, first = made_mask(kind, queries, keys)

    def run(score: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        given = filled(key, number), filled(value, number)
        context = attend(query, *given, score=score, mask=mask, first=first)
        gradients = torch.autograd.grad(context.square().sum(), (query, key, value))
        return [context, *gradients]

    sizes = (queries, keys, keys)
    parts = [torch.randn(*leading, size, 4, requires_grad=True) for size in sizes]
    number = 0.0
    expected = reference(run, made, *parts, terms=keys)
    for number in (1e38, -1e38):
        assert_rounded(run(made, *parts), expected)
        with torch.no_grad():
            keyed = filled(parts[1], number), filled(parts[2], number)
            context = attend(parts[0], *keyed, score=made, mask=mask, first=first)
        assert_rounded([context], type(expected)(expected.exact[:1], expected.allowed[:1]))


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("length", [6, 140])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_in_heads_too(key_heads: int, length: int, watched: bool) -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(16, heads=4, key_heads=key_heads)
    x = torch.randn(2, length, 16)
    padding = masks.padding(torch.tensor([length - 3, length - 5]))
    found = []
    for number in (0.0, 1e37):
        key = filled(x, number).requires_grad_()
        with watch(layer, None if watched else []):
            result = layer(x, key, mask=padding)
        gradients = torch.autograd.grad(result.square().sum(), [key, layer.query_projection.weight])
        found.append([result.detach(), *gradients])
    for one, other in zip(*found, strict=True):
        assert_near(other, one, terms=16 * 2 * length)


def test_square_causal_flag_and_dropout() -> None:
    """The flag's own path: a late key cannot reach earlier queries; nor with dropout."""
    torch.manual_seed(2)
    query, key, value = (torch.randn(1, 2, 150, 8) for _ in range(3))
    expected = F.scaled_dot_product_attention(
        *(p.double() for p in (query, key, value)), is_causal=True
    )
    query.requires_grad_()
    key[..., -1, :], value[..., -1, :] = 1e38, -1e38
    context = attend(query, key, value, mask=masks.causal())
    assert_near(context[..., :-1, :], expected[..., :-1, :], terms=150)
    assert torch.autograd.grad(context[..., :-1, :].sum(), query)[0].isfinite().all()
    allowed = torch.arange(150) < 149
    dropped = attend(query, key, value, mask=allowed, dropout=0.5)
    assert dropped.isfinite().all()
    assert torch.autograd.grad(dropped.sum(), query)[0].isfinite().all()


@pytest.mark.parametrize("kernel", ["tiles", "compiled"])
def test_additive_tiles_and_c(kernel: Literal["tiles", "compiled"]) -> None:
    if kernel == "compiled" and compiled.library() is None:
        pytest.skip("there is no compiler")
    torch.manual_seed(3)
    score = scores.Additive(4, 4, 4)
    for parameter in score.parameters():
        parameter.data.mul_(0.2)
    query, live = torch.randn(2, 20, 4, requires_grad=True), torch.randn(2, 40, 4)
    # The second entry may attend to all: the block has no key that is masked for everybody.
    padding = masks.padding(torch.tensor([40 - DEAD, 40]))
    found = []
    for number in (0.0, 1e38):
        key = torch.stack([filled(live[0], number), live[1]]).requires_grad_()
        with use_kernel(kernel):
            context = attend(query, key, key, score=score, mask=padding)
        gradients = torch.autograd.grad(
            9 * context.square().sum(), [query, key, *score.parameters()]
        )
        found.append([context.detach(), *gradients])
    # A score's gradient is a difference of terms of this size (weights are about 1 / 37).
    by = largest(18 * found[0][0] @ live.mT) / (40 - DEAD)
    by *= max(largest(parameter) for parameter in score.parameters()) ** 2
    for one, other in zip(*found, strict=True):
        assert_near(other, one, terms=40 * 4, size=max(largest(one), by))


@pytest.mark.parametrize("length", [3, 150])
@pytest.mark.parametrize("score", ["scaled dot", "cosine", "additive"])
def test_nan_in_a_mask_is_as_in_pytorch(score: str, length: int) -> None:
    torch.manual_seed(4)
    query = torch.randn(1, 2, length, 4)
    numbers = torch.zeros(length, length)
    numbers[1, 2], numbers[0, 1] = float("nan"), float("-inf")
    wrong = F.scaled_dot_product_attention(query, query, query, attn_mask=numbers).isnan()
    assert wrong.any()
    made = SCORES[score]()
    for given in (query, query.clone().requires_grad_()):
        assert attend(given, given, given, score=made, mask=numbers).isnan().equal(wrong)
    weights = attention_weights(query, query, score=made, mask=numbers)
    assert weights.isnan().any(-1).equal(wrong.any(-1))


@pytest.mark.parametrize(
    "normalize",
    [
        normalizers.Softmax(2.0),
        normalizers.Sparsemax(),
        normalizers.Entmax15(),
        normalizers.Entmax(),
    ],
)
def test_nan_in_a_mask_with_other_normalizers(normalize: normalizers.Normalizer) -> None:
    numbers = torch.zeros(3, 4)
    numbers[1, 2] = float("nan")
    found = attend(
        torch.ones(3, 2), torch.ones(4, 2), torch.ones(4, 2), normalize=normalize, mask=numbers
    )
    assert found.isnan().any(-1).tolist() == [False, True, False]
