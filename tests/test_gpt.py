"""GPT: exact parameter counts, transformers' GPT-1 and GPT-2, steps against the whole text."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.attention.positions import Rotary
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.models.gpt import Gpt, GptSettings

VOCABULARY = 40
TEXTS = torch.tensor([[3, 7, 9, 11, 8, 30, 3], [3, 21, 22, 5, 39, 39, 6]])

ODD = {
    "two heads": {"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2},
    "odd width, one head": {"layers": 1, "hidden_size": 9, "ffn_size": 7, "heads": 1},
    "heads of width 1": {
        "layers": 2,
        "hidden_size": 6,
        "ffn_size": 10,
        "heads": 6,
        "activation": "relu",
    },
    "untied": {
        "layers": 3,
        "hidden_size": 15,
        "ffn_size": 31,
        "heads": 5,
        "tied_embeddings": False,
    },
    "gelu": {"layers": 2, "hidden_size": 12, "ffn_size": 5, "heads": 3, "activation": "gelu"},
    "epsilon": {"layers": 1, "hidden_size": 10, "ffn_size": 20, "heads": 2, "norm_epsilon": 0.3},
}


def gpt_of(**given: object) -> Gpt:
    torch.manual_seed(3)
    shape = {"layers": 2, "hidden_size": 16, "ffn_size": 24, "heads": 2, "max_length": 12}
    gpt = Gpt(GptSettings(**{**shape, **given}), VOCABULARY).double().eval()
    blur(gpt)
    return gpt


def blur(module: nn.Module) -> None:
    """Weights that matter: at 0.02 attention is nearly even, and biases and norms do nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)


# Against transformers


def peer_of(gpt: Gpt) -> nn.Module:
    """transformers' model of the same shape, with weights of its own."""
    transformers = pytest.importorskip("transformers")
    own = gpt.settings
    shape = {
        "vocab_size": VOCABULARY,
        "n_positions": own.max_length,
        "n_embd": own.hidden_size,
        "n_layer": own.layers,
        "n_head": own.heads,
        "layer_norm_epsilon": own.norm_epsilon,
        "tie_word_embeddings": own.tied_embeddings,
    }
    torch.manual_seed(4)
    if own.pre_norm:
        activation = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu"}[own.activation]
        config = transformers.GPT2Config(
            **shape, n_inner=own.ffn_size, activation_function=activation
        )
        peer = transformers.GPT2LMHeadModel(config)
    else:
        activation = {"gelu-tanh": "gelu", "relu": "relu", "silu": "silu"}[own.activation]
        config = transformers.OpenAIGPTConfig(**shape, afn=activation)
        peer = transformers.OpenAIGPTLMHeadModel(config)
    peer = peer.double().eval()
    blur(peer)
    return peer


def parameters_of(gpt: Gpt) -> list[Tensor]:
    """Ours, as they lie in theirs: matrices turned, and query, key and value side by side."""
    embeddings = gpt.embeddings
    found: list[Tensor] = [embeddings.tokens.weight, embeddings.positions.table.weight]
    found += [*gpt.norm.parameters()]
    found += [] if gpt.output is None else [gpt.output.weight]
    for layer in gpt.layers:
        heads = layer.self_attention
        whole = [heads.query_projection, heads.key_projection, heads.value_projection]
        found += [torch.cat([part.weight for part in whole]).T]
        found += [torch.cat([part.bias for part in whole])]
        forward = layer.feed_forward
        for part in (heads.output_projection, forward.expand, forward.contract):
            found += [part.weight.T, part.bias]
        for around in (layer.around_self, layer.around_feed_forward):
            found += [around.norm.weight, around.norm.bias]
    return found


def their_parameters(peer: nn.Module) -> list[nn.Parameter]:
    theirs = peer.transformer
    tokens, positions = [p for n, p in theirs.named_parameters() if not n.startswith(("h.", "ln"))]
    found = [tokens, positions]
    found += [*theirs.ln_f.parameters()] if hasattr(theirs, "ln_f") else []
    found += [] if peer.lm_head.weight is tokens else [peer.lm_head.weight]
    for layer in theirs.h:
        for part in (layer.attn.c_attn, layer.attn.c_proj, layer.mlp.c_fc, layer.mlp.c_proj):
            found += [part.weight, part.bias]
        found += [*layer.ln_1.parameters(), *layer.ln_2.parameters()]
    return found


def give(gpt: Gpt, peer: nn.Module) -> None:
    with torch.no_grad():
        for ours, theirs in zip(parameters_of(gpt), their_parameters(peer), strict=True):
            theirs.copy_(ours)


