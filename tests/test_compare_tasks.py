"""Every task is compared in the same way: its own figures, tests and outputs."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from sklearn.metrics import accuracy_score

from heedful.basics.errors import UserError
from heedful.runs import registry
from heedful.training import train
from test_compare import compare
from text_help import RECIPES, write_data

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "story_questions.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_data(folder)
    return folder


def report_of(folder: Path, out: Path, name: str, *arguments: object, tested: bool = True) -> Any:
    recipe = RECIPES[name]
    if tested:
        recipe = recipe | {"data": recipe["data"] | {"test": recipe["data"]["validation"]}}
    path = out.with_suffix(".toml")
    path.write_text(tomlkit.dumps(recipe))
    place = ["--data", folder, "--out", out, "--budget", 4]
    code, printed = compare(path, *arguments, *place, "--json")
    assert code == 0
    return json.loads(printed)


def test_classifiers_are_tested_text_by_text(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "classes"
    found = report_of(folder, out, "classification", "--vary", "model.layers=1,2", "--seeds", 1)
    one, two = found["variants"]
    test = json.loads((out / "layers-2" / "seed-5" / "test.json").read_text())["examples"]
    right = accuracy_score(test["references"], test["outputs"])
    assert two["test"]["accuracy"]["value"] == pytest.approx(right)
    assert two["test"]["accuracy"]["interval"] == "examples"
    assert two["test"]["accuracy"]["low"] <= right <= two["test"]["accuracy"]["high"]
    compared = {each["figure"]: each for each in two["against_baseline"]}
    assert 0 < compared["accuracy"]["randomisation_p"] <= 1
    assert compared["accuracy"]["seeds_p"] is None
    assert compared["macro_f1"]["bootstrap_p"] is None, "not a mean over texts"
    assert sum(each["count"] for each in one["by_length"]) == len(test["outputs"])
    assert found["sentences"][0]["outputs"].keys() == {"layers=1", "layers=2"}


def test_language_models_are_compared_by_perplexity(folder: Path, tmp_path: Path) -> None:
    vary = ["--vary", "model.layers=1,2", "--seeds", 2]
    found = report_of(folder, tmp_path / "texts", "gpt", *vary)
    one, two = found["variants"]
    assert one["test"]["perplexity_per_token"]["higher_is_better"] is False
    assert two["test"]["perplexity_per_token"]["interval"] == "seeds"
    assert {each["bootstrap_p"] for each in two["against_baseline"]} == {None}
    assert all(0 <= each["seeds_p"] <= 1 for each in two["against_baseline"])
    assert "perplexity" in (tmp_path / "texts" / "report.md").read_text()


@pytest.mark.parametrize("name", ["tagging", "masked", "several"])
def test_other_tasks_and_recipes_without_a_test_set(
    folder: Path, tmp_path: Path, name: str
) -> None:
    vary = ["--vary", "model.dropout=0.0,0.2", "--seeds", 1]
    found = report_of(folder, tmp_path / name, name, *vary, tested=name == "tagging")
    one, two = found["variants"]
    assert bool(one["test"]) == (name == "tagging")
    assert one["validation"]["mean" if name == "several" else "loss"]["value"] > 0
    assert one["curve"][-1]["value"] is not None
    assert (tmp_path / name / "curves.svg").exists()
    text = (tmp_path / name / "report.md").read_text()
    assert ("The recipe has no test set" in text) == (name != "tagging")
    if name == "tagging":
        assert two["against_baseline"][0]["figure"] == "accuracy"


def test_each_training_starts_from_the_same_run(folder: Path, tmp_path: Path) -> None:
    start = tmp_path / "before"
    assert train(RECIPES["masked"], start, data=folder)
    recipe = {key: table for key, table in RECIPES["tagging"].items() if key != "tokeniser"}
    path = tmp_path / "recipe.toml"
    path.write_text(tomlkit.dumps(recipe | {"model": {"dropout": 0.1}}))
    arguments = [
        *(path, "--vary", "training.learning_rate=0.01,0.02", "--seeds", 1, "--budget", 3),
        *("--data", folder, "--out", tmp_path / "out"),
    ]
    assert compare(*arguments, "--start-from", start)[0] == 0
    made = [file.parent for file in (tmp_path / "out").glob("*/*/run.json")]
    assert len(made) == 2
    for run in made:
        known = json.loads((run / "run.json").read_text())["started_from"]
        assert known["run"] == str(start)
    with pytest.raises(UserError, match="was started with"):
        compare(*arguments)


def test_tasks_of_plug_ins_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.kinds()
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))  # other tests list all tasks
    monkeypatch.setattr(registry, "_loaded", {})
    registry.load_file(PLUGIN)
    rows = [{"story": ["a went to b", "c went to d"], "question": "where is a", "answer": "b"}] * 12
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "task": "story-questions",
        "data": dict.fromkeys(("train", "validation", "test"), "rows.jsonl"),
        "training": {"max_steps": 2, "precision": "float32"},
    }
    (tmp_path / "recipe.toml").write_text(tomlkit.dumps(recipe))
    code, printed = compare(
        *(tmp_path / "recipe.toml", "--vary", "training.learning_rate=0.01,0.02", "--seeds", 1),
        *("--data", tmp_path, "--out", tmp_path / "out", "--json"),
    )
    assert code == 0
    one, two = json.loads(printed)["variants"]
    assert one["test"]["accuracy"]["interval"] == "examples"
    assert two["against_baseline"][0]["randomisation_p"] is not None
