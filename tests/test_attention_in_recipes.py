"""The table [model.attention]: every part in every model, in combinations that cover all pairs.

`make combinations` tests all combinations (test_attention_combinations.py).
"""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from attention_checks import check_bert, check_gpt, check_transformer
from attention_tables import SIZES, WINDOW, named, tables
from heedful.attention import MultiHeadAttention, masks
from heedful.attention.positions import ALiBi, Rotary
from heedful.attention.scores import Additive, Cosine, ScaledDot
from heedful.basics.errors import UserError
from heedful.inference.fusing import searched
from heedful.interop.layouts.bert import BERT
from heedful.interop.layouts.encoder import EncoderShape
from heedful.interop.layouts.encoder_decoder import refuse_parts
from heedful.interop.layouts.gpt import config_of as gpt_config
from heedful.models.bert import BertSettings
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.attention_summary import attention_lines, summarise_attention
from heedful.runs.recipe import check_recipe
from stepping import assert_steps_are_teacher_forcing

COVERING = pytest.mark.parametrize("attention", tables(), ids=named)


@COVERING
def test_steps_of_a_transformer_are_teacher_forcing(attention: dict[str, Any]) -> None:
    check_transformer(attention)


@COVERING
def test_steps_of_a_gpt_are_its_states(attention: dict[str, Any]) -> None:
    check_gpt(attention)


@COVERING
def test_states_of_a_bert_ignore_padding(attention: dict[str, Any]) -> None:
    check_bert(attention)


TOP = {"name": "top-blocks", "size": 2, "count": 2}


@pytest.mark.parametrize(
    "attention",
    [
        {"mask": TOP},
        {"mask": TOP, "positions": "rotary", "heads": 4, "key_value_heads": 2},
        {"mask": TOP, "score": "general", "positions": "alibi", "gate": "head"},
        {"mask": {**TOP, "count": 1}, "mixing": "differential", "normalizer": "entmax15"},
    ],
    ids=named,
)
def test_steps_select_the_same_blocks(attention: dict[str, Any]) -> None:
    attention = {"heads": 2, "mixing": "none", **attention}
    check_gpt(attention | {"score": attention.get("score", "dot")})
    torch.manual_seed(1)
    table = {**SIZES, "heads": 2, "attention": {"decoder": attention}}
    model = Transformer(TransformerSettings.model_validate(table), 20, 20).eval()
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 7))
    assert_steps_are_teacher_forcing(model, searched(model), source, target)


LATENT = [
    {"latent_size": 3},
    {"latent_size": 24, "positions": "rotary", "rotary_size": 6, "gate": "element"},
    {"latent_size": 5, "positions": "rotary", "heads": 4, "mask": WINDOW, "normalizer": "entmax15"},
]


@pytest.mark.parametrize("attention", LATENT, ids=named)
def test_latent_vectors_in_all_models(attention: dict[str, Any]) -> None:
    attention = {"heads": 2, "score": "scaled-dot", "mixing": "none", **attention}
    check_transformer(attention)
    check_gpt(attention)
    check_bert(attention)


def attentions(model: nn.Module) -> dict[str, MultiHeadAttention]:
    found = model.named_modules()
    return {name: part for name, part in found if isinstance(part, MultiHeadAttention)}