@pytest.mark.parametrize("shape", ODD.values(), ids=ODD)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_it_computes_what_transformers_computes(shape: dict[str, object], pre_norm: bool) -> None:
    """GPT-2's model, or GPT-1's: logits, and the gradient of every parameter."""
    given = {**shape, "pre_norm": pre_norm}
    if not pre_norm:  # what GPT-1's has no setting for
        given |= {"ffn_size": 4 * shape["hidden_size"]}
        given |= {"activation": "silu"} if shape.get("activation") == "gelu" else {}
    gpt = gpt_of(**given)
    peer = peer_of(gpt)
    give(gpt, peer)
    assert sum(p.numel() for p in gpt.parameters()) == sum(p.numel() for p in peer.parameters())
    ours, theirs = gpt.logits(gpt.states(TEXTS)), peer(TEXTS).logits
    torch.testing.assert_close(ours, theirs)
    probe = torch.randn_like(ours)
    # A gradient for each of theirs, by ours laid out as theirs.
    own = list(gpt.parameters())
    got = dict(zip(map(id, own), torch.autograd.grad(ours, own, probe), strict=True))
    twin = Gpt(gpt.settings, VOCABULARY).double()
    with torch.no_grad():
        for mine, its in zip(own, twin.parameters(), strict=True):
            its.copy_(got[id(mine)])
    expected = torch.autograd.grad(theirs, their_parameters(peer), probe)
    for one, other in zip(parameters_of(twin), expected, strict=True):
        torch.testing.assert_close(one.detach(), other)


def test_steps_are_transformers_steps_with_its_cache() -> None:
    gpt = gpt_of()
    peer = peer_of(gpt)
    give(gpt, peer)
    state, cache = gpt.start(TEXTS[:, :3]), None
    cache = peer(TEXTS[:, :2], use_cache=True).past_key_values
    for place in range(2, TEXTS.shape[1]):
        logits, state = gpt.step(TEXTS[:, place], state)
        theirs = peer(TEXTS[:, place : place + 1], past_key_values=cache, use_cache=True)
        cache = theirs.past_key_values
        torch.testing.assert_close(logits, theirs.logits[:, 0])


# Sizes


@pytest.mark.parametrize(
    ("size", "vocabulary", "expected"),
    [
        ("gpt-1", 40_478, 116_534_784),
        ("small", 50_257, 124_439_808),
        ("medium", 50_257, 354_823_168),
        ("large", 50_257, 774_030_080),
        ("xl", 50_257, 1_557_611_200),
    ],
)
def test_sizes_have_exactly_their_parameters(size: str, vocabulary: int, expected: int) -> None:
    transformers = pytest.importorskip("transformers")
    settings = GptSettings(size=size)
    with torch.device("meta"):
        gpt = Gpt(settings, vocabulary)
    dim = settings.hidden_size
    norms = 4 * dim
    block = 4 * (dim * dim + dim) + dim * 4 * dim + 4 * dim + 4 * dim * dim + dim + norms
    last = 2 * dim if settings.pre_norm else 0
    formula = (vocabulary + settings.max_length) * dim + settings.layers * block + last
    assert sum(p.numel() for p in gpt.parameters()) == formula == expected
    assert settings.size == size
    if size in ("gpt-1", "small"):  # The defaults of theirs are these two.
        with torch.device("meta"):
            if size == "small":
                peer = transformers.GPT2LMHeadModel(transformers.GPT2Config())
            else:
                peer = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig())
        assert sum(p.numel() for p in peer.parameters()) == expected


def test_settings_that_do_not_fit_are_told() -> None:
    assert GptSettings().size == "tiny"
    one = GptSettings(size="gpt-1")
    assert (one.pre_norm, one.max_length) == (False, 512)
    other = GptSettings(size="gpt-1", max_length=256)
    assert (other.size, other.pre_norm, other.layers) == (None, False, 12)
    assert GptSettings(**other.as_tables()) == other
    assert GptSettings(**one.as_tables()) == one
    with pytest.raises(ValidationError, match="multiple of heads"):
        GptSettings(layers=1, hidden_size=10, heads=3)
    with pytest.raises(ValidationError, match="dim must be even"):
        GptSettings(layers=1, hidden_size=9, heads=3, positions="rotary")
    with pytest.raises(ValidationError, match="Extra inputs"):
        GptSettings(layers=1, hidden_size=8, depth=3)


# Properties

