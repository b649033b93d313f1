"""Variants of multi-head attention against peers, or loops over the papers' equations, in float64.

Outputs and the gradients of inputs and parameters; fully masked rows; watching; refused parts.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from heedful.attention import (
    Attention,
    DifferentialAttention,
    MultiHeadAttention,
    attend,
    attention_weights,
    dot,
    heads,
    masks,
    normalizers,
    positions,
    scores,
    watch,
)

B, H, L, W = 2, 4, 7, 5
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
SINGLE = {"rtol": 1e-5, "atol": 1e-6}
CAUSAL = torch.full((1, 1, L, L), -1e30, dtype=torch.float64).triu(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def scattered(layer: nn.Module) -> nn.Module:
    """With random parameters, so that none is one or zero."""
    layer = layer.double()
    for part in layer.parameters():
        nn.init.normal_(part, std=0.5)
    return layer


def same(
    found: Tensor, expected: Tensor, inputs: list[Tensor], tolerance: dict[str, float]
) -> None:
    torch.testing.assert_close(found, expected, **tolerance)
    weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    ours, theirs = (
        torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True)
        for out in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def projected(layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``[B, H, L, D]`` of queries, keys and values, by their matrices."""
    assert layer.value_projection is not None
    parts = (layer.query_projection, layer.key_projection, layer.value_projection)
    q, k, v = (part(x).view(B, L, -1, layer.head_dim).transpose(1, 2) for part in parts)
    return q, k, v


# Parts against peers