def test_parts_and_layers_inherit_and_override() -> None:
    settings = TransformerSettings.model_validate(
        {
            **SIZES,
            "layers": 4,
            "heads": 2,
            "attention_dropout": 0.25,
            "positions": "rotary",
            "attention": {
                "score": "cosine",
                "mask": {"name": "window", "before": 3},
                "layers": [{"every": 2, "mask": "none"}],
                "encoder": {"positions": "alibi", "layers": [{"numbers": [4], "heads": 1}]},
                "cross": {"score": "scaled-dot", "dropout": 0.0},
            },
        }
    )
    found = attentions(Transformer(settings, 20, 20))
    kinds = {name: (part.score, part.positions, part.mask) for name, part in found.items()}
    assert [isinstance(kinds[f"encoder.{n}.self_attention"][0], Cosine) for n in range(4)] == [
        True
    ] * 4
    assert isinstance(kinds["decoder.0.cross_attention"][0], ScaledDot)
    assert isinstance(kinds["encoder.0.self_attention"][1], ALiBi)
    assert isinstance(kinds["decoder.0.self_attention"][1], Rotary)
    assert kinds["decoder.0.cross_attention"][1:] == (None, None)
    for side in ("encoder", "decoder"):
        windows = [kinds[f"{side}.{n}.self_attention"][2] is not None for n in range(4)]
        assert windows == [True, False, True, False]
    heads = [found[f"encoder.{n}.self_attention"].heads for n in range(4)]
    assert heads == [2, 2, 2, 1]
    assert found["encoder.3.self_attention"].dropout == 0.25
    assert found["decoder.3.cross_attention"].dropout == 0.0


def test_positions_of_the_attention_replace_those_of_the_embeddings() -> None:
    rotary = GptSettings.model_validate({**SIZES, "heads": 2, "attention": {"positions": "rotary"}})
    assert rotary.positions.name == "none"
    both = GptSettings.model_validate(
        {**SIZES, "heads": 2, "positions": "learned", "attention": {"positions": "alibi"}}
    )
    assert both.positions.name == "learned"
    gpt = Gpt(both, 20)
    assert "embeddings.positions.table.weight" in dict(gpt.named_parameters())
    assert isinstance(attentions(gpt)["layers.0.self_attention"].positions, ALiBi)


def test_a_window_limits_what_a_token_reads() -> None:
    torch.manual_seed(0)
    table = {"mask": {"name": "window", "before": 1, "after": 0}}
    gpt = Gpt(GptSettings.model_validate({**SIZES, "heads": 2, "attention": table}), 20).eval()
    tokens = torch.randint(4, 20, (1, 6))
    changed = tokens.clone()
    changed[0, 1] = (changed[0, 1] - 3) % 16 + 4
    with torch.no_grad():
        same = (gpt.states(tokens) == gpt.states(changed)).all(-1)[0]
    assert same.tolist() == [True, False, False, True, True, True]


def test_a_module_has_a_mask_of_its_own() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    own = MultiHeadAttention(8, 2, mask=masks.window(1, 0))
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(own.state_dict())
    lengths = masks.padding(torch.tensor([5, 3]))
    window = masks.window(1, 0)
    allowed = lengths.dense((2, 1, 1, 5))
    added = torch.zeros(2, 1, 1, 5).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(own(x, x), plain(x, x, mask=window))
    for mask in (lengths, allowed, added):
        torch.testing.assert_close(own(x, x, mask=mask), plain(x, x, mask=window & lengths))


