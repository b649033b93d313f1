"""Scores, normalizers and heads in recurrent decoders: [model.attention] of kind "recurrent"."""

from typing import Any

import pytest
import torch
from torch import Tensor

from covering import pairwise
from heedful.attention import Attention, MultiHeadAttention, watch
from heedful.attention.normalizers import Entmax15, LocalPredictive, SampledHard, Softmax
from heedful.attention.scores import Additive, Cosine, General
from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.inference.fusing import searched
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.runs.recipe import check_recipe, with_overrides
from stepping import assert_steps_are_teacher_forcing
from tolerance import assert_rounded, reference

SIZES = {"embedding_size": 6, "hidden_size": 8, "dropout": 0.0, "max_length": 16}
FACTORS: dict[str, list[Any]] = {
    "name": ["bahdanau", "luong-general"],
    "score": [
        "scaled-dot", "dot", "general", {"name": "additive", "hidden_size": 3}, "concat",
        {"name": "cosine", "learned": True}, "gaussian", {"name": "location", "positions": 16},
        {"name": "soft-capped", "score": "general"}, "exp-dot", "coverage",
        {"name": "coverage", "largest_fertility": 2.0}, {"name": "location-aware", "width": 3},
    ],
    "normalizer": [
        {"name": "softmax", "temperature": 0.5}, "softmax-off-by-one", "sink-softmax", "smoothed",
        "sparsemax", "entmax15", "entmax", "plain-sum", {"name": "local-predictive", "window": 2},
        "monotonic", {"name": "local-monotonic", "window": 4}, {"name": "windowed", "window": 2},
    ],
    "heads": [
        {}, {"heads": 2}, {"heads": 4, "key_value_heads": 2, "gate": "head"},
        {"heads": 2, "join": "mean", "query_key_norm": "rms"},
        {"heads": 2, "mixing": "talking-heads"},
    ],
    "model": [
        {"bidirectional": False}, {"bidirectional": False, "cell": "lstm", "decoder_layers": 2},
    ],
}  # fmt: skip


def tables() -> list[dict[str, Any]]:
    """Models; the widths of queries and keys are equal, so that all scores can compare them."""
    rows = []
    for row in pairwise(FACTORS):
        model = row.pop("model")
        row |= row.pop("heads")
        if row["normalizer"] == "plain-sum" or row["score"] == "exp-dot":
            row |= {"normalizer": "plain-sum", "score": "exp-dot"}
        if "location" in str(row["score"]) and "query_key_norm" in row:
            del row["query_key_norm"]
        if any(
            name in str(row) for name in ("coverage", "location-aware", "monotonic", "windowed")
        ):
            row = {key: row[key] for key in ("name", "score", "normalizer")}
        rows.append({**SIZES, **model, "attention": row})
    return rows


def model_of(table: dict[str, Any]) -> RecurrentEncoderDecoder:
    torch.manual_seed(1)
    return RecurrentEncoderDecoder(RecurrentSettings.model_validate(table), 20, 20)


@pytest.mark.parametrize("table", tables(), ids=lambda table: str(table["attention"]))
def test_steps_are_teacher_forcing(table: dict[str, Any]) -> None:
    model = model_of(table)
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))
    model.teacher_force(source, target).square().sum().backward()
    unread = ("score.key", "key_projection") if "location" in str(table["attention"]) else ()
    for name, own in model.named_parameters():
        if "attention" in name and not name.endswith(tuple(f"{one}.weight" for one in unread)):
            if unread and "key_projection" in name:
                continue
            assert own.grad is not None, name
            assert own.grad.isfinite().all(), name
    model.eval()

    source, target = assert_steps_are_teacher_forcing(model, searched(model), source, target)

    def forced(model: RecurrentEncoderDecoder) -> list[Tensor]:
        return [model.teacher_force(source, target)]

    with torch.no_grad(), watch(model) as seen:
        watched = model.teacher_force(source, target)
    assert_rounded([watched], reference(forced, model, terms=8))
    weights = torch.cat(seen["decoder.attention"], 2)
    assert weights.shape == (4, table["attention"].get("heads", 1), 5, 6)
    assert not weights[0, :, :, 2:].any(), "padding has weight"


@pytest.mark.parametrize("name", ["bahdanau", "luong-general"])
def test_steps_read_latent_vectors(name: str) -> None:
    table = {"name": name, "score": "scaled-dot", "latent_size": 3, "heads": 2}
    test_steps_are_teacher_forcing({**SIZES, "attention": table})