KINDS = {
    "gpt-2": {},
    "gpt-1": {"pre_norm": False},
    "rotary": {"positions": "rotary"},
    "plain": {"bias": False, "tied_embeddings": False},
    "output bias": {"output_bias": True},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prompt", [1, 2, 5])
def test_stepping_gives_the_logits_of_the_whole_text(kind: dict[str, object], prompt: int) -> None:
    gpt = gpt_of(**kind)
    if gpt.output_bias is not None:
        gpt.output_bias.copy_(torch.randn(VOCABULARY))
    whole = gpt.logits(gpt.states(TEXTS))
    state = gpt.start(TEXTS[:, :prompt])
    assert state.length == prompt - 1
    for place in range(prompt - 1, TEXTS.shape[1]):
        logits, state = gpt.step(TEXTS[:, place], state)
        torch.testing.assert_close(logits, whole[:, place])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("prompt", [1, 4])
def test_a_selected_state_goes_on_as_its_rows_would(kind: dict[str, object], prompt: int) -> None:
    gpt = gpt_of(**kind)
    rows, last = torch.tensor([1, 0, 1]), torch.tensor([4, 5, 6])
    state = gpt.start(TEXTS[:, :prompt])
    state = state.select(torch.tensor([0, 1]))  # also before the first step
    _, state = gpt.step(TEXTS[:, prompt - 1], state)
    logits, _ = gpt.step(last, state.select(rows))
    whole = torch.cat([TEXTS[rows, :prompt], last.unsqueeze(1)], 1)
    torch.testing.assert_close(logits, gpt.logits(gpt.states(whole))[:, -1])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_token_has_no_influence_on_those_before_it(kind: dict[str, object]) -> None:
    gpt = gpt_of(**kind)
    other = TEXTS.clone()
    other[:, 4:] = PAD
    one, two = gpt.states(TEXTS), gpt.states(other)
    torch.testing.assert_close(one[:, :4], two[:, :4])
    assert not torch.allclose(one[:, 4:], two[:, 4:])


def test_rotary_positions_are_offsets_alone() -> None:
    """Against the formula written with complex numbers; and a text that stands later is the same.

    Su et al. 2021, equation 16, in one head: score = Re((q · e^(imθ)) · conj(k · e^(inθ))).
    """
    gpt = gpt_of(layers=1, heads=1, hidden_size=6, positions="rotary", dropout=0.0)
    assert not list(gpt.embeddings.positions.parameters())
    heads = gpt.layers[0].self_attention
    assert isinstance(heads.positions, Rotary)
    normed = gpt.layers[0].around_self.norm(gpt.embeddings(TEXTS, 0))
    query, key = heads.query_projection(normed), heads.key_projection(normed)
    speed = 10_000.0 ** (-torch.arange(3).double() / 3)
    places = torch.arange(TEXTS.shape[1]).double()
    turn = torch.polar(torch.ones(len(places), 3).double(), places[:, None] * speed)
    q = torch.complex(query[..., :3], query[..., 3:]) * turn
    k = torch.complex(key[..., :3], key[..., 3:]) * turn
    scores = (q @ k.conj().transpose(1, 2)).real / math.sqrt(6)
    later = torch.ones(len(places), len(places)).triu(1).bool()
    expected = scores.masked_fill(later, -math.inf).softmax(-1)
    with watch(gpt) as seen:
        gpt.states(TEXTS)
    torch.testing.assert_close(seen["layers.0.self_attention"][0][:, 0], expected)


def test_begin_is_read_as_the_boundary() -> None:
    gpt = gpt_of()
    texts = TEXTS.masked_fill(TEXTS == END, BEGIN)
    torch.testing.assert_close(gpt.states(texts), gpt.states(TEXTS))
    one, _ = gpt.step(texts[:, 0], gpt.start(texts[:, :1]))
    other, _ = gpt.step(TEXTS[:, 0], gpt.start(TEXTS[:, :1]))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_longest_text_is_read_and_one_longer_is_refused(positions: str) -> None:
    gpt = gpt_of(positions=positions)
    text = torch.arange(4, 17).unsqueeze(0)
    assert gpt.states(text[:, :12]).shape == (1, 12, 16)
    with pytest.raises(ValueError, match=r"13 tokens .* 12"):
        gpt.states(text)
    state = gpt.start(text[:, :12])
    _, state = gpt.step(text[:, 11], state)
    with pytest.raises(ValueError, match=r"13 tokens .* 12"):
        gpt.step(text[:, 12], state)
    with pytest.raises(ValueError, match="at least 1"):
        gpt.start(text[:, :0])


def test_maps_of_every_head_are_seen_and_are_causal() -> None:
    gpt = gpt_of()
    bare = gpt.states(TEXTS)
    with watch(gpt, gpt.attention_axes()) as seen:
        watched = gpt.states(TEXTS)
    torch.testing.assert_close(watched, bare)
    assert list(seen) == ["layers.0.self_attention", "layers.1.self_attention"]
    for (weights,) in seen.values():
        assert weights.shape == (2, 2, 7, 7)
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 7).double())