LOCATION = {"name": "location", "positions": 9}
CAPPED = {"name": "soft-capped"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"score": {"name": "additive", "units": 3}}, "unknown key 'units'"),
    ({"score": {"name": "additive", "hidden_size": 0}}, "'hidden_size' = 0"),
    ({"score": {"hidden_size": 2}}, "a score is a name, or a table with a name"),
    ({"mask": "windw"}, "did you mean 'window'?"),
    ({"score": "exp-dot"}, "choose the normalizer plain-sum"),
    ({"normalizer": "plain-sum"}, "choose the score exp-dot"),
    ({"score": LOCATION}, "set positions of the score to 16"),
    ({"score": {**LOCATION, "positions": 16}, "positions": "rotary"}, "does not read the keys"),
    ({"score": "coverage"}, "it is only for recurrent decoders"),
    ({"normalizer": "monotonic"}, "it is only for recurrent decoders"),
    ({"normalizer": "windowed"}, "it is only for recurrent decoders"),
    ({"score": {**CAPPED, "score": LOCATION}}, "set positions of the score to 16"),
    (
        {"score": {**CAPPED, "score": {**LOCATION, "positions": 16}}, "query_key_norm": "rms"},
        "does not read the keys",
    ),
    ({"score": {**CAPPED, "score": "coverage"}}, "reads the weights of earlier steps: cap another"),
    ({"score": {**CAPPED, "score": "exp-dot"}}, "an exponential already: cap the score dot"),
    ({"score": CAPPED, "query_key_norm": "l2"}, "use it with score=Dot()"),
    ({"positions": "learned"}, "set model.positions = 'learned' instead"),
    ({"cross": {"mask": "window"}}, "attention.cross has no mask"),
    ({"cross": {"latent_size": 4, "rotary_size": 2}}, "attention.cross has no rotary_size"),
    (
        {"positions": {"name": "rotary", "base": 1.0, "scaling": "yarn"}},
        "base must be above 1 with the scaling YaRN, not 1",
    ),
    ({"query_key_norm": "l2"}, "use it with score=Dot()"),
    ({"mixing": "differential", "heads": 16}, "hidden_size 16 is not a multiple of heads 32"),
    ({"mixing": "differential", "join": "concatenation"}, "by a projection only"),
    ({"join": "mean"}, "cannot be added to the states"),
    ({"heads": 3}, "hidden_size 16 is not a multiple of heads 3"),
    ({"key_value_heads": 3}, "heads 2 is not a multiple of key_heads 3"),
    ({"layers": [{"score": "dot"}]}, "give either every or numbers"),
    ({"layers": [{"numbers": [2], "score": "dot"}]}, "there is no layer 2"),
    ({"normalizer": {"name": "entmax", "alpha": 1.0}}, "must begin above 1"),
    ({"layers": [{"every": 1, "normalizer": "hard"}]}, "'hard' passes no gradient"),
    ({"latent_size": 4, "key_value_heads": 1}, "has no key_value_heads"),
    ({"latent_size": 4, "mixing": "talking-heads"}, "has no mixing"),
    ({"latent_size": 4, "score": "dot"}, "has the score scaled-dot only"),
    ({"latent_size": 4, "positions": "alibi"}, "rotary positions or none, not 'alibi'"),
    ({"latent_size": 4, "rotary_size": 4}, "set positions = 'rotary'"),
    ({"rotary_size": 4}, "set latent_size, too"),
    ({"latent_size": 4, "rotary_size": 3}, "should be a multiple of 2"),
    ({"mask": "top-blocks"}, "it is for attention that is causal"),
    ({"decoder": {"mask": "top-blocks", "score": "gaussian"}}, "choose the score scaled-dot"),
]


@pytest.mark.parametrize(("attention", "message"), REFUSED, ids=str)
def test_what_has_no_meaning_is_refused(attention: dict[str, Any], message: str) -> None:
    model = {**SIZES, "heads": 2, "attention": attention}
    recipe = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "model": model}
    with pytest.raises(UserError) as refused:
        check_recipe(recipe, "the recipe")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "table",
    [
        {"score": "general"},
        {"normalizer": {"name": "softmax", "temperature": 2.0}},
        {"mask": "window"},
        {"key_value_heads": 1},
        {"join": "concatenation"},
        {"layers": [{"every": 1, "heads": 4}]},
        {"layers": [{"every": 1, "positions": "alibi"}]},
        {"dropout": 0.5},
        {"query_key_norm": "rms"},
        {"mixing": "differential"},
        {"gate": "head"},
        {"latent_size": 4},
    ],
    ids=str,
)
def test_exports_refuse_other_attention(table: dict[str, Any]) -> None:
    given = {**SIZES, "heads": 2, "attention": table}
    shape = EncoderShape({}, pooler=True)
    with pytest.raises(UserError, match=r"model\.attention\.\w+ = .*: exports support"):
        refuse_parts(TransformerSettings.model_validate(given))
    with pytest.raises(UserError, match=r"model\.attention\.\w+ = .*: exports support"):
        gpt_config(GptSettings.model_validate(given))
    with pytest.raises(UserError, match=r"model\.attention\.\w+ = .*: exports support"):
        BERT.config_of(BertSettings.model_validate(given), shape, range(40))


