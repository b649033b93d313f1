"""Searching the settings of recipes for single texts."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from heedful.basics.errors import UserError
from heedful.training.report import Report
from heedful.training.train import train
from heedful.training.tuning import tune
from text_help import LOOP, RECIPES, write_data

SHORT = {**LOOP, "max_steps": 4, "validate_every": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning")
    write_data(folder)
    return folder


def short(name: str, **more: Any) -> dict[str, Any]:
    recipe = RECIPES[name]
    return {**recipe, "training": {**recipe["training"], **SHORT}, **more}


def trials(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "tuning.json").read_text())["trials"]
    return found


@pytest.mark.parametrize("name", ["attentive", "tagging", "masked", "gpt", "lstm", "several"])
def test_learning_rate_and_dropout_are_searched_unless_said(
    folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(short(name), tmp_path / "out", trials=2, data=folder)
    said = capsys.readouterr().err
    assert "searching training.learning_rate 0.00333 to 0.03, model.dropout" in said
    assert set(trials(tmp_path / "out")[1]["settings"]) == {
        "training.learning_rate",
        "model.dropout",
    }
    # The data are prepared once: the second trial has them as links to the same files.
    first, second = (tmp_path / "out" / f"trial-0{number}" for number in (0, 1))
    for path in (first / "data").rglob("*"):
        other = second / "data" / path.relative_to(first / "data")
        assert path.is_dir() or os.path.samefile(path, other), path
    # The winner is a recipe that can be trained.
    assert train(str(tmp_path / "out" / "best.toml"), tmp_path / "best", data=folder)


def test_a_search_goes_on_where_it_was_interrupted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {
        "tune": {
            "training.penalty": {"low": 0.01, "high": 1.0, "log": True},
            "model.hops": {"choices": [1, 2]},
            "max_tokens": {"choices": [10, 24]},
        }
    }
    characters = {"kind": "characters", "vocabulary_size": 60}
    recipe = short("attentive", tokeniser=characters, **space)
    assert tune(recipe, tmp_path / "whole", trials=3, data=folder)
    moved = Report.step

    def step(self: Report, step: int, seconds: float) -> None:
        moved(self, step, seconds)
        if step == 1 and (tmp_path / "stopped" / "trial-01").exists():
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Report, "step", step)
        assert not tune(recipe, tmp_path / "stopped", trials=3, data=folder)
    assert tune(recipe, tmp_path / "stopped", trials=3, data=folder)
    timed = {"minutes"}

    def comparable(out: Path) -> list[dict[str, Any]]:
        return [{key: trial[key] for key in trial.keys() - timed} for trial in trials(out)]

    assert comparable(tmp_path / "stopped") == comparable(tmp_path / "whole")
    rows = {
        trial["settings"].get("max_tokens", 24): (tmp_path / "whole" / trial["folder"])
        for trial in trials(tmp_path / "whole")
    }
    windows = {
        length: json.loads((path / "run.json").read_text())["sets"]["classification"]["windows"]
        for length, path in rows.items()
    }
    # Rows of another length are another preparation, which cannot be shared.
    assert windows[10] > windows[24]


def test_a_search_names_what_cannot_be_searched(folder: Path, tmp_path: Path) -> None:
    for key, entry, message in (
        ("model.dropoot", {"low": 0.0, "high": 0.1}, "did you mean 'dropout'"),
        ("model.dropout", {"low": 0.0, "high": 1.5}, "'model.dropout' = 1.5"),
        ("seed", {"low": 1, "high": 3}, "cannot be searched"),
        ("max_tokens", {"choices": [24, 200]}, "max_tokens 200 is more than"),
    ):
        with pytest.raises(UserError, match=message):
            tune(short("tagging", tune={key: entry}), tmp_path / "out", data=folder)
    data = {"train": "tagged.tsv"}
    with pytest.raises(UserError, match="a search needs validation data"):
        tune(short("tagging", data=data), tmp_path / "out", data=folder)


def test_each_trial_starts_from_the_same_run(folder: Path, tmp_path: Path) -> None:
    masked = short("masked")
    assert train(masked, tmp_path / "before", data=folder)
    recipe = {key: table for key, table in short("tagging").items() if key != "tokeniser"}
    recipe = {**recipe, "model": {"dropout": 0.1}}
    space = {"training.learning_rate": {"low": 1e-3, "high": 1e-2, "log": True}}
    here = {"trials": 2, "seeds": 1, "data": folder}
    start = {"start_from": tmp_path / "before"}
    assert tune({**recipe, "tune": space}, tmp_path / "out", **here, **start)
    made = [path.parent for path in (tmp_path / "out").glob("*/run.json")]
    assert len(made) == 3
    for run in made:
        known = json.loads((run / "run.json").read_text())["started_from"]
        assert known["run"] == str(tmp_path / "before"), run
        assert (run / "start").exists(), run
    again = tmp_path / "again"
    assert train({**masked, "seed": 9}, again, data=folder)
    with pytest.raises(UserError, match="was started with weights"):
        tune({**recipe, "tune": space}, tmp_path / "out", **here, start_from=again)
