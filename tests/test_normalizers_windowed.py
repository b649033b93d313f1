"""Windows around the median of the last weights, against loops over section 2.3 of the paper."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from heedful.attention import RecurrentAttention, masks, normalizers, scores, watch
from heedful.attention.normalizers import Windowed, build_normalizer
from heedful.attention.normalizers.windowed import median_key, windowed

B, T, K, D = 3, 6, 12, 4


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(8)


def median(weights: Sequence[float]) -> int:
    """The first key at which the cumulated weights reach half of their sum."""
    so_far, total = 0.0, sum(weights)
    for key, weight in enumerate(weights):
        so_far += weight
        if so_far >= total / 2:
            return key
    raise AssertionError("the last key reaches the sum")


def step(e: Tensor, place: int, window: int, allowed: Sequence[bool]) -> Tensor:
    """The softmax of one row over the allowed keys of its window."""
    inside = [k for k in range(len(e)) if abs(k - place) <= window and allowed[k]]
    total = sum(e[k].exp() for k in inside)
    return torch.stack([e[k].exp() / total if k in inside else e[k] * 0 for k in range(len(e))])


def loop(e: Tensor, window: int | None, allowed: Tensor) -> Tensor:
    """Weights ``[T, K]`` of scores ``[T, K]``, step by step; without a window, a softmax."""
    place, rows = 0, []
    for row, keys in zip(e, allowed.tolist(), strict=True):
        rows.append(step(row, place, len(row) if window is None else window, keys))
        last = rows[-1].tolist()
        place = median(last) if any(last) else place
    return torch.stack(rows)


def steps(normalize: Windowed, e: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Weights ``[B, T, K]`` of scores ``[B, T, K]`` by the module."""
    state, rows = normalize.start(e[:, 0]), []
    for i in range(e.shape[1]):
        mask = None if allowed is None else allowed[:, i : i + 1]
        rows.append(normalize.weigh(e[:, i : i + 1], mask, state))
        state = normalize.advance(rows[-1].squeeze(-2), state)
    return torch.cat(rows, -2)


def drifting() -> Tensor:
    """Scores ``[B, T, K]`` whose best keys move on, so that windows do."""
    keys, times = torch.arange(K), torch.arange(T).unsqueeze(-1)
    near = -0.4 * (keys - 2.0 * times).square()
    return (near + torch.randn(B, T, K, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [0, 1, 3, 100])
def test_windows_are_the_papers(window: int, masked: bool) -> None:
    e, allowed = drifting(), torch.ones(B, T, K, dtype=torch.bool)
    if masked:
        allowed = torch.rand(B, T, K) > 0.3
        allowed[0, 2] = False
    found = steps(Windowed(window, in_training=True), e, allowed if masked else None)
    expected = torch.stack([loop(e[b], window, allowed[b]) for b in range(B)])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    direction = torch.randn(B, T, K, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, e, direction), torch.autograd.grad(expected, e, direction)
    )
    if window == 3 and not masked:
        places = median_key(found.detach())
        assert places[:, -1].min() > 6, "the windows should have moved"
        assert not torch.equal(found, steps(Windowed(100, in_training=True), e))