def test_tables_are_written_as_they_are_read() -> None:
    given = {
        "score": {"name": "additive", "hidden_size": 3},
        "normalizer": "sparsemax",
        "layers": [{"every": 2, "mask": {"name": "block", "size": 4}}],
    }
    settings = GptSettings.model_validate({**SIZES, "layers": 2, "heads": 2, "attention": given})
    table = settings.as_tables()["attention"]
    assert table == given
    assert GptSettings.model_validate(settings.as_tables()) == settings
    assert settings.model_dump(mode="json")["attention"]["score"] == given["score"]


def test_additive_scores_have_the_given_units() -> None:
    table = {"score": {"name": "additive", "hidden_size": 3}}
    gpt = Gpt(GptSettings.model_validate({**SIZES, "heads": 2, "attention": table}), 20)
    score = attentions(gpt)["layers.0.self_attention"].score
    assert isinstance(score, Additive)
    assert score.v.shape == (3,)
    with pytest.raises(ValidationError, match="frozen"):
        GptSettings.model_validate(SIZES | {"heads": 2}).attention.heads = 2


def test_capped_scores_compare_vectors_of_the_width_of_the_score_in_them() -> None:
    capped = {**CAPPED, "score": {"name": "additive", "hidden_size": 5}}
    table = {"positions": "shaw", "heads": 2, "attention": {"score": capped}}
    gpt = Gpt(GptSettings.model_validate({**SIZES, **table}), 20)
    assert gpt.states(torch.randint(4, 20, (2, 6))).shape == (2, 6, 16)


def test_heads_of_a_given_width_need_not_divide_the_states() -> None:
    table = {**SIZES, "heads": 5, "attention": {"head_size": 4}}
    gpt, bert = Gpt(GptSettings.model_validate(table), 20), BertSettings.model_validate(table)
    assert attentions(gpt)["layers.0.self_attention"].query_projection.out_features == 20
    assert bert.attention_of_layers()[0].head_size == 4
    parts = {part: {"head_size": 4} for part in ("encoder", "decoder", "cross")}
    TransformerSettings.model_validate({**table, "attention": parts})
    with pytest.raises(ValidationError, match="hidden_size 16 is not a multiple of heads 5"):
        TransformerSettings.model_validate({**table, "attention": {"encoder": {"head_size": 4}}})


@pytest.mark.parametrize("kind", [BertSettings, GptSettings])
def test_positions_that_do_not_fit_the_embeddings_are_refused(kind: type[GptSettings]) -> None:
    table = {**SIZES, "hidden_size": 7, "heads": 1, "positions": "sinusoidal"}
    with pytest.raises(ValidationError, match="sinusoidal positions need an even width, not 7"):
        kind.model_validate(table)


def test_the_documented_table_is_that_of_the_code() -> None:
    script = Path(__file__).parents[1] / "docs" / "scripts" / "attention_recipes.py"
    own = runpy.run_path(str(script))
    page = own["PAGE"].read_text(encoding="utf-8")
    table = page.partition(own["BEGIN"])[2].partition(own["END"])[0].strip()
    assert table == own["table"](), "run docs/scripts/attention_recipes.py"


def test_the_summary_names_parts_and_computation() -> None:
    table = {"score": "additive", "key_value_heads": 1, "cross": {"score": "gaussian"}}
    settings = TransformerSettings.model_validate(
        {**SIZES, "layers": 2, "heads": 2, "attention": table}
    )
    kinds = summarise_attention(Transformer(settings, 20, 20))
    assert [(kind["score"], kind["computed"], len(kind["modules"])) for kind in kinds] == [
        ("Additive", "tiles", 4),
        ("Gaussian", "plain", 2),
    ]
    assert attention_lines(kinds)[0] == (
        "attention",
        "Additive + Softmax, 2 heads, 1 of keys and values: tiled kernel (4 modules)",
    )
    coverage = {"hidden_size": 8, "embedding_size": 8, "attention": {"score": "coverage"}}
    recurrent = RecurrentEncoderDecoder(RecurrentSettings.model_validate(coverage), 20, 20)
    (kind,) = summarise_attention(recurrent)
    assert attention_lines([kind]) == [
        ("attention", "Coverage + Softmax, 1 head: plain implementation (decoder.attention)")
    ]