def test_a_name_stands_for_its_parts() -> None:
    model = model_of({**SIZES, "attention": "bahdanau"})
    own = model.decoder.attention
    assert isinstance(own, Attention)
    assert isinstance(own.score, Additive)
    assert isinstance(own.normalize, Softmax)
    replaced = model_of({**SIZES, "attention": {"name": "luong-general", "normalizer": "entmax15"}})
    own = replaced.decoder.attention
    assert isinstance(own, Attention)
    assert isinstance(own.score, General)
    assert isinstance(own.normalize, Entmax15)


def test_parts_may_have_their_settings_in_both_places() -> None:
    old = model_of({**SIZES, "attention": "luong-local-p", "window": 3})
    table = {"name": "luong-local-p", "normalizer": {"name": "local-predictive", "window": 3}}
    new = model_of({**SIZES, "attention": table})
    for model in (old, new):
        own = model.decoder.attention
        assert isinstance(own, Attention)
        assert isinstance(own.normalize, LocalPredictive)
        assert own.normalize.window == 3
    for name, weight in old.state_dict().items():
        assert torch.equal(weight, new.state_dict()[name])


def test_overrides_reach_the_parts_of_a_name() -> None:
    tables = {
        "data": {"train": ["a.tsv"], "max_tokens": 9},
        "model": {"kind": "recurrent", **SIZES, "bidirectional": False, "attention": "bahdanau"},
    }
    changed = with_overrides(tables, ["model.attention.score=cosine", "model.attention.heads=2"])
    settings = check_recipe(changed, "the recipe").model
    assert isinstance(settings, RecurrentSettings)
    assert settings.attention.name == "bahdanau"
    heads = model_of(settings.as_tables()).decoder.attention
    assert isinstance(heads, MultiHeadAttention)
    assert isinstance(heads.score, Cosine)
    assert settings.as_tables()["attention"] == {"name": "bahdanau", "score": "cosine", "heads": 2}


def test_heads_compare_states_of_other_widths() -> None:
    """Heads project the keys, so that a dot product can read a bidirectional encoder's states."""
    table = {"name": "luong-dot", "heads": 2, "head_size": 3, "bias": "none"}
    own = model_of({**SIZES, "bidirectional": True, "attention": table}).decoder.attention
    assert isinstance(own, MultiHeadAttention)
    assert own.key_projection.weight.shape == (6, 16)
    assert own.key_projection.bias is None


def test_settings_of_runs_before_both_places_were_refused_are_read() -> None:
    table = {"name": "luong-local-p", "normalizer": "softmax"}
    given = {**SIZES, "attention": table, "window": 10}
    with pytest.raises(UserError, match=r"window has no effect beside attention.normalizer"):
        check(RecurrentSettings, given, "model")
    read = check(RecurrentSettings, given, "model", written=True)
    assert read.window is None
    assert check(RecurrentSettings, read.as_tables(), "model") == read


def test_rewards_are_known_from_the_normalizer() -> None:
    table = {"name": "luong-general", "normalizer": {"name": "sampled-hard", "expected": 0.25}}
    settings = RecurrentSettings.model_validate({**SIZES, "attention": table})
    assert settings.learns_by_reward
    own = model_of({**SIZES, "attention": table}).decoder.attention
    assert isinstance(own.normalize, SampledHard)
    assert own.normalize.expected == 0.25
    assert not RecurrentSettings.model_validate(SIZES).learns_by_reward


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({"mask": "window"}, "this attention has no mask"),
        ({"name": "none", "score": "dot"}, "without attention, score has no meaning"),
        ({"normalizer": "hard"}, "'hard' passes no gradient"),
        ({"normalizer": "hard", "heads": 2}, "'hard' passes no gradient"),
        ({"score": "coverage", "normalizer": "plain-sum"}, "choose the score exp-dot"),
        (
            {"score": {"name": "location", "positions": 16}, "query_key_norm": "rms"},
            "does not read the keys",
        ),
        ({"score": "coverage", "heads": 2}, "has one head"),
        ({"normalizer": "windowed", "heads": 2}, "has one head"),
        ({"score": "cosine"}, "queries have 8 components and keys 16"),
        ({"score": "exp-dot"}, "choose the normalizer plain-sum"),
        ({"score": {"name": "location", "positions": 3}}, "set positions of the score to 16"),
        ({"heads": 3}, "is not a multiple of heads 3"),
        ({"latent_size": 3}, "has the score scaled-dot only"),
        ({"heads": 2, "rotary_size": 4}, "this attention has no rotary_size"),
        ({"head_size": 4}, "head_size is a setting of projected heads"),
        ({"bias": "none"}, "bias is a setting of projected heads"),
        ({"name": "luong"}, "Input should be 'none', 'bahdanau'"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused(attention: dict[str, Any], message: str) -> None:
    model = {"kind": "recurrent", **SIZES, "attention": attention}
    recipe = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "model": model}
    with pytest.raises(UserError) as refused:
        check_recipe(recipe, "the recipe")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
