"""replace_attention: models of PyTorch and of transformers with this library's attention."""

import copy
import io
import warnings
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from heedful import replace_attention, watch
from heedful.attention import MultiHeadAttention, masks, normalizers, positions, scores
from heedful.interop.attention_adapters import (
    AttentionAdapter,
    ReplacedParts,
    register_attention_adapter,
    unregister_attention_adapter,
)
from interop_help import randomise

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 39,
}
IMAGES = {"image_size": 8, "patch_size": 4}
GPT = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 39}
SMALL = {key: value for key, value in SIZES.items() if key != "vocab_size"}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 4, "num_layers": 2, "num_heads": 4, "d_ff": 20}
MODELS: dict[str, tuple[Any, Any]] = {
    "bert": (transformers.BertModel, transformers.BertConfig(**SIZES)),
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT)),
    "gpt2, scaled by layer": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(**GPT, scale_attn_by_inverse_layer_idx=True),
    ),
    "vit": (transformers.ViTModel, transformers.ViTConfig(**SMALL, **IMAGES)),
    "llama, grouped heads": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(**SIZES, num_key_value_heads=2),
    ),
    "mistral, window": (
        transformers.MistralForCausalLM,
        transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=3),
    ),
    "t5": (
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(**T5, decoder_start_token_id=0),
    ),
}
TOKENS = torch.tensor([[5, 9, 12, 7, 30, 2], [0, 0, 8, 31, 4, 17]])
ATTENDED = (TOKENS != 0).long()


def made(name: str) -> Any:
    torch.manual_seed(0)
    kind, config = MODELS[name]
    return randomise(kind(copy.deepcopy(config))).double().eval()


def states(name: str, model: Any) -> Tensor:
    """The states or logits at places that are no padding."""
    if name == "vit":
        pixels = torch.linspace(-1, 1, 2 * 3 * 64, dtype=torch.float64).view(2, 3, 8, 8)
        found: Tensor = model(pixels)[0]
        return found
    given = {"decoder_input_ids": TOKENS.flip(1)} if name == "t5" else {}
    found = model(input_ids=TOKENS, attention_mask=ATTENDED, **given)[0]
    return found if name == "t5" else found[ATTENDED.bool()]


@pytest.mark.parametrize("name", MODELS)
def test_results_gradients_and_weights_are_equal(name: str) -> None:
    theirs = made(name)
    before = list(theirs.state_dict())
    ours = replace_attention(copy.deepcopy(theirs))
    assert list(ours.state_dict()) == before, "parameters keep their names"
    expected, found = states(name, theirs), states(name, ours)
    torch.testing.assert_close(found, expected)
    aim = torch.randn_like(expected)
    expected.backward(aim)
    found.backward(aim)
    gradients = {key: part.grad for key, part in theirs.named_parameters()}
    for key, part in ours.named_parameters():
        if part.grad is None or gradients[key] is None:
            assert part.grad is gradients[key], key
        else:
            torch.testing.assert_close(part.grad, gradients[key])
    theirs.set_attn_implementation("eager")
    if name in ("bert", "gpt2", "llama, grouped heads", "mistral, window"):
        weights = theirs(TOKENS[:1], output_attentions=True).attentions
        with watch(ours) as seen:
            ours(TOKENS[:1])
        for calls, one in zip(seen.values(), weights, strict=True):
            torch.testing.assert_close(calls[0], one)


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit", "t5", "llama, grouped heads"])
def test_another_normalizer_is_used_and_learns(name: str) -> None:
    plain, sparse = made(name), replace_attention(made(name), normalize=normalizers.Sparsemax())
    assert not torch.allclose(states(name, plain), states(name, sparse))
    with watch(sparse) as seen:
        states(name, sparse).sum().backward()
    assert all(calls for calls in seen.values())
    assert any((calls[0] == 0).any() for calls in seen.values())
    for calls in seen.values():
        total = calls[0].sum(-1)
        assert ((total - 1).abs().lt(1e-9) | total.eq(0)).all()
    assert all(part.grad is not None for key, part in sparse.named_parameters() if "layer.0" in key)


def test_parts_may_depend_on_the_heads() -> None:
    def additive(place: Any) -> scores.Additive:
        return scores.Additive(place.head_dim, place.head_dim, 2 * place.heads)

    model = replace_attention(made("bert"), score=additive)
    part = model.encoder.layer[1].attention.self.heedful_attention.score
    assert isinstance(part, scores.Additive)
    weights = [one for key, one in model.named_parameters() if "heedful_attention" in key]
    assert weights
    states("bert", model).sum().backward()
    assert all(one.grad is not None and one.dtype == torch.float64 for one in weights)
    first = model.encoder.layer[0].attention.self.heedful_attention.score
    assert first is not part, "each attention has its own"


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("normalize", [None, normalizers.Entmax15()], ids=["softmax", "entmax"])
def test_generation_with_caches(normalize: Any, cache: str) -> None:
    """Steps equal the whole text without a cache, and the original model's."""
    for name in ("gpt2", "llama, grouped heads"):
        model = replace_attention(made(name), normalize=normalize)
        options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": ATTENDED}
        whole = model.generate(TOKENS, use_cache=False, **options)
        kind = {"cache_implementation": "static"} if cache == "static" else {}
        assert torch.equal(model.generate(TOKENS, **kind, **options), whole)
        if normalize is None:
            assert torch.equal(made(name).generate(TOKENS, **options), whole)
    beams = {"num_beams": 3, "use_cache": True, "max_new_tokens": 5, "attention_mask": ATTENDED}
    t5, ours = made("t5"), replace_attention(made("t5"))
    assert torch.equal(t5.generate(TOKENS, **beams), ours.generate(TOKENS, **beams))


