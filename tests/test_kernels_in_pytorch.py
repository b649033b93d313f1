"""C kernels in PyTorch: autocast, second derivatives, transforms, fake tensors."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.attention import Attention, attend, normalizers, scores
from heedful.attention.additive import additive_context
from heedful.attention.masks import Causal, Grid, Mask
from heedful.basics.addresses import is_plain, readable
from heedful.kernels import short_attention as short
from heedful.kernels.additive import plain_scores
from heedful.kernels.dropout import dropout

LENGTHS = (3, 16, 70)
"""The formula itself, C for short sequences, tiles of the additive score."""


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(6)


def parts(length: int, width: int = 64, count: int = 3) -> list[Tensor]:
    return [torch.randn(2, 4, length, width, requires_grad=True) for _ in range(count)]


def additive(
    a: Tensor, b: Tensor, value: Tensor, v: Tensor, mask: Mask | None, share: float
) -> Tensor:
    length = a.shape[-2]
    grid = Grid((*a.shape[:-2], length, length), a.device)
    torch.manual_seed(9)
    context = additive_context(a, b, value, v, mask, grid, dropout=share)
    assert context is not None
    return context


@pytest.mark.parametrize("kind", [scores.Additive, scores.Concat])
def test_gradients_inside_autocast_match_float32(kind: Callable[..., scores.Score]) -> None:
    """C must not read half-precision gradients as float32."""
    attention = Attention(kind(64, 64, 64))
    query, key = (one[0] for one in parts(70, count=2))
    expected = torch.autograd.grad(attention(query, key).square().sum(), [query, key])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(attention(query, key).square().sum(), [query, key])
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.05 * other.norm()


@pytest.mark.parametrize("normalize", [None, normalizers.Sparsemax(), normalizers.Entmax(1.3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("length", [3, 16, 70, 200])
def test_results_inside_autocast_have_the_dtype_of_pytorchs_kernel(
    length: int, dtype: torch.dtype, normalize: normalizers.Normalizer | None
) -> None:
    """The dtype must not depend on the length."""
    query, key, value = (one.detach().to(dtype) for one in parts(length))
    kinds: list[scores.Score] = [
        *(scores.Dot(), scores.ScaledDot(), scores.Cosine(), scores.Gaussian()),
        *(scores.General(64, 64), scores.Additive(64, 64, 64), scores.Concat(64, 64, 64)),
    ]
    for score in kinds:
        score = score.to(torch.float64) if dtype == torch.float64 else score
        plain = query.float() if dtype == torch.bfloat16 else query
        expected = attend(plain, key.to(plain), value.to(plain), score=score, normalize=normalize)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = attend(query, key, value, score=score, normalize=normalize)
            assert found.dtype == F.scaled_dot_product_attention(query, key, value).dtype
        assert (found - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("mask", [None, Causal()])
def test_second_derivatives_of_additive_attention(mask: Mask | None, share: float) -> None:
    """Gradients must not be treated as constants."""
    a, b, value = (one.detach().double().requires_grad_() for one in parts(40))
    v = torch.randn(64, dtype=torch.float64, requires_grad=True)
    given = [a, b, value, v]

    def penalty(context: Tensor) -> list[Tensor]:
        by = torch.autograd.grad(context.square().sum(), given, create_graph=True)
        return list(torch.autograd.grad(sum(one.square().sum() for one in by), given))

    found = penalty(additive(*given, mask, share))
    weights = plain_scores(a, b, v)
    if mask is not None:
        weights = weights.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    weights = weights.softmax(-1)
    if share:
        with torch.no_grad():
            torch.manual_seed(9)
            eye = torch.eye(40, dtype=torch.float64).expand(2, 4, 40, 40)
            grid = Grid((2, 4, 40, 40), a.device)
            kept = additive_context(a, b, eye, v, mask, grid, dropout=share)
            assert kept is not None
            keep = torch.where(weights > 0, kept / weights.clamp_min(1e-300), 0)
        weights = weights * keep
    for one, other in zip(found, penalty(weights @ value), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_second_derivatives_of_additive_scores() -> None:
    score = scores.Additive(64, 64, 64).double()
    query, key = (one.detach().double().requires_grad_() for one in parts(40, count=2))

    def second(made: Tensor) -> tuple[Tensor, ...]:
        (by,) = torch.autograd.grad(made.pow(3).sum(), query, create_graph=True)
        return torch.autograd.grad(by.square().sum(), [query, key])

    projected = score.project_query(query), score.project_key(key)
    for one, other in zip(
        second(score(query, key)), second(plain_scores(*projected, score.v)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(short.library() is None, reason="there is no compiler")
def test_short_attention_respects_the_math_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short, "_LEAST", 1)
    query, key, value = parts(16)
    assert short.is_supported(query, key, value, None)
    with sdpa_kernel(SDPBackend.MATH):
        assert not short.is_supported(query, key, value, None)
        context = attend(query, key, value)
        (by,) = torch.autograd.grad(context.square().sum(), query, create_graph=True)
        (second,) = torch.autograd.grad(by.square().sum(), key)
    weights = (query @ key.transpose(-1, -2) / 8).softmax(-1)
    (by,) = torch.autograd.grad((weights @ value).square().sum(), query, create_graph=True)
    (expected,) = torch.autograd.grad(by.square().sum(), key)
    assert (second - expected).norm() < 1e-4 * expected.norm()


SCORES: dict[str, Callable[[], scores.Score | None]] = {
    "dot": lambda: None,
    "additive": lambda: scores.Additive(64, 64, 64),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SCORES)
def test_fake_tensors_are_not_passed_to_c(name: str, length: int) -> None:
    """Fake tensors have no memory."""
    score = SCORES[name]()
    with FakeTensorMode(allow_non_fake_inputs=True):
        query, key, value = parts(length)
        context = attend(query, key, value, score=score)
        context.sum().backward()
    assert context.shape == (2, 4, length, 64)
    assert query.grad is not None


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SCORES)
def test_a_traced_graph_works_for_other_inputs(name: str, length: int) -> None:
    """A result of C must not become a constant of the graph."""
    score = SCORES[name]()
    with torch.no_grad():
        first, others = parts(length), parts(length)
        graph = make_fx(lambda q, k, v: attend(q, k, v, score=score))(*first)
        torch.testing.assert_close(graph(*others), attend(*others, score=score))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SCORES)
def test_transforms_work_for_every_length(name: str, length: int) -> None:
    score = SCORES[name]()
    query, key, value = (one.detach() for one in parts(length))

    def loss(one: Tensor) -> Tensor:
        return attend(one, key, value, score=score).square().sum()

    leaf = query.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(query), expected)
    mapped = torch.func.vmap(lambda q, k, v: attend(q, k, v, score=score))(query, key, value)
    torch.testing.assert_close(mapped, attend(query, key, value, score=score))
    direction = torch.randn_like(query)
    _, along = torch.func.jvp(loss, (query,), (direction,))
    torch.testing.assert_close(along, (expected * direction).sum(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("length", LENGTHS)
def test_negative_views_keep_their_sign(length: int) -> None:
    query, key, value = (one.detach() for one in parts(length))
    for score in (None, scores.Additive(64, 64, 64)):
        found = attend(torch._neg_view(query), key, value, score=score)
        torch.testing.assert_close(found, attend(-query, key, value, score=score))


class Subclass(Tensor):
    """A tensor of somebody's own."""


def test_which_tensors_c_can_read() -> None:
    plain = torch.randn(3)
    assert readable(plain, torch.nn.Parameter(plain), plain[::2], plain.requires_grad_())
    assert not readable(plain.detach().as_subclass(Subclass))
    assert not readable(plain, torch.empty(3, device="meta"))
    assert is_plain(torch.empty(3, device="meta"))
    assert not is_plain(torch._neg_view(plain))
    assert not is_plain(torch.randn(3, dtype=torch.complex64).conj())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(plain.detach(), torch.ones(3))
        assert not is_plain(dual)
        assert is_plain(plain)
    with FakeTensorMode():
        assert not readable(plain)
    assert readable(plain)


def test_dropout_under_a_fake_mode() -> None:
    with FakeTensorMode():
        hidden = torch.randn(70, 16, requires_grad=True)
        assert dropout(hidden, 0.1).shape == hidden.shape
