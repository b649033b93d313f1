"""Forward-mode gradients and ``torch.func`` of attention: every score with every normalizer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from heedful.attention import attend, normalizers, scores, use_kernel
from heedful.kernels.additive import additive_scores
from heedful.kernels.cross_entropy import cross_entropy, plain_cross_entropy
from heedful.kernels.dropout import dropout
from tolerance import assert_near, largest

WIDTH, UNITS = 8, 16
SCORES: dict[str, Callable[[], scores.Score]] = {
    "additive": lambda: scores.Additive(WIDTH, WIDTH, UNITS),
    "concat": lambda: scores.Concat(WIDTH, WIDTH, UNITS),
    "cosine": scores.Cosine,
    "dot": scores.Dot,
    "exp dot": scores.ExpDot,
    "gaussian": scores.Gaussian,
    "general": lambda: scores.General(WIDTH, WIDTH),
    "trilinear": lambda: scores.Trilinear(WIDTH),
    "location": lambda: scores.Location(WIDTH, 200),
    "scaled dot": scores.ScaledDot,
    "soft-capped": lambda: scores.SoftCapped(cap=3.0),
}
NORMALIZERS: dict[str, Callable[[], normalizers.Normalizer]] = {
    "entmax": lambda: normalizers.Entmax(1.3),
    "entmax learned": lambda: normalizers.Entmax(1.7, learned=True),
    "entmax 1.5": normalizers.Entmax15,
    "gumbel": normalizers.GumbelStraightThrough,
    "hard": normalizers.Hard,
    "local-m": lambda: normalizers.LocalMonotonic(2),
    "local-p": lambda: normalizers.LocalPredictive(WIDTH, 4, 2),
    "plain sum": normalizers.PlainSum,
    "sink": normalizers.SinkSoftmax,
    "smoothed": normalizers.Smoothed,
    "softmax": normalizers.Softmax,
    "softmax off by one": normalizers.SoftmaxOffByOne,
    "sparsemax": normalizers.Sparsemax,
    "temperature": lambda: normalizers.Softmax(2.0),
}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention(score: str, normalizer: str, mask: Tensor | None = None) -> Attention:
    one, other = SCORES[score]().double(), NORMALIZERS[normalizer]().double()

    def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(query, key, value, score=one, normalize=other, mask=mask)

    return call


def randoms(length: int, batch: int = 2) -> list[Tensor]:
    return [torch.randn(batch, length, WIDTH, dtype=torch.float64) for _ in range(3)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize("length", [3, 10, 200])
@pytest.mark.parametrize("score", SCORES)
def test_forward_mode_matches_reverse_mode(score: str, length: int) -> None:
    """Includes the Gaussian score, whose operator has no forward mode."""
    for normalizer in NORMALIZERS if length < 200 else ("entmax", "softmax", "sparsemax"):
        call, given, directions = attention(score, normalizer), randoms(length), randoms(length)
        leaves = [part.clone().requires_grad_() for part in given]
        context = call(*leaves)
        weights = torch.randn_like(context)
        by = torch.autograd.grad(context, leaves, weights, materialize_grads=True)
        pairs = list(zip(by, directions, strict=True))
        expected = sum((one * other).sum() for one, other in pairs)
        size = sum(float((one * other).abs().sum()) for one, other in pairs)
        _, along = jvp(call, tuple(given), tuple(directions))
        with forward_ad.dual_level():
            duals = map(forward_ad.make_dual, given, directions)
            dual = forward_ad.unpack_dual(call(*duals)).tangent
        for tangent in (along, dual):
            found = (weights * tangent).sum()
            dtype = torch.float32 if "learned" in normalizer else torch.float64
            # Scores and their exponentials, sums over keys, and those over queries and values.
            terms = 16 * WIDTH * length
            assert_near(found, torch.as_tensor(expected), terms=terms, dtype=dtype, size=size)


@pytest.mark.parametrize("length", [3, 10, 70])
def test_a_tangent_of_the_vector_only(length: int) -> None:
    """The tangent of v must not be lost for long sequences."""
    query, key = (torch.randn(2, length, 64, dtype=torch.float64) for _ in range(2))
    v, direction = torch.randn(2, 64, dtype=torch.float64)
    _, along = jvp(lambda v: additive_scores(query, key, v), (v,), (direction,))
    assert_near(along, additive_scores(query, key, direction), terms=64, dtype=torch.float64)


@pytest.mark.parametrize("length", [3, 10])
@pytest.mark.parametrize("score", ["additive", "gaussian", "scaled dot"])
def test_jacobians_agree_in_both_modes_with_a_mask(score: str, length: int) -> None:
    mask = torch.rand(length, length) < 0.7
    mask[1] = False
    for normalizer in ("entmax", "softmax", "sparsemax"):
        call, (query, key, value) = attention(score, normalizer, mask), randoms(length, 1)
        by_query = jacrev(call)(query, key, value)
        forwards, size = jacfwd(call)(query, key, value), max(1.0, largest(by_query))
        terms = 16 * WIDTH * length
        assert_near(forwards, by_query, terms=terms, dtype=torch.float64, size=size)

        def loss(query: Tensor, key: Tensor, value: Tensor, call: Attention = call) -> Tensor:
            return call(query, key, value).square().sum()

        leaf = query.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf, key, value), leaf)
        each = vmap(grad(loss), (0, None, None))(query[None].expand(2, -1, -1, -1), key, value)
        for one in each:
            assert_near(one, expected, terms=terms, dtype=torch.float64)


def test_entmax_in_every_mode() -> None:
    """Entmax's autograd function needs a forward mode."""
    z = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([[1.2], [1.5], [2.5]], dtype=torch.float64, requires_grad=True)
    given = (z, alpha)
    assert torch.autograd.gradcheck(
        normalizers.entmax_bisect, given, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(normalizers.entmax_bisect, given)


@pytest.mark.parametrize("leading", [(), (2,)])
def test_squared_distances_in_every_mode(leading: tuple[int, ...]) -> None:
    score = scores.Gaussian(0.7)
    query = torch.randn(*leading, 3, 4, dtype=torch.float64, requires_grad=True)
    key = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(score, (query, key), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(score, (query, key))
    queries, keys = torch.randn(6, *query.shape).double(), torch.randn(6, 5, 4).double()
    mapped = vmap(score, (0, None))(queries, key), vmap(score, (None, 0))(query, keys)
    for index in range(6):
        torch.testing.assert_close(mapped[0][index], score(queries[index], key))
        torch.testing.assert_close(mapped[1][index], score(query, keys[index]))


def test_a_selected_kernel_raises_in_forward_mode() -> None:
    query, key, value = (torch.randn(2, 70, WIDTH) for _ in range(3))
    score = scores.Additive(WIDTH, WIDTH, UNITS)
    for normalizer in (normalizers.Softmax(), normalizers.Sparsemax()):

        def call(query: Tensor, normalizer: normalizers.Normalizer = normalizer) -> Tensor:
            return attend(query, key, value, score=score, normalize=normalizer)

        with use_kernel("tiles"), pytest.raises(NotImplementedError, match="forward-mode"):
            jvp(call, (query,), (query,))


def test_loss_and_dropout_in_forward_mode() -> None:
    states, table = torch.randn(6, 4), torch.randn(11, 4)
    labels, directions = torch.randint(11, (6,)), (torch.randn(6, 4), torch.randn(11, 4))
    found, expected = (
        jvp(lambda s, t, loss=loss: loss(s, t, labels, 0.1)[0], (states, table), directions)[1]
        for loss in (cross_entropy, plain_cross_entropy)
    )
    torch.testing.assert_close(found, expected)

    def dropped(hidden: Tensor) -> Tensor:
        torch.manual_seed(3)
        return dropout(hidden, 0.3)

    _, along = jvp(dropped, (states,), (directions[0],))
    torch.testing.assert_close(along, dropped(directions[0]))