def test_the_median_is_that_of_a_loop() -> None:
    rows = torch.rand(200, 9, dtype=torch.float64).pow(3) * 7  # Any sum, not 1 alone.
    rows[::3, ::2] = 0.0
    assert median_key(rows).flatten().tolist() == [median(row) for row in rows.tolist()]
    halves = torch.tensor([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        assert median_key(halves.to(dtype)).flatten().tolist() == [0, 1, 3, 0]
    # In half precision, sums of many small weights would stop growing.
    many = torch.full((1, 4000), 2**-12, dtype=torch.bfloat16)
    assert median_key(many).item() == 1999


def test_gradients_are_those_of_finite_differences() -> None:
    before = torch.rand(B, K, dtype=torch.float64)
    allowed = torch.rand(B, 1, K) > 0.3
    allowed[1] = False
    e = torch.randn(B, 1, K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: windowed(e, before, 2, allowed), e)
    windowed(e, before.requires_grad_(), 2)[..., 0].sum().backward()
    assert e.grad is not None
    assert before.grad is None
    weights = e.softmax(-1).squeeze(-2)
    assert not Windowed(2).advance(weights, Windowed(2).start(weights))[0].requires_grad


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_a_window_without_a_key_is_zero_and_gets_no_gradient(dtype: torch.dtype) -> None:
    """The next step has the same window again."""
    e = torch.randn(1, 3, 8).to(dtype).requires_grad_()
    allowed = torch.ones(1, 3, 8, dtype=torch.bool)
    allowed[0, 1, 2:7] = False  # All keys around the median of the first step, key 4.
    normalize = Windowed(2, in_training=True)
    peak = torch.tensor([0.0, 0, 0, 0, 1, 0, 0, 0], dtype=dtype)
    state: tuple[Tensor, ...] = (peak.unsqueeze(0),)
    rows = []
    for i in (1, 2):
        rows.append(normalize.weigh(e[:, i : i + 1], allowed[:, i : i + 1], state))
        state = normalize.advance(rows[-1].squeeze(-2), state)
    first, second = rows
    assert first.dtype == dtype
    assert first.eq(0).all()
    assert second[0, 0].nonzero().flatten().tolist() == [2, 3, 4, 5, 6]
    (first.sum() + second.square().sum()).backward()
    assert e.grad is not None
    assert e.grad.isfinite().all()
    assert e.grad[0, 1].eq(0).all()


@pytest.mark.parametrize("found_there", [-7.5, 1e300, float("nan"), float("inf")])
def test_keys_outside_have_exactly_no_influence(found_there: float) -> None:
    before = torch.rand(B, K, dtype=torch.float64)
    allowed = torch.rand(B, 1, K) > 0.3
    e = torch.randn(B, 1, K, dtype=torch.float64)
    inside = ((torch.arange(K) - median_key(before)).abs() <= 2).unsqueeze(1) & allowed
    changed = e.masked_fill(~inside, found_there).requires_grad_()
    found = windowed(changed, before, 2, allowed)
    assert found.equal(windowed(e, before, 2, allowed))
    found.square().sum().backward()
    assert changed.grad is not None
    assert changed.grad.masked_select(~inside).eq(0).all()
    assert changed.grad.isfinite().all()


def test_large_scores_do_not_overflow() -> None:
    e = torch.tensor([[[1e30, -1e30, 1e30, 5.0]]]).requires_grad_()
    weights = windowed(e, torch.tensor([[0.0, 1.0, 0.0, 0.0]]), 1)
    assert weights.tolist() == [[[0.5, 0.0, 0.5, 0.0]]]
    weights.square().sum().backward()
    assert e.grad is not None
    assert e.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_the_float64_result_rounded(dtype: torch.dtype) -> None:
    e, before = torch.randn(B, 1, K).mul(2).to(dtype), torch.rand(B, K).to(dtype)
    found, expected = windowed(e, before, 3), windowed(e.double(), before.double(), 3)
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=2e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("in_training", [False, True])
def test_the_window_is_of_evaluation_unless_set(training: bool, in_training: bool) -> None:
    """In an attention, with padding."""
    attention = RecurrentAttention(scores.Dot(), Windowed(1, in_training=in_training)).double()
    attention.train(training)
    q, h = (torch.randn(B, size, D, dtype=torch.float64) for size in (T, K))
    lengths = torch.tensor([12, 7, 0])
    with watch(attention) as seen:
        attention(q, h, mask=masks.padding(lengths))
    allowed = (torch.arange(K) < lengths.view(B, 1, 1)).expand(B, T, K)
    window = None if training and not in_training else 1
    e = q @ h.mT
    expected = torch.stack([loop(e[b], window, allowed[b]) for b in range(B)])
    torch.testing.assert_close(seen[""][0][:, 0], expected, rtol=1e-9, atol=1e-11)


def test_no_keys() -> None:
    for training in (False, True):
        normalize = Windowed().train(training)
        e = torch.zeros(2, 1, 0)
        assert normalize(e).shape == e.shape
        state = normalize.advance(e.squeeze(-2), normalize.start(e.squeeze(-2)))
        assert state[0].shape == (2, 0)


def test_a_recipe_names_it() -> None:
    made = build_normalizer({"name": "windowed", "window": 5, "in_training": True})
    assert isinstance(made, normalizers.Windowed)
    assert (made.window, made.in_training) == (5, True)
    default = build_normalizer("windowed")
    assert isinstance(default, normalizers.Windowed)
    assert (default.window, default.in_training) == (75, False)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        build_normalizer({"name": "windowed", "window": -1})