def test_fresh_weights_are_gpt_2s() -> None:
    torch.manual_seed(0)
    gpt = Gpt(GptSettings(size="tiny"), 300)
    assert not gpt.embedding.weight[PAD].any()
    assert gpt.embedding.weight.std().item() == pytest.approx(0.02, rel=0.03)
    layer = gpt.layers[2]
    assert layer.feed_forward.expand.weight.std().item() == pytest.approx(0.02, rel=0.03)
    for last in (layer.feed_forward.contract, layer.self_attention.output_projection):
        assert last.weight.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
        assert not last.bias.any()
    text = torch.arange(4, 104).unsqueeze(0)
    loss = nn.functional.cross_entropy(gpt.eval().logits(gpt.states(text))[0, :-1], text[0, 1:])
    assert loss.item() == pytest.approx(math.log(300), rel=0.03)


def test_depths_and_the_output_bias_are_kept() -> None:
    gpt = gpt_of(tied_embeddings=False, output_bias=True)
    depths = {name: gpt.depth(name) for name, _ in gpt.named_parameters()}
    assert depths["embeddings.positions.table.weight"] == 0
    assert depths["layers.1.self_attention.key_projection.bias"] == 2
    assert depths["norm.weight"] == depths["output.weight"] == 3
    assert "bias" in gpt.state_dict()
    assert "bias" not in depths
    assert "bias" not in gpt_of().state_dict()


# Attention only (Elhage et al. 2021)


def attention_only_by_heads(gpt: Gpt, tokens: Tensor) -> Tensor:
    """``W_U N(x_n)`` with ``x_l = x_{l−1} + Σ_h A^h N(x_{l−1}) W_V^h W_O^h``, head by head."""
    own, heads = gpt.settings, gpt.settings.heads
    width = own.hidden_size // heads
    places = gpt.embeddings.positions.table.weight[: tokens.shape[1]]
    x = gpt.embedding.weight[tokens] + places
    later = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    for layer in gpt.layers:
        normed, part = layer.around_self.norm(x), layer.self_attention
        for head in range(heads):
            rows = slice(head * width, (head + 1) * width)
            q, k, v = (
                normed @ one.weight[rows].T + one.bias[rows]
                for one in (part.query_projection, part.key_projection, part.value_projection)
            )
            scores = (q @ k.mT / math.sqrt(width)).masked_fill(later, -math.inf)
            x = x + scores.softmax(-1) @ v @ part.output_projection.weight[:, rows].T
        x = x + part.output_projection.bias
    return gpt.norm(x) @ gpt.output_table.T


def test_layers_without_feed_forward_are_the_papers_equation() -> None:
    gpt = gpt_of(ffn_size=0, tied_embeddings=False)
    assert not [name for name, _ in gpt.named_parameters() if "feed_forward" in name]
    expected = attention_only_by_heads(gpt, TEXTS)
    found = gpt.logits(gpt.states(TEXTS))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    parameters = list(gpt.parameters())
    mine = torch.autograd.grad(found.square().sum(), parameters)
    theirs = torch.autograd.grad(expected.square().sum(), parameters)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize(
    "given", [{"ffn_size": 0}, {"ffn_size": 0, "layers": 0, "positions": "none"}]
)
def test_steps_without_feed_forward_or_layers_are_those_of_the_text(
    given: dict[str, object],
) -> None:
    from heedful.inference.fusing.gpt import FusedGpt

    gpt = gpt_of(**given)
    whole = gpt.logits(gpt.states(TEXTS))
    for model in (gpt, FusedGpt(gpt)):
        state = model.start(TEXTS[:, :3])
        for place in range(2, TEXTS.shape[1]):
            logits, state = model.step(TEXTS[:, place], state)
            torch.testing.assert_close(logits, whole[:, place], atol=1e-10, rtol=1e-10)
            state = state.select(torch.arange(2))


def test_without_layers_the_next_token_depends_on_the_last_one_only() -> None:
    gpt = gpt_of(layers=0, positions="none", tied_embeddings=False)
    expected = gpt.norm(gpt.embedding.weight[TEXTS]) @ gpt.output.weight.T
    torch.testing.assert_close(gpt.logits(gpt.states(TEXTS)), expected, atol=1e-12, rtol=1e-12)
    with pytest.raises(ValidationError, match="positions = 'none'"):
        GptSettings(layers=0, hidden_size=8, heads=2)
    with pytest.raises(ValidationError, match="leave out gated"):
        GptSettings(layers=1, hidden_size=8, heads=2, ffn_size=0, gated=True)