def test_only_some_attentions_are_replaced() -> None:
    theirs, name = made("gpt2"), "transformer.h.1.attn"
    ours = replace_attention(copy.deepcopy(theirs), names=[name])
    torch.testing.assert_close(states("gpt2", ours), states("gpt2", theirs))
    with watch(ours) as seen:
        states("gpt2", ours)
    assert list(seen) == [f"{name}.heedful_attention"]
    with pytest.raises(ValueError, match=r"did you mean 'transformer\.h\.1\.attn'"):
        replace_attention(ours, names=["transformer.h.1.attention"])


def test_a_replaced_model_can_be_copied_and_saved() -> None:
    model = replace_attention(made("bert"), normalize=normalizers.Entmax15())
    expected = states("bert", model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(states("bert", other), expected)


def test_parts_that_transformers_cannot_have_are_refused() -> None:
    with pytest.raises(ValueError, match="mask cannot be replaced"):
        replace_attention(made("bert"), mask=masks.window(1))
    with pytest.raises(ValueError, match="positions cannot be replaced"):
        replace_attention(made("bert"), positions=positions.Rotary(4))
    with pytest.raises(ValueError, match="needs the position of each query"):
        replace_attention(made("gpt2"), normalize=normalizers.LocalMonotonic(2))
    capped = replace_attention(
        transformers.Gemma2Model(transformers.Gemma2Config(**SIZES, head_dim=4))
    )
    with pytest.raises(ValueError, match="passes softcap"):
        capped(TOKENS)
    with pytest.raises(ValueError, match=r"has no attention .* nn\.MultiheadAttention"):
        replace_attention(nn.Linear(2, 2))


# Models of PyTorch

LAYER: dict[str, Any] = {"d_model": 8, "nhead": 2, "dim_feedforward": 10, "dtype": torch.float64}


def encoder(**more: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(**LAYER | {"batch_first": True} | more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.TransformerEncoder(layer, 2).eval()


IGNORED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


@pytest.mark.parametrize("masked", ["none", "padding", "causal", "both"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoders_are_equal(batch_first: bool, masked: str) -> None:
    theirs = encoder(batch_first=batch_first)
    ours = replace_attention(copy.deepcopy(theirs))
    options: dict[str, Any] = {}
    if masked in ("padding", "both"):
        options["src_key_padding_mask"] = IGNORED
    if masked in ("causal", "both"):
        options["mask"] = torch.ones(5, 5, dtype=torch.bool).triu(1)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    x = x if batch_first else x.transpose(0, 1)
    real = ~IGNORED if batch_first else ~IGNORED.T
    for grad in (False, True):  # Without gradients PyTorch's own fast path would be used.
        with torch.set_grad_enabled(grad), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, found = theirs(x, **options), ours(x, **options)
        torch.testing.assert_close(found[real], expected[real])
    with watch(ours) as seen, torch.no_grad():
        ours(x, **options)
    assert [calls[0].shape for calls in seen.values()] == [(2, 2, 5, 5)] * 2


def test_a_torch_transformer_is_equal() -> None:
    torch.manual_seed(0)
    options = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    theirs = nn.Transformer(**options, dim_feedforward=9, batch_first=True, dropout=0.0).double()
    ours = replace_attention(copy.deepcopy(theirs))
    source, target = torch.randn(2, 5, 8).double(), torch.randn(2, 4, 8).double()
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    given = {"tgt_mask": causal, "tgt_is_causal": True, "memory_key_padding_mask": IGNORED}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(ours(source, target, **given), theirs(source, target, **given))
    assert sum(isinstance(part, MultiHeadAttention) for part in ours.modules()) == 5


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_a_single_module_is_called_as_before(batched: bool, average: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, dtype=torch.float64)
    ours = replace_attention(copy.deepcopy(theirs))
    x = torch.randn(5, 2, 8, dtype=torch.float64) if batched else torch.randn(5, 8).double()
    ignored = IGNORED if batched else IGNORED[1]
    options = {"key_padding_mask": ignored, "average_attn_weights": average}
    for found, expected in zip(ours(x, x, x, **options), theirs(x, x, x, **options), strict=True):
        torch.testing.assert_close(found, expected)
    assert ours(x, x, x, need_weights=False)[1] is None
    with pytest.raises(ValueError, match="pass attn_mask as well"):
        ours(x, x, x, is_causal=True)


def test_torch_models_take_positions_masks_and_parts() -> None:
    model = replace_attention(
        encoder(),
        normalize=lambda place: normalizers.SinkSoftmax(place.heads),
        positions=positions.Rotary(4),
        mask=masks.window(1),
    )
    with watch(model) as seen:
        model(torch.randn(1, 5, 8).double()).sum().backward()
    weights = seen["layers.1.self_attn.attention"][0]
    assert not weights[0, 0, 0, 2:].any()
    assert (weights.sum(-1) < 1).all()
    assert all(part.grad is not None for part in model.parameters())


def test_shared_modules_stay_shared() -> None:
    one = nn.MultiheadAttention(8, 2)
    model = replace_attention(nn.ModuleList([one, one]))
    assert model[0] is model[1]
    assert model[0] is not one


def test_adapters_can_be_added() -> None:
    class Mine(nn.MultiheadAttention):
        pass

    def replace(module: nn.Module, name: str, parts: ReplacedParts) -> nn.Module:
        assert name == "0"
        return nn.Identity()

    adapter = AttentionAdapter("Mine", lambda module: isinstance(module, Mine), replace)
    register_attention_adapter(adapter)
    try:
        assert isinstance(replace_attention(nn.Sequential(Mine(8, 2)))[0], nn.Identity)
    finally:
        unregister_attention_adapter("Mine")
    assert not isinstance(replace_attention(nn.Sequential(Mine(8, 2)))[0], nn.Identity)