@pytest.mark.parametrize("groups", [H, 2])
def test_soft_cap_is_gemma_2s(groups: int) -> None:
    q, k, v = random(B, H, L, W), random(B, groups, L, W), random(B, groups, L, W)
    module = SimpleNamespace(num_key_value_groups=H // groups, training=False)
    expected, weights = gemma2(module, q, k, v, CAUSAL, scaling=W**-0.5, softcap=1.5)
    score = scores.SoftCapped(cap=1.5)
    found = attend(q, k, v, score=score, mask=masks.causal())
    same(found.transpose(1, 2), expected, [q, k, v], SINGLE)  # The peer's softmax is in float32.
    found = attention_weights(q, k, score=score, mask=masks.causal())
    torch.testing.assert_close(found, weights, **SINGLE)


@pytest.mark.parametrize("groups", [H, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_sinks_are_gpt_oss(groups: int, causal: bool) -> None:
    """The fused path, which gets one more key, and the plain one."""
    q, k, v = random(B, H, L, W), random(B, groups, L, W), random(B, groups, L, W)
    normalize = scattered(normalizers.SinkSoftmax(H))
    module = SimpleNamespace(num_key_value_groups=H // groups, training=False, sinks=normalize.sink)
    mask = masks.causal() if causal else None
    expected, weights = gpt_oss(module, q, k, v, CAUSAL if causal else None, scaling=W**-0.5)
    found = attend(q, k, v, normalize=normalize, mask=mask).transpose(1, 2)
    same(found, expected, [q, k, v, normalize.sink], TIGHT)
    found = attention_weights(q, k, normalize=normalize, mask=mask)
    torch.testing.assert_close(found, weights, **TIGHT)


def test_rms_norm_of_queries_and_keys_is_qwen_3s() -> None:
    """Before rotary positions, with grouped keys."""
    config = Qwen3Config(
        hidden_size=32,
        num_attention_heads=H,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation="eager",
        rms_norm_eps=1e-5,
    )
    peer = scattered(Qwen3Attention(config, layer_idx=0)).eval()
    norm = heads.QueryKeyNorm(8, "rms", epsilon=1e-5)
    ours = MultiHeadAttention(
        32, H, key_heads=2, positions=positions.Rotary(8), query_key_norm=norm, bias=False
    ).double()
    pairs = {
        "query_projection": "q_proj",
        "key_projection": "k_proj",
        "value_projection": "v_proj",
        "output_projection": "o_proj",
    }
    with torch.no_grad():
        for name, other in pairs.items():
            getattr(ours, name).weight.copy_(getattr(peer, other).weight)
        norm.query_weight.copy_(peer.q_norm.weight)
        norm.key_weight.copy_(peer.k_norm.weight)
    x = random(B, L, 32)
    angles = positions.rotary_angles(torch.arange(L), 8).repeat(1, 2).expand(B, L, 8)
    expected, _ = peer(x, (angles.cos(), angles.sin()), CAUSAL)
    found = ours(x, x, mask=masks.causal())
    same(found, expected, [x], SINGLE)
    # One after another, from a cache of normalized keys.
    memory = ours.remember(x)
    step = ours.read(x[:, -2:], memory, masks.causal())
    torch.testing.assert_close(step, expected[:, -2:], **SINGLE)


@pytest.mark.parametrize("kind", ["layer", "l2"])
def test_layer_norm_and_l2_of_queries_and_keys(kind: str) -> None:
    norm = scattered(heads.QueryKeyNorm(W, kind))
    score = scores.Dot() if kind == "l2" else scores.ScaledDot()
    ours = MultiHeadAttention(H * W, H, score=score, query_key_norm=norm).double()
    x = random(B, L, H * W)
    q, k, v = projected(ours, x)
    if kind == "l2":
        q, k = (part / part.square().sum(-1, keepdim=True).sqrt() for part in (q, k))
        e = norm.factor * (q @ k.transpose(-1, -2))
    else:
        weights = (norm.query_weight, norm.key_weight)
        q, k = (
            g * (part - part.mean(-1, keepdim=True))
            / (part.var(-1, keepdim=True, unbiased=False) + norm.epsilon).sqrt()
            for part, g in zip((q, k), weights, strict=True)
        )  # fmt: skip
        e = q @ k.transpose(-1, -2) / math.sqrt(W)
    context = torch.softmax(e, -1) @ v
    expected = ours.output_projection(context.transpose(1, 2).flatten(2))
    same(ours(x, x), expected, [x, *norm.parameters()], TIGHT)


@pytest.mark.parametrize("which", ["both", "scores", "weights"])
def test_talking_heads_are_the_papers(which: str) -> None:
    """Shazeer et al. 2020, section 5: entry by entry, with a mask of the mixed scores."""
    mixing = heads.TalkingHeads(H, scores=which != "weights", weights=which != "scores")
    ours = scattered(MultiHeadAttention(H * W, H, mixing=mixing))
    x = random(B, L, H * W)
    q, k, v = projected(ours, x)
    eye = torch.eye(H, dtype=torch.float64)
    P_l = eye if mixing.score_mixing is None else mixing.score_mixing
    P_w = eye if mixing.weight_mixing is None else mixing.weight_mixing
    J = q @ k.transpose(-1, -2) / math.sqrt(W)
    mixed = torch.stack([sum(J[:, h] * P_l[h, m] for h in range(H)) for m in range(H)], 1)
    softmax = torch.softmax(mixed + CAUSAL, -1)
    U = torch.stack([sum(softmax[:, h] * P_w[h, m] for h in range(H)) for m in range(H)], 1)
    expected = ours.output_projection((U @ v).transpose(1, 2).flatten(2))
    with watch(ours) as seen:
        found = ours(x, x, mask=masks.causal())
    same(found, expected, [x, *mixing.parameters(), ours.query_projection.weight], TIGHT)
    torch.testing.assert_close(seen[""][0], U.detach(), **TIGHT)
    torch.testing.assert_close(ours(x, x, mask=masks.causal()), expected, **TIGHT)


@pytest.mark.parametrize("per", ["element", "head"])
def test_the_gate_is_a_sigmoid_of_the_input(per: str) -> None:
    gate = heads.OutputGate(H * W, H, W, per)
    ours = scattered(MultiHeadAttention(H * W, H, gate=gate))
    x, memory = random(B, L, H * W), random(B, L, H * W)
    q, _, _ = projected(ours, x)
    _, k, v = projected(ours, memory)
    Y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(W), -1) @ v
    rows = []
    for j in range(H):
        rows_of_gate = slice(j * W, (j + 1) * W) if per == "element" else slice(j, j + 1)
        sigma = 1 / (1 + torch.exp(-(x @ gate.projection.weight[rows_of_gate].T)))
        rows.append(Y[:, j] * sigma)
    expected = ours.output_projection(torch.cat(rows, -1))
    same(ours(x, memory), expected, [x, memory, gate.projection.weight], TIGHT)


def differential(layer: DifferentialAttention, x: Tensor, added: Tensor | float) -> Tensor:
    """Equations 1 to 3 of the paper, head by head."""
    mixing, d = layer.mixing, layer.head_dim
    assert isinstance(mixing, heads.Differential)
    λ = (
        torch.exp((mixing.lambda_q1 * mixing.lambda_k1).sum())
        - torch.exp((mixing.lambda_q2 * mixing.lambda_k2).sum())
        + heads.initial_lambda(3)
    )
    q, k, _ = projected(layer, x)
    each = layer.heads // layer.key_heads
    contexts = []
    for j in range(layer.heads // 2):
        one, other = (
            torch.softmax(q[:, i] @ k[:, i // each].mT / math.sqrt(d) + added, -1)
            for i in (2 * j, 2 * j + 1)
        )
        at = slice(j // each * 2 * d, (j // each + 1) * 2 * d)
        v = layer.value_projection(x)[..., at]
        context = (one - λ * other) @ v
        normed = context / (context.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        contexts.append((1 - heads.initial_lambda(3)) * normed * layer.head_norm.weight)
    return layer.output_projection(torch.cat(contexts, -1))


@pytest.mark.parametrize("groups", [H, 2, 1])
def test_differential_attention_is_the_papers(groups: int) -> None:
    """The fused path, the plain one, and steps with a cache."""
    ours = scattered(DifferentialAttention(2 * H * W, H, layer=3, key_heads=groups))
    x = random(B, L, 2 * H * W)
    expected = differential(ours, x, CAUSAL[0])
    inputs = [x, *ours.parameters()]
    same(ours(x, x, mask=masks.causal()), expected, inputs, TIGHT)
    with watch(ours, keep_gradients=True) as seen:
        same(ours(x, x, mask=masks.causal()), expected, inputs, TIGHT)
    assert isinstance(ours.mixing, heads.Differential)
    totals = seen[""][0].sum(-1)
    torch.testing.assert_close(totals, (1 - ours.mixing.subtracted).expand_as(totals), **TIGHT)
    step = ours.read(x[:, -1:], ours.remember(x), masks.causal())
    torch.testing.assert_close(step, expected[:, -1:], **TIGHT)


def test_lambda_is_initially_the_papers() -> None:
    assert heads.initial_lambda(1) == pytest.approx(0.2)
    assert heads.initial_lambda(1000) == pytest.approx(0.8)
    mixing = heads.Differential(2, 64)
    assert abs(mixing.subtracted.item() - 0.2) < 0.5


# What holds for all of them

VARIANTS: dict[str, Callable[[], MultiHeadAttention]] = {
    "soft cap": lambda: MultiHeadAttention(20, H, score=scores.SoftCapped(cap=2.0)),
    "capped additive": lambda: MultiHeadAttention(
        20, H, score=scores.SoftCapped(scores.Additive(5, 5, 6), cap=2.0)
    ),
    "sinks": lambda: MultiHeadAttention(20, H, normalize=normalizers.SinkSoftmax(H)),
    "sinks, cap": lambda: MultiHeadAttention(
        20, H, score=scores.SoftCapped(), normalize=normalizers.SinkSoftmax(H)
    ),
    "rms": lambda: MultiHeadAttention(20, H, query_key_norm=heads.QueryKeyNorm(5)),
    "layer": lambda: MultiHeadAttention(20, H, query_key_norm=heads.QueryKeyNorm(5, "layer")),
    "l2": lambda: MultiHeadAttention(
        20, H, score=scores.Dot(), query_key_norm=heads.QueryKeyNorm(5, "l2")
    ),
    "talking": lambda: MultiHeadAttention(20, H, mixing=heads.TalkingHeads(H)),
    "talking, additive": lambda: MultiHeadAttention(
        20, H, mixing=heads.TalkingHeads(H), score=scores.Additive(5, 5, 6)
    ),
    "gate": lambda: MultiHeadAttention(20, H, gate=heads.OutputGate(20, H, 5)),
    "differential": lambda: DifferentialAttention(20, 2),
    "differential, all": lambda: DifferentialAttention(
        20,
        2,
        key_heads=1,
        normalize=normalizers.SinkSoftmax(4),
        positions=positions.ALiBi(4),
        query_key_norm=heads.QueryKeyNorm(5),
        gate=heads.OutputGate(20, 2, 10),
    ),
    "differential, sparse": lambda: DifferentialAttention(20, 2, normalize=normalizers.Sparsemax()),
    "all": lambda: MultiHeadAttention(
        20,
        H,
        key_heads=2,
        normalize=normalizers.SinkSoftmax(H),
        positions=positions.T5Buckets(H),
        query_key_norm=heads.QueryKeyNorm(5),
        gate=heads.OutputGate(20, H, 5, "head"),
    ),
}
every = pytest.mark.parametrize("name", VARIANTS)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_masked_rows_get_no_context_and_nothing_is_nan(name: str, dtype: torch.dtype) -> None:
    layer = VARIANTS[name]().to(dtype)
    layer.output_projection = None  # Its bias would be added to the zeros.
    allowed = torch.rand(B, L, L) > 0.4
    allowed[0, 2] = False
    allowed[1] = False
    x = torch.randn(B, L, 20).to(dtype).requires_grad_()
    for watched in (False, True):
        with watch(layer, None if watched else []) as seen:
            context = layer(x, x, mask=allowed)
        assert context[0, 2].eq(0).all()
        assert context[1].eq(0).all()
        assert context.isfinite().all()
        if watched:
            assert seen[""][0][1].eq(0).all()
            there = seen[""][0].ne(0) & ~allowed.unsqueeze(1)
            assert not there.any()
        for grad in torch.autograd.grad(context.square().sum(), [x, *layer.parameters()],
                                        allow_unused=True):  # fmt: skip
            assert grad is None or grad.isfinite().all()


@every
def test_watching_changes_rounding_only_and_rows_are_rows(name: str) -> None:
    layer = scattered(VARIANTS[name]()).eval()
    x = random(B, L, 20).detach()
    mask = masks.causal() & masks.padding(torch.tensor([L, 3]))
    plainly = layer(x, x, mask=mask)
    with watch(layer) as whole, watch(layer, rows=[4, -1]) as rows, watch(layer, top_k=2) as top:
        watched = layer(x, x, mask=mask)
    torch.testing.assert_close(watched, plainly, **TIGHT)
    torch.testing.assert_close(rows[""][0], whole[""][0][..., [4, L - 1], :], **TIGHT)
    torch.testing.assert_close(top.top[""][0].weights, whole[""][0].topk(2).values, **TIGHT)


@every
def test_steps_with_a_cache_are_the_whole(name: str) -> None:
    layer = scattered(VARIANTS[name]()).eval()
    x = random(B, L, 20).detach()
    whole = layer(x, x, mask=masks.causal())
    memory = layer.remember(x)
    for place in (0, 3, L - 1):
        part = layer.read(x[:, place : place + 1], type(memory)(*(
            one[..., : place + 1, :] for one in memory)))  # fmt: skip
        torch.testing.assert_close(part, whole[:, place : place + 1], **TIGHT)


@every
def test_compiled_without_graph_breaks(name: str) -> None:
    torch._dynamo.reset()
    layer = scattered(VARIANTS[name]()).eval()
    x = random(B, L, 20).detach()
    fast = torch.compile(layer, fullgraph=True, backend="eager")
    with torch.no_grad():
        found = fast(x, x, mask=masks.causal())
    torch.testing.assert_close(found, layer(x, x, mask=masks.causal()), **TIGHT)


@pytest.mark.parametrize("name", ["sinks", "differential", "talking", "gate", "rms"])
def test_autocast_gives_its_type(name: str) -> None:
    layer = VARIANTS[name]().eval()
    x = torch.randn(B, L, 20)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plainly = layer(x, x)
        with watch(layer):
            watched = layer(x, x)
    assert plainly.dtype == watched.dtype == torch.bfloat16
    torch.testing.assert_close(watched, plainly, rtol=0.05, atol=0.03)
    torch.testing.assert_close(plainly.float(), layer(x, x), rtol=0.05, atol=0.03)


# Fast paths


def test_sinks_and_off_by_one_are_fused_and_make_no_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("the plain path was used")

    monkeypatch.setattr("heedful.attention.functional.projected_weights", refuse)
    x = random(1, H, L, W)
    for normalize in (normalizers.SinkSoftmax(H).double(), normalizers.SoftmaxOffByOne()):
        for mask in (None, masks.causal(), torch.ones(L, dtype=torch.bool), CAUSAL):
            attend(x, x, x, normalize=normalize, mask=mask)
    for name in ("rms", "gate", "differential", "all", "sinks"):
        layer = VARIANTS[name]().double()
        layer(x.view(1, -1, 20), x.view(1, -1, 20))
    with pytest.raises(AssertionError):
        attend(x, x, x, score=scores.SoftCapped())  # FlexAttention on NVIDIA GPUs only


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", ["causal", "window", "padding", "first", "none", "numbers"])
def test_a_sink_is_one_more_key_under_every_mask(
    name: str, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if blocks:
        monkeypatch.setattr(dot, "_LARGE", 1)
        monkeypatch.setattr(dot, "_BLOCK", 3)
    normalize = scattered(normalizers.SinkSoftmax(H))
    q, k, v = random(B, H, L, W), random(B, H, 9, W), random(B, H, 9, 3)
    mask: masks.Mask | Tensor | None = {
        "causal": masks.causal(),
        "window": masks.window(2, 1),
        "padding": masks.causal() & masks.padding(torch.tensor([9, 0])),
        "first": masks.causal(),
        "none": None,
        "numbers": torch.randn(L, 9, dtype=torch.float64),
    }[name]
    first = 4 if name == "first" else None
    found = attend(q, k, v, normalize=normalize, mask=mask, first=first)
    plain = attention_weights(q, k, normalize=normalize, mask=mask, first=first) @ v
    same(found, plain, [q, k, v, normalize.sink], TIGHT)


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("sink", [False, True])
def test_flex_attention_computes_caps_and_sinks(cap: float | None, sink: bool) -> None:
    normalize = scattered(normalizers.SinkSoftmax(H) if sink else normalizers.Softmax())
    score = scores.ScaledDot() if cap is None else scores.SoftCapped(cap=cap)
    q, k, v = (random(B, heads_, 32, 8).detach() for heads_ in (H, 2, 2))
    mask = masks.causal() & masks.padding(torch.tensor([32, 0]))
    form = Attention(score, normalize).mechanism.fused_form(8)
    assert form is not None
    assert (form.cap, form.sink is not None) == (cap, sink)
    grid = masks.Grid((B, H, 32, 32), q.device)
    with torch.no_grad():  # FlexAttention has no backward on the CPU.
        found = dot.flex_context(q, k, v, mask, grid, form=form, compiled=False)
        expected = attention_weights(q, k, score=score, normalize=normalize, mask=mask)
    torch.testing.assert_close(found, expected @ v.repeat_interleave(2, 1))


# Refused


def test_parts_for_other_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="mixing is for 3 heads, not 4"):
        MultiHeadAttention(20, 4, mixing=heads.TalkingHeads(3))
    with pytest.raises(ValueError, match=r"gate is for dim, heads and head_dim \(20, 2, 10\)"):
        MultiHeadAttention(20, 4, gate=heads.OutputGate(20, 2, 10))
    for other, message in (
        ({"positions": positions.ALiBi(3)}, "positions is for 3 heads, not 4"),
        ({"normalize": normalizers.SinkSoftmax(3)}, "normalize is for 3 heads, not 4"),
        ({"score": scores.Additive(20, 20, 3)}, "score has query_dim 20, but a head is 5 wide"),
        ({"score": scores.General(5, 20)}, "score has key_dim 20, but a head is 5 wide"),
        ({"positions": positions.Rotary(6)}, "rotate 6 components of a head, which has only 5"),
    ):
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(20, 4, **other)
    with pytest.raises(ValueError, match="query_key_norm is for heads of width 4, not 5"):
        MultiHeadAttention(20, 4, query_key_norm=heads.QueryKeyNorm(4))
    with pytest.raises(ValueError, match="replaces 1/√d"):
        MultiHeadAttention(20, 4, query_key_norm=heads.QueryKeyNorm(5, "l2"))
    with pytest.raises(ValueError, match="normalizes queries and keys itself"):
        MultiHeadAttention(20, 4, score=scores.Cosine(), query_key_norm=heads.QueryKeyNorm(5, "l2"))
    with pytest.raises(TypeError, match="mixing must be a HeadMixing"):
        MultiHeadAttention(20, 4, mixing=heads.OutputGate(20, 4, 5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="already soft-capped"):
        scores.SoftCapped(scores.SoftCapped())
    with pytest.raises(ValueError, match="Coverage needs the weights of the step before"):
        scores.SoftCapped(scores.Coverage(5, 5, 3))
    capped = scores.SoftCapped(scores.Cosine())
    with pytest.raises(ValueError, match="normalizes queries and keys itself"):
        MultiHeadAttention(20, 4, score=capped, query_key_norm=heads.QueryKeyNorm(5, "l2"))
    with pytest.raises(ValueError, match="at least 2 to be mixed"):
        heads.TalkingHeads(1)
    with pytest.raises(ValueError, match="both are off"):
        heads.TalkingHeads(4, scores=False, weights=False)
    with pytest.raises(ValueError, match=r"multiple of 2 · heads = 6"):
        DifferentialAttention(20, 3)
    with pytest.raises(ValueError, match="there is no layer 0"):
        DifferentialAttention(20, 2, layer=0)
    for make in (
        lambda: heads.QueryKeyNorm(5, "other"),  # type: ignore[arg-type]
        lambda: heads.OutputGate(20, 4, 5, "row"),  # type: ignore[arg-type]
        lambda: heads.QueryKeyNorm(5, "l2", factor=0.0),
        lambda: scores.SoftCapped(cap=math.inf),
        lambda: normalizers.SinkSoftmax(0),
    ):
        with pytest.raises(ValueError, match="must be"):
            make()


@pytest.mark.parametrize("name", ["talking", "differential"])
def test_mixed_heads_share_their_mask(name: str) -> None:
    layer, x = VARIANTS[name](), torch.randn(B, L, 20)
    with pytest.raises(ValueError, match="has one matrix for each head, but heads are mixed"):
        layer(x, x, mask=torch.ones(B, H, L, L, dtype=torch.bool))
    with pytest.raises(ValueError, match="has one matrix for each head, but heads are mixed"):
        layer(x, x, mask=masks.causal() & torch.ones(B, H, L, L, dtype=torch.bool))
    layer(x, x, mask=torch.ones(B, 1, L, L, dtype=torch.bool))
    layer.mask = masks.as_mask(torch.ones(B, H, L, L, dtype=torch.bool))
    with pytest.raises(ValueError, match="has one matrix for each head, but heads are mixed"):
        layer(x, x)


def test_sinks_are_for_their_number_of_heads() -> None:
    x = random(B, 3, L, W)
    for call in (attend, lambda *given, **more: attention_weights(*given[:2], **more)):
        with pytest.raises(ValueError, match="sinks for 4 heads"):
            call(x, x, x, normalize=normalizers.SinkSoftmax(4).double())
