"""Positions within multi-head attention: caches, watching, masked rows, grouped keys, types."""

import pytest
import torch
from torch import Tensor

from heedful.attention import Attention, Memory, MultiHeadAttention, attend, masks, watch
from heedful.attention.normalizers import Normalizer, Softmax, Sparsemax
from heedful.attention.positions import ALiBi, RelativePositions, Rotary, Shaw, T5Buckets
from heedful.attention.scores import Additive, General, ScaledDot, Score

B, H, L, D, WIDTH = 2, 4, 7, 6, 24
EXACT = {"rtol": 1e-11, "atol": 1e-12}


def positions() -> list[RelativePositions]:
    torch.manual_seed(1)
    parts = [
        Shaw(D, clip=2),
        Shaw(D, clip=3, values=False),
        T5Buckets(H, 8, 6),
        ALiBi(H),
        Rotary(4),
    ]
    for part in parts:
        for parameter in part.parameters():
            torch.nn.init.normal_(parameter)
    return parts


PARTS = pytest.mark.parametrize("part", positions(), ids=lambda part: type(part).__name__)


def heads(
    part: RelativePositions, *, key_heads: int = H, score: Score | None = None
) -> MultiHeadAttention:
    torch.manual_seed(2)
    made = MultiHeadAttention(WIDTH, H, key_heads=key_heads, score=score, positions=part)
    return made.double()


def states(length: int = L) -> Tensor:
    return torch.randn(B, length, WIDTH, dtype=torch.float64, requires_grad=True)


def results(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The output and the gradients, by numbers that differ from place to place."""
    loss = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return [output, *torch.autograd.grad((output * loss).sum(), inputs)]


@PARTS
@pytest.mark.parametrize("key_heads", [H, 2, 1])
@pytest.mark.parametrize(
    "score", [ScaledDot(), General(D, D), Additive(D, D, D)], ids=lambda score: type(score).__name__
)
def test_watching_changes_nothing(part: RelativePositions, key_heads: int, score: Score) -> None:
    attention, x = heads(part, key_heads=key_heads, score=score), states()
    inputs = [x, *attention.parameters()]
    expected = results(attention(x, x, mask=masks.causal()), inputs)
    with watch(attention, keep_gradients=True) as seen:
        found = results(attention(x, x, mask=masks.causal()), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **EXACT)
    (weights,) = next(iter(seen.values()))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L).double())


@PARTS
@pytest.mark.parametrize("key_heads", [H, 2])
def test_a_cache_gives_what_the_whole_gives(part: RelativePositions, key_heads: int) -> None:
    attention, x = heads(part, key_heads=key_heads), states()
    whole = attention(x, x, mask=masks.causal())
    memory = None
    for first, last in ((0, 3), (3, 4), (4, L)):
        more = attention.remember(x[:, first:last], first=first)
        if memory is not None:
            more = Memory(*(torch.cat(pair, -2) for pair in zip(memory, more, strict=True)))
        memory = more
        found = attention.read(x[:, first:last], memory, masks.causal())
        torch.testing.assert_close(found, whole[:, first:last], **EXACT)


@PARTS
@pytest.mark.parametrize("normalize", [Softmax(), Sparsemax()], ids=lambda n: type(n).__name__)
def test_a_row_that_may_attend_to_nothing_is_zero(
    part: RelativePositions, normalize: Normalizer
) -> None:
    shape = (B, H, L, D)
    query, key, value = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    allowed = torch.rand(L, L) > 0.5
    allowed[3] = False
    part = part.double()
    context = attend(query, key, value, mask=allowed, normalize=normalize, positions=part)
    assert (context[..., 3, :] == 0).all()
    inputs = [query, key, value, *part.parameters()]
    row = context[..., 3, :].sum()
    for grad in torch.autograd.grad(row, inputs, allow_unused=True, retain_graph=True):
        assert grad is None or (grad == 0).all()
    for grad in torch.autograd.grad(context.square().sum(), inputs, allow_unused=True):
        assert grad is None or grad.isfinite().all()


@PARTS
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_types(part: RelativePositions, kind: torch.dtype) -> None:
    attention, x = heads(part), states()
    expected = attention(x, x, mask=masks.causal())
    tolerance = 16 * torch.finfo(kind).eps
    found = attention.to(kind)(x.to(kind), x.to(kind), mask=masks.causal())
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    if kind == torch.bfloat16:
        attention.float()
        with torch.autocast("cpu", dtype=kind):
            found = attention(x.float(), x.float(), mask=masks.causal())
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_one_head_without_a_dimension_for_it() -> None:
    x = states()
    for part in (Shaw(WIDTH, clip=2), T5Buckets(1), ALiBi(1), Rotary(WIDTH)):
        attention = Attention(positions=part).double()
        assert attention(x, x).shape == x.shape
        assert attention(x[0], x[0]).shape == x[0].shape
