"""Linear attention in recipes: which layers have it, what it refuses, its cache, its weights."""

from typing import Any

import pytest
import torch
from torch import nn

import heedful
from heedful.attention import LinearAttention, MultiHeadAttention, feature_maps, watch
from heedful.basics.errors import UserError
from heedful.inference.fusing import searched
from heedful.interop.layouts.gpt import config_of
from heedful.layers.caches import KeyValueCache, LayerCaches, StepCache, SumCache
from heedful.models.bert import Bert, BertSettings
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.attention_summary import attention_lines, summarise_attention
from heedful.runs.recipe import check_recipe

SIZES = {"layers": 4, "hidden_size": 16, "ffn_size": 8, "heads": 2, "max_length": 40, "dropout": 0}
HYBRID = {"kind": "linear", "layers": [{"every": 4, "kind": "standard", "score": "cosine"}]}


def gpt(attention: dict[str, Any], **more: Any) -> Gpt:
    torch.manual_seed(0)
    return Gpt(GptSettings.model_validate({**SIZES, **more, "attention": attention}), 20).eval()


def kinds(model: nn.Module) -> list[str]:
    known = {LinearAttention: "linear", MultiHeadAttention: "standard"}
    return [known[type(part)] for part in model.modules() if type(part) in known]


def test_layers_choose_their_kind() -> None:
    assert kinds(gpt(HYBRID)) == ["linear", "linear", "linear", "standard"]
    assert kinds(gpt({"layers": [{"every": 2, "kind": "linear"}]})) == ["standard", "linear"] * 2
    bert = Bert(BertSettings.model_validate({**SIZES, "attention": {"kind": "linear"}}), 20)
    assert kinds(bert) == ["linear"] * 4


def test_a_layer_that_is_standard_again_inherits_what_linear_layers_do_not_use() -> None:
    table = {
        **SIZES,
        "positions": "rotary",
        "attention": {
            "normalizer": "sparsemax",
            "key_value_heads": 1,
            "encoder": {"kind": "linear", "feature_map": "relu", "heads": 4},
            "layers": [{"numbers": [2], "kind": "linear"}],
        },
    }
    table["attention"]["encoder"]["layers"] = [{"numbers": [1], "kind": "standard", "heads": 2}]
    model = Transformer(TransformerSettings.model_validate(table), 20, 20)
    first, second = (model.encoder[n].self_attention for n in (0, 1))
    assert type(first.normalize).__name__ == "Sparsemax"
    assert (first.key_heads, type(first.positions).__name__) == (1, "Rotary")
    assert isinstance(second.feature_map, feature_maps.ReluFeatures)
    assert second.heads == 4
    decoders = [layer.self_attention for layer in model.decoder_layers()]
    assert [type(one) is LinearAttention for one in decoders] == [False, True, False, False]
    assert all(
        type(layer.cross_attention) is MultiHeadAttention
        and type(layer.cross_attention.normalize).__name__ == "Sparsemax"
        for layer in model.decoder_layers()
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"attention": {"kind": "linear", "score": "dot"}}, "so it has no score"),
    ({"attention": {"kind": "linear", "normalizer": "sparsemax"}}, "so it has no normalizer"),
    ({"attention": {"kind": "linear", "positions": "rotary"}}, "so it has no positions"),
    ({"attention": {"kind": "linear", "mask": "window"}}, "so it has no mask"),
    ({"attention": {"kind": "linear", "mixing": "talking-heads"}}, "so it has no mixing"),
    ({"attention": {"kind": "linear", "key_value_heads": 1}}, "so it has no key_value_heads"),
    ({"attention": {"kind": "linear", "dropout": 0.1}}, "so it has no dropout"),
    ({"attention": {"kind": "linear", "gate": "head"}}, "so it has no gate"),
    ({"attention": {"kind": "linear", "heads": 3}}, "hidden_size 16 is not a multiple of heads 3"),
    (
        {"attention": {"kind": "linear", "layers": [{"every": 2, "normalizer": "sparsemax"}]}},
        "set it for the layers with kind = 'standard'",
    ),
    ({"attention": {"feature_map": "relu"}}, "set it where kind = 'linear' or 'delta'"),
    ({"attention": {"kind": "linear", "feature_map": "rleu"}}, "did you mean 'relu'?"),
    ({"attention": {"kind": "linaer"}}, "'linaer'"),
    ({"attention": {"cross": {"kind": "linear"}}}, "attention.kind is for self-attention"),
    ({"attention": {"cross": {"feature_map": "relu"}}}, "feature_map is for self-attention"),
    ({"positions": "rotary", "attention": {"kind": "linear"}}, "no layer has it"),
    ({"kind": "recurrent", "attention": {"kind": "linear"}}, "attention.kind is for self"),
    ({"kind": "convolutional", "attention": {"kind": "linear"}}, "has one head and no kind"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=str)
