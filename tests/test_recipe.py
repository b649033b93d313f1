"""Recipes: what is refused is refused with the key and the nearest right one."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from heedful.basics.errors import UserError
from heedful.basics.settings import current_name
from heedful.runs.recipe import (
    check_recipe,
    read_recipe,
    with_overrides,
    with_setting,
    write_toml,
)

MINIMAL = {"data": {"train": "pairs.tsv"}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learnnig_rte=0.1", "did you mean 'learning_rate'"),
        ("model.dropuot=0.1", "unknown key 'model.dropuot'; did you mean 'dropout'"),
        ("trainin.max_steps=3", "did you mean 'training'"),
        ('training.max_steps="many"', "'training.max_steps' = 'many'"),
        ("training.max_steps=0", "'training.max_steps' = 0"),
        ("model.heads=3", "not a multiple of heads"),
        ("model.kind=lstm", "model"),
        ("tokeniser.joint=false", "model.tied_embeddings = 'all' needs tokeniser.joint"),
        ("training.average_checkpoints=9", "raise keep_last"),
        ("data.max_tokens=600", "must be less than model.max_length"),
        ("training.betas=0.9", "'training.betas' = 0.9: give two numbers"),
        ("training.betas=[0.9, 1]", "such as [0.9, 0.98]"),
        ("training.betas=[true, 0.9]", "give two numbers"),
    ],
)
def test_a_wrong_setting_is_named(override: str, message: str) -> None:
    with pytest.raises(UserError, match="the recipe") as caught:
        check_recipe(with_overrides(MINIMAL, [override]), "the recipe")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shares_leave_something_to_train_on() -> None:
    shares = ["data.validation_share=0.5", "data.test_share=0.5"]
    with pytest.raises(UserError, match=r"'data': validation_share .* leave nothing"):
        check_recipe(with_overrides(MINIMAL, shares), "the recipe")
    # Files named take the place of a share.
    check_recipe(with_overrides(MINIMAL, [*shares, "data.test=test.tsv"]), "the recipe")


@pytest.mark.parametrize(
    ("attention", "recorded"), [("none", False), ("bahdanau", False), ("luong-general", True)]
)
def test_input_feeding_is_recorded_where_it_means_something(attention: str, recorded: bool) -> None:
    overrides = ["model.kind=recurrent", f"model.attention={attention}"]
    recipe = check_recipe(with_overrides(MINIMAL, overrides), "the recipe")
    assert recipe.model.as_tables().get("input_feeding", False) == recorded
    assert check_recipe(tomllib.loads(write_toml(recipe)), "it") == recipe


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match=r"data.*is missing"):
        check_recipe({}, "the recipe")


def test_a_recipe_written_is_read_back_the_same(tmp_path: Path) -> None:
    overrides = ["model.kind=recurrent", "training.betas=[0.8, 0.9]", "data.source=en"]
    recipe = check_recipe(with_overrides(MINIMAL, overrides), "the recipe")
    path = tmp_path / "recipe.toml"
    path.write_text(write_toml(recipe), encoding="utf-8")
    assert check_recipe(read_recipe(path), "it") == recipe
    assert recipe.data.source == "en"
    assert recipe.model.kind == "recurrent"


def test_off_turns_off_what_is_on_unless_said(tmp_path: Path) -> None:
    overrides = ["training.clip_norm=off", "data.filters.max_ratio=off"]
    recipe = check_recipe(with_overrides(MINIMAL, overrides), "the recipe")
    assert recipe.training.clip_norm is None
    assert recipe.data.filters.max_ratio is None
    path = tmp_path / "recipe.toml"
    path.write_text(write_toml(recipe), encoding="utf-8")
    assert check_recipe(read_recipe(path), "it") == recipe


def test_a_size_that_would_change_nothing_is_refused() -> None:
    written = {**MINIMAL, "model": check_recipe(MINIMAL, "it").model.as_tables()}
    with pytest.raises(UserError, match="contradict each other"):
        check_recipe(with_overrides(written, ["model.size=big"]), "the recipe")
    some = check_recipe(with_overrides(MINIMAL, ["model.size=tiny", "model.layers=2"]), "it")
    assert (some.model.size, some.model.layers, some.model.hidden_size) == (None, 2, 128)


def test_an_override_needs_a_value_and_a_table() -> None:
    with pytest.raises(UserError, match="expected key=value"):
        with_overrides(MINIMAL, ["seed"])
    with pytest.raises(UserError, match="is not a table"):
        with_overrides({"seed": 1}, ["seed.x=1"])


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("seed = 1\nnot toml\n")
    with pytest.raises(UserError, match=r"recipe.toml: not a TOML file: .*line 2"):
        read_recipe(path)
    with pytest.raises(UserError, match="no recipe at"):
        read_recipe(tmp_path / "absent.toml")


def test_every_recipe_that_ships_is_right() -> None:
    folder = Path(__file__).parents[1] / "src" / "heedful" / "recipes"
    found = sorted(folder.glob("*.toml"))
    assert found
    for path in found:
        check_recipe(read_recipe(path), str(path))


def test_a_recipe_is_put_over_its_base(tmp_path: Path) -> None:
    (tmp_path / "low.toml").write_text(
        'seed = 3\n[data]\ntrain = "p.tsv"\n'
        '[model]\nkind = "recurrent"\ncell = "lstm"\nhidden_size = 8\n'
    )
    (tmp_path / "middle.toml").write_text('base = "low.toml"\n[model]\nhidden_size = 16\n')
    (tmp_path / "high.toml").write_text('base = "middle.toml"\nseed = 4\n[model]\ndropout = 0.3\n')
    assert read_recipe(tmp_path / "high.toml") == {
        "seed": 4,
        "data": {"train": "p.tsv"},
        "model": {"kind": "recurrent", "cell": "lstm", "hidden_size": 16, "dropout": 0.3},
    }
    (tmp_path / "other.toml").write_text('base = "low.toml"\n[model]\nkind = "transformer"\n')
    assert read_recipe(tmp_path / "other.toml")["model"] == {"kind": "transformer"}
    (tmp_path / "named.toml").write_text('base = "multi30k-transformer-tiny"\nseed = 9\n')
    assert check_recipe(read_recipe(tmp_path / "named.toml"), "it").seed == 9


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ('"a.toml"', "leads back to it"),
        ('"absent.toml"', "no recipe at"),
        ('"no-such-recipe"', "no recipe 'no-such-recipe'"),
        ("3", "base = 3: expected a recipe's name or path"),
    ],
)
def test_a_base_that_cannot_be_is_refused(tmp_path: Path, base: str, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f"base = {base}\n")
    with pytest.raises(UserError) as caught:
        read_recipe(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_that_a_written_recipe_does_not_use_may_have_had_other_defaults() -> None:
    data = {"train": ["a.en", "a.de"]}
    tables = {"data": data, "model": {"kind": "recurrent", "attention": "bahdanau"}}
    written = check_recipe(tables, "here").as_tables()
    written["training"]["reinforce"]["weight"] = 7.0
    written["training"]["guided_alignment"]["weight"] = 7.0
    with pytest.raises(UserError, match="leave it out"):
        check_recipe(
            {**written, "training": {**written["training"], "guided_alignment": {}}}, "here"
        )
    assert check_recipe(written, "here", written=True) == check_recipe(tables, "here")
    # What it does use stays as it was written.
    written["model"] = {"kind": "recurrent", "attention": "hard-reinforce"}
    found = check_recipe(written, "here", written=True)
    assert found.training.reinforce.weight == 7.0
    written["data"]["links"] = "links.txt"
    assert check_recipe(written, "here", written=True).training.guided_alignment.weight == 7.0


@pytest.mark.parametrize(
    ("more", "old", "new"),
    [
        ({}, "model.dim", "model.hidden_size"),
        ({"model": {"kind": "recurrent"}}, "model.hidden", "model.hidden_size"),
        ({"model": {"kind": "convolutional"}}, "model.kernel", "model.kernel_size"),
        ({}, "tokeniser.vocabulary", "tokeniser.vocabulary_size"),
        ({}, "training.average", "training.average_checkpoints"),
        (
            {"task": "language-model", "model": {"kind": "recurrent-language-model"}},
            "model.tied",
            "model.tied_embeddings",
        ),
        (
            {
                "task": "classification",
                "data": {"train": ["p.tsv"], "text": "text", "label": "label"},
                "model": {"kind": "language", "language_model": {"kind": "gpt"}},
            },
            "model.language_model.dim",
            "model.language_model.hidden_size",
        ),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(more: dict[str, Any], old: str, new: str) -> None:
    tables = {"data": {"train": ["p.tsv"]}, **more}
    with pytest.raises(UserError, match=f"^here.toml: {old} is now {new}$"):
        check_recipe(with_setting(tables, old, 64, ""), "here.toml")
    with pytest.raises(UserError, match=f"^here.toml, .tune.: {old} is now {new}$"):
        check_recipe({**tables, "tune": {old: {"choices": [64]}}}, "here.toml")


def test_old_names_are_known_in_what_heedful_wrote(tmp_path: Path) -> None:
    model = {"kind": "transformer", "layers": 1, "dim": 8, "inner": 6, "heads": 2, "tied": "none"}
    tables = {
        "data": {"train": ["p.tsv"]},
        "tokeniser": {"vocabulary": 400},
        "model": model,
        "training": {"accumulate": 3},
    }
    recipe = check_recipe(tables, "here", written=True)
    assert recipe.training.accumulation_steps == 3
    names = ("hidden_size", "ffn_size", "tied_embeddings")
    assert [recipe.as_tables()["model"][name] for name in names] == [8, 6, "none"]
    assert recipe == check_recipe(recipe.as_tables(), "here")
    assert current_name(recipe, "model.dim") == "model.hidden_size"
    assert current_name(recipe, "training.accumulate") == "training.accumulation_steps"
    assert current_name(recipe, "seed") == "seed"
    path = tmp_path / "recipe.toml"
    path.write_text(tomlkit.dumps(tables))
    assert read_recipe(path)["model"] == model
    (tmp_path / "run.json").write_text("{}")
    assert check_recipe(read_recipe(path), "here") == recipe
