"""Cosine, Gaussian, exponential and location scores: against PyTorch's own and plain formulas."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import attend, attention_weights, masks, scores
from heedful.attention.normalizers import PlainSum
from heedful.kernels import distances

D, POSITIONS = 3, 6
SCORES: dict[str, Callable[[], scores.Score]] = {
    "cosine": lambda: scores.Cosine(2.5),
    "learned cosine": lambda: scores.Cosine(2.5, learned=True),
    "gaussian": lambda: scores.Gaussian(0.7),
    "exp dot": scores.ExpDot,
    "location": lambda: scores.Location(D, POSITIONS),
}
every_score = pytest.mark.parametrize("kind", SCORES)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def same(ours: Tensor, theirs: Tensor, *leaves: Tensor, tolerance: float = 1e-12) -> None:
    """Equal outputs, and equal gradients of a random weighting of them."""
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    probe = torch.randn_like(ours)
    got = torch.autograd.grad(ours, leaves, probe)
    expected = torch.autograd.grad(theirs, leaves, probe)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=10 * tolerance, atol=10 * tolerance)


@every_score
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    torch.manual_seed(0)
    score = SCORES[kind]().double()
    names = [name for name, _ in score.named_parameters()]
    parts = [part.detach().requires_grad_() for part in score.parameters()]

    def attended(query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> Tensor:
        parameters = dict(zip(names, given, strict=True))
        made = torch.func.functional_call(score, parameters, (query, key))
        return torch.softmax(made, -1) @ value + 0 * key.sum()

    assert torch.autograd.gradcheck(attended, [normal(2, 3, D), normal(4, D), normal(4, 2), *parts])


@every_score
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_masked_keys_have_no_influence_and_masked_rows_are_zero(
    kind: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    score = SCORES[kind]().to(dtype)
    query, key, value = (normal(2, length, D, dtype=dtype) for length in (3, 4, 4))
    allowed = torch.tensor([[True, False, True, False], [False] * 4, [True] * 3 + [False]])
    context = attend(query, key, value, score=score, mask=allowed)
    assert not context[:, 1].any()
    context.sum().backward()
    leaves = [query, key, value, *score.parameters()]
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)
    assert not query.grad[:, 1].any()
    changed = key.detach().clone()
    changed[:, 3] = 7.0
    assert torch.equal(attend(query, changed, value, score=score, mask=allowed), context)


@every_score
def test_compiles_whole_with_lengths_that_change(kind: str) -> None:
    torch.manual_seed(2)
    torch._dynamo.reset()
    score = SCORES[kind]()

    def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(score(query, key), -1) @ value

    # The backward pass of the Gaussian is an operator of its own: traced too.
    backend = "aot_eager" if kind == "gaussian" else "eager"
    compiled = torch.compile(attended, fullgraph=True, dynamic=True, backend=backend)
    for queries, keys in ((3, 4), (5, 6), (2, 3)):
        query, key, value = (normal(2, n, D, dtype=torch.float32) for n in (queries, keys, keys))
        ours, plain = compiled(query, key, value), attended(query, key, value)
        same(ours, plain, query, value, tolerance=1e-5)


@every_score
def test_half_precision_is_near_double(kind: str) -> None:
    torch.manual_seed(3)
    score = SCORES[kind]()
    query, key, value = (normal(20, D, dtype=torch.bfloat16) for _ in range(3))
    if kind == "location":
        key, value = key[:POSITIONS], value[:POSITIONS]
    exact = attend(query.double(), key.double(), value.double(), score=score.double())
    for dtype in (torch.bfloat16, torch.float16):
        rounded = [part.to(dtype) for part in (query, key, value)]
        made = attend(*rounded, score=score.to(dtype))
        assert made.dtype == dtype
        bound = 0.1 if dtype == torch.bfloat16 else 0.02
        assert (made.double() - exact).abs().max() < bound


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([*SCORES][:-1]))
def test_scores_follow_the_keys_order(seed: int, kind: str) -> None:
    torch.manual_seed(seed)
    score = SCORES[kind]().double()
    query, key = normal(2, 3, D), normal(2, 5, D)
    order = torch.randperm(5)
    torch.testing.assert_close(score(query, key[:, order]), score(query, key)[..., order])


# Cosine


def test_cosine_is_torchs() -> None:
    torch.manual_seed(4)
    query, key = normal(2, 1, 3, D), normal(4, 5, D)
    theirs = F.cosine_similarity(query.unsqueeze(-2), key.unsqueeze(-3), dim=-1, eps=0.0)
    same(scores.Cosine(2.5)(query, key), 2.5 * theirs, query, key)


def test_a_learned_sharpening_starts_where_it_is_told_and_learns() -> None:
    torch.manual_seed(5)
    query, key = normal(3, D), normal(4, D)
    score = scores.Cosine(3.0, learned=True).double()
    assert math.isclose(score.sharpening.item(), 3.0, rel_tol=1e-6)
    made = score(query, key)
    made.sum().backward()
    # d(β cos)/d(log β) = β cos
    torch.testing.assert_close(score.log_sharpening.grad, made.sum().detach())
    assert not list(scores.Cosine(3.0).parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_zero_vectors_have_cosine_zero_and_no_gradient(dtype: torch.dtype) -> None:
    query = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    key = torch.tensor([[0.0, 0.0], [-0.0, 0.0], [1.0, 0.0]], dtype=dtype, requires_grad=True)
    made = scores.Cosine()(query, key)
    torch.testing.assert_close(
        made.float(), torch.tensor([[0, 0, 0], [0, 0, 0.6]]), atol=3e-3, rtol=0
    )
    context = attend(query, key, torch.ones_like(key), score=scores.Cosine(50.0))
    assert context.isfinite().all()
    (made.sum() + context.sum()).backward()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()
    assert not key.grad[:2].any()
    assert not query.grad[0].any()


@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e-20, 1.0, 1e20, 3e38])
def test_cosine_does_not_depend_on_the_vectors_size(size: float) -> None:
    torch.manual_seed(6)
    query, key = torch.randn(3, D), torch.randn(4, D).clamp(-1, 1)
    sized = (key * size).requires_grad_()
    made = scores.Cosine()(query, sized)
    expected = 0 * made if size < 1e-38 else scores.Cosine()(query, key)
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(made.sum(), sized)
    assert gradient.isfinite().all()


def test_cosine_by_the_fused_path_is_the_plain_one() -> None:
    torch.manual_seed(7)
    query, key, value = normal(2, 3, D), normal(2, 4, D), normal(2, 4, 2)
    score, mask = scores.Cosine(4.0), masks.padding(torch.tensor([4, 2]))
    plain = attention_weights(query, key, score=score, mask=mask) @ value
    same(attend(query, key, value, score=score, mask=mask), plain, query, key, value)


# Gaussian


def test_gaussian_is_the_distance_in_numbers() -> None:
    torch.manual_seed(8)
    query, key = normal(2, 1, 3, D), normal(4, 5, D)
    far = (query.unsqueeze(-2) - key.unsqueeze(-3)).pow(2).sum(-1)
    same(scores.Gaussian(0.7)(query, key), -far / (2 * 0.7**2), query, key)
    theirs = -torch.cdist(query, key).square() / (2 * 0.7**2)
    same(scores.Gaussian(0.7)(query, key), theirs, query, key, tolerance=1e-10)


def test_gaussian_attention_is_kernel_regression() -> None:
    """The formula of Nadaraya and Watson, a query at a time, in NumPy."""
    rng = np.random.default_rng(0)
    places, seen, asked = rng.uniform(0, 5, 40), rng.normal(size=40), np.linspace(0, 5, 9)
    expected = []
    for place in asked:
        near = np.exp(-((place - places) ** 2) / (2 * 0.4**2))
        expected.append((near * seen).sum() / near.sum())
    query, key, value = (torch.from_numpy(part)[:, None] for part in (asked, places, seen))
    context = attend(query, key, value, score=scores.Gaussian(0.4))
    np.testing.assert_allclose(context[:, 0].numpy(), expected, rtol=1e-10)


def test_where_points_coincide_the_gradient_is_zero() -> None:
    query = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    key = torch.tensor([[1.0, 2.0]], requires_grad=True)
    made = scores.Gaussian()(query, key)
    assert made[0, 0] == 0
    made.sum().backward()
    torch.testing.assert_close(query.grad, torch.tensor([[0.0, 0.0], [-2.0, -3.0]]))
    torch.testing.assert_close(key.grad, torch.tensor([[2.0, 3.0]]))


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    torch.manual_seed(9)
    offset, key = 4096.0, torch.randn(40, 8).mul(64).round().div(64)
    query = key[torch.randperm(40)] + 1 / 64
    near, moved = query.clone().requires_grad_(), (query + offset).requires_grad_()
    score = scores.Gaussian(0.1)
    same_scores = score(near, key), score(moved, key + offset)
    assert torch.equal(*same_scores)
    gradients = [
        torch.autograd.grad(made.exp().sum(), at)[0]
        for made, at in zip(same_scores, (near, moved), strict=True)
    ]
    assert torch.equal(*gradients)


def test_the_backward_pass_in_blocks_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(10)
    query, key = normal(2, 7, D), normal(2, 5, D)
    probe = torch.randn(2, 7, 5, dtype=torch.float64)
    whole = torch.autograd.grad(scores.Gaussian()(query, key), (query, key), probe)
    for block in (1, 2 * 2 * 5 * D, 3 * 2 * 5 * D):
        monkeypatch.setattr(distances, "_BLOCK", block)
        parts = torch.autograd.grad(scores.Gaussian()(query, key), (query, key), probe)
        for one, other in zip(parts, whole, strict=True):
            torch.testing.assert_close(one, other)


def test_gaussian_of_nothing() -> None:
    query, key = normal(0, D), normal(4, D)
    made = scores.Gaussian()(query, key)
    assert made.shape == (0, 4)
    made.sum().backward()
    assert not key.grad.any()
    none = scores.Gaussian()(key, query)
    none.sum().backward()
    assert none.shape == (4, 0)
    assert not key.grad.any()


# Exponential


def test_exponential_with_plain_sum_is_softmax_of_the_dot_product() -> None:
    torch.manual_seed(11)
    query, key, value = normal(2, 3, D), normal(2, 4, D), normal(2, 4, 2)
    allowed = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    for mask in (None, allowed):
        ours = attend(query, key, value, score=scores.ExpDot(), normalize=PlainSum(), mask=mask)
        theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        same(ours, theirs, query, key, value)


# Location


def test_location_reads_the_first_rows_of_a_linear_layer() -> None:
    torch.manual_seed(12)
    score = scores.Location(D, POSITIONS).double()
    query, value = normal(2, 3, D), normal(2, 4, 2)
    layer = torch.nn.Linear(D, POSITIONS, bias=False).double()
    layer.weight = score.weight
    theirs = torch.softmax(layer(query)[..., :4], -1) @ value
    ours = attend(query, torch.randn(2, 4, 9).double(), value, score=score)
    same(ours, theirs, query, value, score.weight)


def test_location_scores_have_the_keys_leading_dimensions() -> None:
    score = scores.Location(D, POSITIONS)
    assert score(torch.zeros(3, D), torch.zeros(2, 4, 1)).shape == (2, 3, 4)
    mask = masks.padding(torch.tensor([1, 4]))
    context = attend(torch.zeros(3, D), torch.zeros(2, 4, 1), torch.eye(4), score=score, mask=mask)
    torch.testing.assert_close(context[0, 0], torch.tensor([1.0, 0, 0, 0]))
    torch.testing.assert_close(context[1, 0], torch.full((4,), 0.25))


# Wrong input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: scores.Cosine(0.0), "sharpening"),
        (lambda: scores.Cosine(math.nan), "sharpening"),
        (lambda: scores.Gaussian(-1.0), "width"),
        (lambda: scores.Gaussian(math.inf), "width"),
        (lambda: scores.Location(0, 4), "query_dim"),
        (lambda: scores.Location(4, 0), "positions"),
        (lambda: scores.Location(3, 4)(torch.zeros(2, 3), torch.zeros(5, 3)), "positions=4"),
        (lambda: scores.Location(3, 4)(torch.zeros(2, 2), torch.zeros(4, 3)), "query has shape"),
        (lambda: scores.Cosine()(torch.zeros(2, 2), torch.zeros(4, 3)), "last dimension"),
        (lambda: scores.Gaussian()(torch.zeros(2, 2), torch.zeros(4, 3)), "last dimension"),
        (lambda: scores.ExpDot()(torch.zeros(2, 2), torch.zeros(4, 3)), "last dimension"),
    ],
)
def test_wrong_input_is_told(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