def test_settings_without_a_meaning_are_refused(model: dict[str, Any], message: str) -> None:
    sizes = {"hidden_size": 16} if "kind" in model else SIZES
    recipe = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "model": {**sizes, **model}}
    with pytest.raises(UserError) as refused:
        check_recipe(recipe, "the recipe")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_values_that_change_nothing_are_accepted() -> None:
    usual = {"mask": "none", "mixing": "none", "join": "projection", "dropout": 0.0}
    assert kinds(gpt({"kind": "linear", **usual})) == ["linear"] * 4


def test_the_cache_of_a_linear_layer_does_not_grow() -> None:
    model = gpt(HYBRID)
    state = model.start(torch.randint(4, 20, (2, 5)), in_place=True)
    caches = list(state.caches)
    assert [type(one) for one in caches] == [SumCache] * 3 + [StepCache]
    sizes = [caches[0].state.S.shape]
    for _ in range(20):
        _, state = model.step(torch.tensor([7, 8]), state)
        sizes.append(next(iter(state.caches)).state.S.shape)
    assert set(sizes) == {(2, 2, 8, 8)}
    assert state.length == state.caches.position == 24
    chosen = state.select(torch.tensor([1]))
    assert next(iter(chosen.caches)).state.z.shape == (1, 2, 8)
    all_linear = LayerCaches(2, 3, in_place=True, linear=[0, 1])
    assert all_linear.position == 0
    assert isinstance(next(iter(LayerCaches(1, 3))), KeyValueCache)


def test_rows_do_not_join_a_search_with_sums() -> None:
    table = {**SIZES, "attention": {"decoder": HYBRID}}
    model = Transformer(TransformerSettings.model_validate(table), 20, 20).eval()
    with torch.no_grad():
        state = searched(model).start(Source(torch.tensor([[5, 6]]), torch.tensor([2])))
    assert not state.can_join
    assert not state.caches.can_join
    with pytest.raises(ValueError, match="rows cannot join sums of linear attention"):
        state.caches.join(state.caches)


def test_the_summary_names_linear_layers() -> None:
    assert attention_lines(summarise_attention(gpt(HYBRID))) == [
        (
            "attention",
            "Linear + EluPlusOne, 2 heads: sums in time linear in the length (3 modules)",
        ),
        ("attention", "Cosine + Softmax, 2 heads: fused kernel (layers.3.self_attention)"),
    ]


def test_weights_are_those_that_the_values_are_summed_with() -> None:
    model = gpt(HYBRID)
    tokens = torch.randint(4, 20, (1, 6))
    heads = model.layers[0].self_attention
    with torch.no_grad(), watch(model) as seen:
        model.states(tokens)
    assert set(seen) == set(model.attention_axes())
    weights = seen["layers.0.self_attention"][0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, heads.heads, 6))
    assert not weights.triu(1).any()


def test_exports_refuse_linear_layers() -> None:
    with pytest.raises(UserError, match=r"model\.attention\.kind = 'linear': exports support"):
        config_of(gpt(HYBRID).settings)


def test_plug_ins_add_feature_maps() -> None:
    class Squares(nn.Module):
        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return vectors.square()

    feature_maps.register_feature_map("squares", lambda width: Squares())
    try:
        model = gpt({"kind": "linear", "feature_map": "squares"})
    finally:
        del feature_maps.FeatureMapSettings.parts["squares"]
    assert isinstance(model.layers[0].self_attention.feature_map, Squares)


def test_a_training_resumes_exactly(tmp_path: Any) -> None:
    (tmp_path / "train.txt").write_text("the quick brown fox jumps over the lazy dog " * 40)
    recipe = {
        "task": "language-model",
        "context": 8,
        "samples": 0,
        "data": {"train": "train.txt", "validation": "train.txt", "documents": "whole"},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "gpt", **SIZES, "dropout": 0.1, "attention": HYBRID},
        "training": {
            "batch_tokens": 32, "threads": 1, "precision": "float32", "checkpoint_every": 3,
            "max_steps": 6, "schedule": "constant",
        },
    }  # fmt: skip
    short = {**recipe, "training": {**recipe["training"], "max_steps": 3}}
    heedful.train(recipe, tmp_path / "whole", data=tmp_path)
    heedful.train(short, tmp_path / "halves", data=tmp_path)
    heedful.train(recipe, tmp_path / "halves", data=tmp_path)
    whole, halves = (
        heedful.load_generator(tmp_path / name, checkpoint="last").model.state_dict()
        for name in ("whole", "halves")
    )
    assert all(torch.equal(own, halves[name]) for name, own in whole.items())
    trace = heedful.load_generator(tmp_path / "whole").trace("the ", "fox")
    assert [one.kind for one in trace.maps].count("weights") == 4
    found = heedful.load_generator(tmp_path / "whole").generate("the ", max_tokens=4)
    assert found[0].text
