"""All parts combine: any score, normalizer, positions, mask and type; watched or not; compiled."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    MultiHeadAttention,
    attend,
    masks,
    normalizers,
    positions,
    scores,
    watch,
)

SCORES = {
    "dot": scores.Dot,
    "scaled dot": scores.ScaledDot,
    "general": lambda: scores.General(8, 8),
    "additive": lambda: scores.Additive(8, 8, 8),
    "additive, summed": lambda: scores.Additive(8, 8, 8, vector=False),
    "concat": lambda: scores.Concat(8, 8, 8),
    "cosine": lambda: scores.Cosine(5.0),
    "gaussian": scores.Gaussian,
    "exp dot": scores.ExpDot,
    "location": lambda: scores.Location(8, 12),
    "soft-capped": lambda: scores.SoftCapped(cap=3.0),
    "additive, capped": lambda: scores.SoftCapped(scores.Additive(8, 8, 8), 2.0),
}
NORMALIZERS = {
    "softmax": normalizers.Softmax,
    "warm softmax": lambda: normalizers.Softmax(3.0),
    "plain sum": normalizers.PlainSum,
    "sparsemax": normalizers.Sparsemax,
    "entmax 1.5": normalizers.Entmax15,
    "entmax": lambda: normalizers.Entmax(1.3, learned=True),
    "hard": normalizers.Hard,
    "sampled": normalizers.SampledHard,
    "gumbel": normalizers.GumbelStraightThrough,
    "local-m": lambda: normalizers.LocalMonotonic(3),
    "local-p": lambda: normalizers.LocalPredictive(8, 5, 4),
    "off by one": normalizers.SoftmaxOffByOne,
    "sink": normalizers.SinkSoftmax,
}
POSITIONS = {
    "none": lambda: None,
    "shaw": lambda: positions.Shaw(8, 2, values=False),
    "shaw, values": lambda: positions.Shaw(8, 2),
    "rotary": lambda: positions.Rotary(8),
    "grid": lambda: positions.GridRotary(8, (3, 3)),
}


def build(score: str, normalize: str, place: str = "none") -> Attention:
    torch.manual_seed(0)
    return Attention(SCORES[score](), NORMALIZERS[normalize](), positions=POSITIONS[place]())


@pytest.mark.parametrize("score", SCORES)
def test_masked_rows_are_zero_and_nothing_is_ever_nan(score: str) -> None:
    """Every normalizer, type, mode and way of computing."""
    torch.manual_seed(1)
    allowed = torch.ones(2, 5, 7, dtype=torch.bool)
    allowed[0, 2] = False
    allowed[1, :, 4:] = False
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    for normalize, dtype, training in itertools.product(NORMALIZERS, dtypes, (True, False)):
        attention = build(score, normalize).to(dtype).train(training)
        query = torch.randn(2, 5, 8).to(dtype).requires_grad_()
        key = torch.randn(2, 7, 8).to(dtype).requires_grad_()
        value = torch.randn(2, 7, 8).to(dtype).requires_grad_()
        for watched in (False, True):
            with watch(attention, None if watched else []) as seen:
                context = attention(query, key, value, mask=allowed)
            case = f"{score}, {normalize}, {dtype}, watched={watched}"
            assert context.dtype == dtype, case
            assert context[0, 2].eq(0).all(), case
            assert context.isfinite().all(), case
            if watched:
                weights = seen[""][0]
                assert weights[0, 0, 2].eq(0).all(), case
                assert weights[1, 0, :, 4:].eq(0).all(), case
            if not context.requires_grad:
                continue
            grads = torch.autograd.grad(context.sum(), [query, key, value], allow_unused=True)
            for grad in grads:
                assert grad is None or grad.isfinite().all(), case
            if grads[0] is not None:
                assert grads[0][0, 2].eq(0).all(), case
            assert grads[2] is not None, case
            assert grads[2][1, 4:].eq(0).all(), case


@pytest.mark.parametrize("place", POSITIONS)
@pytest.mark.parametrize("score", SCORES)
def test_watching_changes_nothing_but_rounding_and_rows_are_rows(score: str, place: str) -> None:
    torch.manual_seed(2)
    query, key, value = (torch.randn(3, n, 8) for n in (6, 9, 9))
    if score == "exp dot":
        query = query / 4  # A large exponential has few digits behind the point.
    mask = masks.causal() & masks.padding(torch.tensor([9, 5, 0]))
    for normalize in NORMALIZERS:
        attention = build(score, normalize, place).eval()
        plainly = attention(query, key, value, mask=mask)
        with watch(attention) as whole, watch(attention, rows=[4, 0, -1]) as rows:
            with watch(attention, top_k=2) as top:
                watched = attention(query, key, value, mask=mask)
            assert whole[""][0].shape == (3, 1, 6, 9)
        torch.testing.assert_close(watched, plainly, rtol=1e-4, atol=1e-5, msg=normalize)
        chosen = whole[""][0][..., [4, 0, 5], :]
        torch.testing.assert_close(rows[""][0], chosen, rtol=1e-5, atol=1e-6, msg=normalize)
        largest = top.top[""][0]
        expected = whole[""][0].topk(2)
        torch.testing.assert_close(largest.weights, expected.values, rtol=1e-5, atol=1e-6)
        found = whole[""][0].gather(-1, largest.keys)
        torch.testing.assert_close(found, expected.values, rtol=1e-5, atol=1e-6)


def test_exp_of_dot_with_plain_sum_is_softmax_of_dot() -> None:
    torch.manual_seed(3)
    query, key, value = (torch.randn(2, 5, 4, dtype=torch.float64) for _ in range(3))
    mask = masks.causal()
    found = attend(
        query, key, value, score=scores.ExpDot(), normalize=normalizers.PlainSum(), mask=mask
    )
    torch.testing.assert_close(found, attend(query, key, value, score=scores.Dot(), mask=mask))


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_keys_are_repeated_keys(key_heads: int) -> None:
    """The fused path, the plain one and what nn.MultiheadAttention gives with the keys repeated."""
    torch.manual_seed(4)
    grouped = MultiHeadAttention(16, 4, key_heads=key_heads).double()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).double()
    repeat = 4 // key_heads

    def spread(weight: Tensor) -> Tensor:
        heads = weight.view(key_heads, 4, *weight.shape[1:])
        return heads.repeat_interleave(repeat, 0).flatten(0, 1)

    assert grouped.value_projection is not None
    assert grouped.output_projection is not None
    parts = (grouped.key_projection, grouped.value_projection)
    with torch.no_grad():
        weights = [grouped.query_projection.weight, *(spread(part.weight) for part in parts)]
        theirs.in_proj_weight.copy_(torch.cat(weights))
        biases = [grouped.query_projection.bias, *(spread(part.bias) for part in parts)]
        theirs.in_proj_bias.copy_(torch.cat(biases))
        theirs.out_proj.weight.copy_(grouped.output_projection.weight)
        theirs.out_proj.bias.copy_(grouped.output_projection.bias)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    mask = masks.causal()
    expected, weights_expected = theirs(
        x, x, x, attn_mask=~mask.dense((5, 5)), average_attn_weights=False
    )
    torch.testing.assert_close(grouped(x, x, mask=mask), expected)
    with watch(grouped) as seen:
        torch.testing.assert_close(grouped(x, x, mask=mask), expected)
    torch.testing.assert_close(seen[""][0], weights_expected)
    assert grouped.remember(x).key.shape == (2, key_heads, 5, 4)


def test_heads_are_joined_by_projection_concatenation_or_mean() -> None:
    torch.manual_seed(5)
    x = torch.randn(2, 3, 8)
    whole = MultiHeadAttention(8, 2)
    joined = MultiHeadAttention(8, 2, aggregate="concatenation")
    mean = MultiHeadAttention(8, 2, aggregate="mean")
    for other in (joined, mean):
        other.load_state_dict(whole.state_dict(), strict=False)
    assert whole.output_projection is not None
    torch.testing.assert_close(whole.output_projection(joined(x, x)), whole(x, x))
    torch.testing.assert_close(joined(x, x).view(2, 3, 2, 4).mean(2), mean(x, x))


def test_one_projection_for_keys_and_values() -> None:
    torch.manual_seed(6)
    shared = MultiHeadAttention(8, 2, shared_key_value=True)
    apart = MultiHeadAttention(8, 2)
    apart.load_state_dict(shared.state_dict(), strict=False)
    assert apart.value_projection is not None
    apart.value_projection.load_state_dict(shared.key_projection.state_dict())
    x, y, z = (torch.randn(2, 4, 8) for _ in range(3))
    torch.testing.assert_close(shared(x, y), apart(x, y))
    torch.testing.assert_close(shared(x, y, z), apart(x, y, z))
    count = sum(part.numel() for part in shared.parameters())
    assert count == sum(part.numel() for part in apart.parameters()) - 8 * 8 - 8


def test_a_mask_for_all_heads_has_three_dimensions() -> None:
    torch.manual_seed(7)
    attention = MultiHeadAttention(8, 2)
    x = torch.randn(2, 5, 8)  # As many entries as heads: [B, Q, K] may not be taken for [H, Q, K].
    allowed = torch.rand(2, 5, 5) > 0.3
    expected = attention(x, x, mask=allowed.unsqueeze(1))
    torch.testing.assert_close(attention(x, x, mask=allowed), expected)
    with watch(attention):
        torch.testing.assert_close(attention(x, x, mask=allowed), expected)


@pytest.mark.parametrize("name", ["scaled dot", "additive", "cosine", "gaussian"])
def test_compiled_whole_watched_too_and_not_anew_for_every_length(name: str) -> None:
    torch._dynamo.reset()
    attention = build(name, "softmax").eval()
    fast = torch.compile(attention, fullgraph=True, dynamic=True, backend="eager")
    counters = torch._dynamo.utils.counters["stats"]
    for watched in (False, True):
        before = counters["unique_graphs"]
        for length in (5, 6, 9, 13, 8):
            query, key = torch.randn(2, length, 8), torch.randn(2, length + 2, 8)
            mask = masks.causal() & masks.padding(torch.tensor([length, length + 1]))
            expected = attention(query, key, mask=mask)
            with torch.no_grad(), watch(fast, None if watched else []) as seen:
                found = fast(query, key, mask=mask)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            if watched:
                assert seen[""][0].shape == (2, 1, length, length + 2)
                torch.testing.assert_close(seen[""][0][:, 0] @ key, expected, rtol=1e-4, atol=1e-5)
        assert counters["unique_graphs"] - before <= 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", ["scaled dot", "additive", "gaussian", "cosine"])
def test_half_precision_is_as_near_as_its_rounding(score: str, dtype: torch.dtype) -> None:
    """Within 4 units of the last place of the largest number, watched or not."""
    torch.manual_seed(8)
    attention = build(score, "softmax").to(dtype)
    query, key, value = (torch.randn(4, 33, 8).to(dtype) for _ in range(3))
    exact = build(score, "softmax").to(dtype).double()
    expected = exact(query.double(), key.double(), value.double())
    for names in ([], None):
        with watch(attention, names):
            found = attention(query, key, value)
        error = (found.double() - expected).abs().max() / expected.abs().max()
        assert error < 4 * torch.finfo(dtype).eps


def test_autocast_and_watching_agree() -> None:
    torch.manual_seed(9)
    attention = MultiHeadAttention(16, 2).eval()
    x = torch.randn(2, 6, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plainly = attention(x, x)
        with watch(attention) as seen:
            watched = attention(x, x)
    assert plainly.dtype == watched.dtype == torch.bfloat16
    torch.testing.assert_close(watched, plainly, rtol=0.05, atol=0.02)
    torch.testing.assert_close(seen[""][0].float().sum(-1), torch.ones(2, 2, 6))


def test_top_weights_of_a_large_layer_never_make_the_matrix() -> None:
    """8,000 × 8,000: the largest tensor made has a block of rows."""
    made: list[int] = []

    class Measured(scores.ScaledDot):
        def compare(self, query: Tensor, key: Tensor) -> Tensor:
            made.append(query.shape[-2] * key.shape[-2])
            return super().compare(query, key)

        def dot_scale(self, width: int) -> float | None:
            return super().dot_scale(width)  # it compares as before

    attention = Attention(Measured())
    x = torch.randn(8000, 4)
    with torch.no_grad(), watch(attention, top_k=3) as top, watch(attention, rows=[7, -1]) as rows:
        context = attention(x, x)
    assert max(made) <= 1 << 22
    # The fused kernel's exponential is a little coarser than the plain one's.
    plain = F.scaled_dot_product_attention(x[None], x[None], x[None])[0]
    torch.testing.assert_close(context, plain, rtol=1e-4, atol=1e-4)
    expected = torch.softmax(x[[7, 7999]] @ x.T / 2, -1)
    torch.testing.assert_close(rows[""][0][0], expected, rtol=1e-4, atol=1e-7)
    largest = top.top[""][0]
    assert largest.weights.shape == (1, 8000, 3)
    torch.testing.assert_close(largest.weights[0, [7, -1]], expected.topk(3).values)


def test_the_log_probability_of_a_drawn_key_reaches_a_loss() -> None:
    torch.manual_seed(10)
    attention = Attention(scores.Additive(4, 4, 6), normalizers.SampledHard()).train()
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    with watch(attention, keep_gradients=True) as seen:
        attention(query, key)
    (weights,), (drawn,) = seen[""], seen.log_probability[""]
    assert weights.sum(-1).eq(1).all()
    assert ((weights == 0) | (weights == 1)).all()
    probabilities = torch.log_softmax(attention.score(query, key), -1)
    chosen = (probabilities * weights[:, 0]).sum(-1)
    torch.testing.assert_close(drawn[:, 0], chosen)
    drawn.sum().backward()
    assert attention.score.v.grad is not None
    assert attention.score.v.grad.abs().max() > 0
    with watch(attention, top_k=1), pytest.raises(ValueError, match="only be watched without"):
        attention(query, key)


def test_wrong_parts_and_options_raise() -> None:
    x = torch.zeros(1, 3, 4)
    with pytest.raises(TypeError, match="score must be a Score, not 'dot'"):
        attend(x, x, x, score="dot")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not the class Dot; create an instance: Dot\(…\)"):
        Attention(scores.Dot)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="normalize must be a Normalizer"):
        Attention(normalize=scores.Dot())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="positions must be a RelativePositions"):
        Attention(positions=positions.Sinusoidal(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="heads 4 is not a multiple of key_heads 3"):
        MultiHeadAttention(8, 4, key_heads=3)
    with pytest.raises(ValueError, match="aggregate must be one of"):
        MultiHeadAttention(8, 4, aggregate="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shared_key_value requires equal widths"):
        MultiHeadAttention(8, 4, key_dim=8, value_dim=6, shared_key_value=True)
    with pytest.raises(ValueError, match="top_k must be at least 1"), watch(Attention(), top_k=0):
        pass
    attention = Attention()
    with watch(attention, rows=[3]), pytest.raises(ValueError, match="row 3 is out of range for 3"):
        attention(x, x)
    with (
        watch(attention, top_k=4),
        pytest.raises(ValueError, match="more than the number of keys, 3"),
    ):
        attention(x, x)


def test_a_temperature_leaves_masked_what_numbers_mask() -> None:
    """The lowest number of a type still masks where scores are divided."""
    torch.manual_seed(11)
    query, key = torch.randn(1, 3, 4), torch.randn(1, 5, 4)
    allowed = torch.arange(5) < 3
    numbers = torch.randn(3, 5).masked_fill(~allowed, torch.finfo(torch.float32).min)
    attention = Attention(normalize=normalizers.Softmax(3.0))
    plainly = attention(query, key, mask=numbers)
    with watch(attention) as seen:
        torch.testing.assert_close(attention(query, key, mask=numbers), plainly)
    scores_of = (query @ key.transpose(1, 2) / 2 + numbers)[..., :3] / 3
    torch.testing.assert_close(seen[""][0][0, ..., :3], torch.softmax(scores_of, -1))
    assert seen[""][0][..., 3:].eq(0).all()


def test_a_compiled_model_is_watched_in_part_too() -> None:
    torch._dynamo.reset()
    torch.manual_seed(12)
    attention = MultiHeadAttention(16, 2).eval()
    fast = torch.compile(attention, dynamic=True, backend="eager")
    x = torch.randn(2, 9, 16)
    with torch.no_grad(), watch(attention) as whole:
        expected = attention(x, x)
    (weights,) = whole[""]
    with torch.no_grad(), watch(fast, rows=[1, -1]) as rows, watch(fast, top_k=2) as top:
        torch.testing.assert_close(fast(x, x), expected)
    torch.testing.assert_close(rows[""][0], weights[:, :, [1, -1]])
    torch.testing.assert_close(top.top[""][0].weights, weights.topk(2).values)
