"""Searching settings: the same trials however often interrupted, within the time, none for free."""

import importlib
import json
import os
import shutil
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from command_help import DEVNULL, Started
from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, read_recipe, with_overrides
from heedful.runs.run import Run
from heedful.runs.search_space import SearchSpace
from heedful.runs.shared_preparation import can_share
from heedful.training import train
from heedful.training.optuna_proposals import RANDOM_TRIALS, is_hopeless, propose
from heedful.training.report import Report
from heedful.training.tuning import default_space, tune
from heedful.training.tuning_record import Trial, read_tuning
from test_training import write_corpus

RECIPE: dict[str, Any] = {
    "seed": 3,
    "data": {"train": "train.tsv", "validation": "validation.tsv", "source": "en", "target": "de"},
    "tokeniser": {"vocabulary_size": 360},
    "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
    "training": {
        "max_steps": 12,
        "batch_tokens": 200,
        "warmup_steps": 2,
        "log_every": 4,
        "threads": 1,
        "validate_every": 4,
        "checkpoint_every": 3,
        "average_checkpoints": 2,
        "choose_by": "loss",
    },
    "evaluation": {"beam": 1, "validation_pairs": 2, "samples": 0},
    "tune": {
        "training.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
        "model.dropout": {"choices": [0.0, 0.1, 0.3]},
    },
}


def recipe_with(*overrides: str) -> dict[str, Any]:
    return with_overrides(RECIPE, overrides)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder / "train.tsv", 300, 1)
    write_corpus(folder / "validation.tsv", 8, 2)
    return folder


@pytest.fixture(scope="module")
def searched(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that was never interrupted."""
    out = tmp_path_factory.mktemp("searches") / "whole"
    assert tune(RECIPE, out, trials=3, seeds=1, data=data)
    return out


def record(out: Path) -> dict[str, Any]:
    """``tuning.json`` without times, the one thing in it that does not repeat."""
    values = json.loads((out / "tuning.json").read_text())
    for trial in values["trials"] + values["further"]:
        del trial["minutes"]
    return values


def test_the_recipe_itself_is_the_first_trial(searched: Path, data: Path) -> None:
    trials = record(searched)["trials"]
    assert trials[0]["settings"] == {"training.learning_rate": 0.001, "model.dropout": 0.1}
    alone = searched.parent / "alone"
    assert train({k: v for k, v in RECIPE.items() if k != "tune"}, alone, data=data)
    assert open_run(alone).result == open_run(searched / "trial-00").result
    assert "tune" not in tomllib.loads((searched / "trial-00" / "recipe.toml").read_text())


def test_the_winner_is_the_best_on_validation_and_a_recipe(searched: Path) -> None:
    found = record(searched)
    whole = [trial for trial in found["trials"] if trial["state"] == "complete"]
    best = min(whole, key=lambda trial: trial["value"])
    assert found["trials"][found["winner"]] == best
    assert best["value"] < found["trials"][0]["value"]  # 0.001 is too low for so few steps
    recipe = check_recipe(read_recipe(searched / "best.toml"), "best.toml")
    assert recipe.training.learning_rate == best["settings"]["training.learning_rate"]
    assert recipe == open_run(searched / best["folder"]).recipe
    further = open_run(searched / "seed-4").recipe
    assert further.seed == 4
    assert further.model_copy(update={"seed": 3}) == recipe
    assert (
        found["further"][0]["value"] == open_run(searched / "seed-4").result["validation"]["loss"]
    )


def test_prepared_data_are_shared(searched: Path) -> None:
    files = [searched / run / "data" / "validation.jsonl" for run in ("trial-00", "seed-4")]
    assert files[0].read_bytes() == files[1].read_bytes()
    facts = [json.loads((file.parents[1] / "run.json").read_text()) for file in files]
    assert facts[0]["data"] == facts[1]["data"]
    assert len({(file.parents[1] / "memory.jsonl").read_bytes() for file in files}) == 1


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ("seed=4", True),
        ("training.teacher.weight=0.1", True),
        ("training.teacher.run=other", False),  # it may have another vocabulary
        ("model.kind=elmo", False),  # its run says where words end
    ],
)
def test_what_is_prepared_differently_is_not_shared(
    change: str, shared: bool, tmp_path: Path
) -> None:
    tables: dict[str, Any] = {
        "task": "classification",
        "data": {"train": "train.tsv"},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "recurrent-encoder", "hidden_size": 128},
        "training": {"teacher": {"run": "one"}},
    }
    run = Run(tmp_path, check_recipe(tables, ""), {})
    assert can_share(run, check_recipe(with_overrides(tables, [change]), "")) is shared


@pytest.mark.slow
def test_a_search_that_was_killed_and_interrupted_ends_the_same(
    searched: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = searched.parent / "killed"
    recipe = searched.parent / "recipe.toml"
    recipe.write_text(tomlkit.dumps(RECIPE))
    arguments = ["tune", recipe, "--data", data, "--out", out, "--trials", "3", "--seeds", "1"]
    process = Started(*arguments, stderr=DEVNULL, stdout=DEVNULL)
    _wait_for(out / "trial-01" / "checkpoints" / "step-00000003", process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert read_tuning(out).trials[1].state == "running"
    again = {"trials": 3, "seeds": 1, "data": data}
    with monkeypatch.context() as interrupted:
        # Ctrl-C in the middle of each trial that is left, the one to be given up among them.
        logged = Report.logged

        def interrupt(self: Report, *figures: Any) -> None:
            logged(self, *figures)
            os.kill(os.getpid(), signal.SIGINT)

        interrupted.setattr(Report, "logged", interrupt)
        times = 0
        while not tune(read_recipe(recipe), out, **again):
            times += 1
        assert times >= 6
    assert tune(read_recipe(recipe), out, **again)
    assert record(out) == record(searched)
    assert (out / "best.toml").read_text() == (searched / "best.toml").read_text()


def _wait_for(path: Path, process: Started) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, "ended before it could be stopped"
        assert time.monotonic() < until
        time.sleep(0.005)


def test_an_ended_search_trains_nothing_and_may_be_extended(searched: Path, data: Path) -> None:
    shorter = searched.parent / "shorter"
    shutil.copytree(searched, shorter)
    values = json.loads((shorter / "tuning.json").read_text())
    values |= {"trials": values["trials"][:2], "further": []}
    (shorter / "tuning.json").write_text(json.dumps(values))
    shutil.rmtree(shorter / "trial-02")
    shutil.rmtree(shorter / "seed-4")
    assert tune(RECIPE, shorter, trials=3, seeds=1, data=data)
    assert record(shorter) == record(searched)
    assert tune(RECIPE, shorter, trials=3, seeds=1, data="nowhere")  # nothing is read again
    with pytest.raises(UserError, match="further seeds already"):
        tune(RECIPE, shorter, trials=4, data=data)


def test_a_trial_ends_when_its_time_is_over(data: Path, tmp_path: Path) -> None:
    recipe = recipe_with("training.max_steps=100000", "training.average_checkpoints=0")
    assert tune(recipe, tmp_path / "out", trials=1, minutes=0.005, data=data)
    (trial,) = read_tuning(tmp_path / "out").trials
    run = open_run(tmp_path / "out" / "trial-00")
    assert trial.state == "complete"
    assert 0.005 <= trial.minutes < 0.05
    assert trial.step == run.result["step"] < 100000
    assert run.checkpoints()[-1].step == trial.step  # saved where it ended
    assert trial.validations[-1][0] == trial.step  # and validated
    longer = recipe | {"training": recipe["training"] | {"max_minutes": 0.01}}
    del longer["tune"]
    assert train(longer, run.path, data=data)  # a longer time goes on from there
    assert open_run(run.path).result["step"] > trial.step


def test_a_trial_that_diverges_is_out_of_the_search(data: Path, tmp_path: Path) -> None:
    rates = 'tune={"training.learning_rate" = {choices = [1e30]}}'
    recipe = recipe_with(rates, "training.clip_norm=off", "training.optimiser=sgd")
    assert tune(recipe, tmp_path / "out", trials=5, data=data)  # two points: 0.001 and 1e30
    found = read_tuning(tmp_path / "out")
    assert [trial.state for trial in found.trials] == ["complete", "diverged"]
    assert found.winner == 0


def test_a_trial_that_fails_is_out_of_the_search_and_tried_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_overrides(RECIPE, ["training.max_steps=4"])
    recipe["tune"] = {"tokeniser.vocabulary_size": {"choices": [360, 50_000]}}
    assert tune(recipe, tmp_path / "out", trials=2, data=data)
    found = read_tuning(tmp_path / "out")
    assert found is not None
    assert [trial.state for trial in found.trials] == ["complete", "failed"]
    assert found.winner == 0
    tried = []

    def interrupted(recipe: object, folder: Path, **given: object) -> bool:
        tried.append(folder.name)
        return False

    monkeypatch.setattr("heedful.training.tuning.train", interrupted)
    assert not tune(recipe, tmp_path / "out", trials=2, data=data)
    assert tried == ["trial-01"]
    monkeypatch.undo()
    recipe["tokeniser"]["vocabulary_size"] = 50_000
    with pytest.raises(UserError, match="too little text for a vocabulary"):
        tune(recipe, tmp_path / "no", data=data)


def test_what_is_hopeless_is_given_up_by_the_median() -> None:
    first = Trial("a", 1, {}, "complete", 4.0, step=30, validations=[(10, 6.0), (20, 5.0)])
    second = Trial("b", 1, {}, "complete", 3.0, step=30, validations=[(10, 5.0), (20, 4.0)])
    pruned = Trial("c", 1, {}, "pruned", 1.0, step=10, validations=[(10, 1.0)])
    trials = [first, second, pruned]
    assert not is_hopeless([(5, 99.0)], trials, higher=False)  # before a third of the steps
    assert is_hopeless([(10, 5.6)], trials, higher=False)
    assert not is_hopeless([(10, 5.4)], trials, higher=False)
    assert not is_hopeless([(10, 5.4), (20, 5.0)], [first], higher=False)
    assert not is_hopeless([(11, 99.0)], trials, higher=False)  # nothing to compare with
    assert not is_hopeless([(10, 9.0)], [pruned], higher=False)
    assert is_hopeless([(10, 5.4)], trials, higher=True)


def test_a_pruned_trial_costs_less_and_never_wins(data: Path, tmp_path: Path) -> None:
    rates = 'tune={"training.learning_rate" = {choices = [1e-9]}}'
    assert tune(recipe_with(rates), tmp_path / "out", trials=2, data=data)
    found = read_tuning(tmp_path / "out")
    assert [trial.state for trial in found.trials] == ["complete", "pruned"]
    assert [trial.step for trial in found.trials] == [12, 4]
    assert found.winner == 0
    assert tune(recipe_with(rates), tmp_path / "all", trials=2, data=data, pruning=False)
    assert [trial.step for trial in read_tuning(tmp_path / "all").trials] == [12, 12]


def test_draws_lie_in_the_ranges_and_repeat() -> None:
    space = {
        "a": SearchSpace(low=1e-4, high=1e-2, log=True),
        "b": SearchSpace(low=16, high=64, step=16),
        "c": SearchSpace(choices=["gru", "lstm", [0.9, 0.98]]),
        "d": SearchSpace(low=0.1, high=0.36, step=0.05),
    }
    trials = [Trial("a", 1, {"a": 1.0, "b": 32}, "complete", 1.0, step=1)]  # a lies outside
    for number in range(12):
        drawn = propose(space, trials, higher=True, seed=5, attempt=0)
        assert drawn == propose(space, trials, higher=True, seed=5, attempt=0)
        assert all(space[key].has(value) for key, value in drawn.items())
        assert drawn["b"] in (16, 32, 48, 64)
        assert round((drawn["d"] - 0.1) / 0.05, 6) % 1 == 0
        state = "complete" if number % 3 else "pruned"
        value = -abs(drawn["a"] - 1e-3)
        trials.append(Trial("", 1, drawn, state, value, step=1, validations=[(1, value)]))
    drawn = {propose(space, trials[:1], higher=True, seed=s, attempt=0)["a"] for s in range(9)}
    assert len(drawn) > 5
    assert RANDOM_TRIALS < 4  # four trials are worth a sampler


def test_without_a_table_rate_and_dropout_are_searched() -> None:
    recipe = check_recipe({"data": {"train": "t"}, "model": {"dropout": 0.05}}, "recipe")
    space = default_space(recipe)
    assert list(space) == ["training.learning_rate", "model.dropout"]
    assert (space["model.dropout"].low, space["model.dropout"].high) == (0.0, 0.15)
    assert space["training.learning_rate"].has(recipe.training.learning_rate)


@pytest.mark.parametrize(
    ("dropout", "ends"),
    [(0.0, (0.0, 0.1)), (0.03, (0.03, 0.13)), (0.2, (0.1, 0.3)), (0.95, (0.85, 0.95))],
)
def test_the_recipes_own_dropout_is_one_that_is_tried(
    dropout: float, ends: tuple[float, float]
) -> None:
    recipe = check_recipe({"data": {"train": "t"}, "model": {"dropout": dropout}}, "recipe")
    searched = default_space(recipe)["model.dropout"]
    assert (searched.low, searched.high) == ends


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"training.learnnig_rate": {"choices": [1]}}, "did you mean 'learning_rate'"),
        ({"model.window": {"low": 1, "high": 2}}, r"\[tune\].*unknown key 'model.window'"),
        ({"model.dropout": {"low": 0.1, "high": 1.5}}, r"'model.dropout' = 1.5"),
        ({"model.dropout": {"low": 0.1}}, "give a range"),
        ({"model.dropout": {"lo": 0.1, "high": 0.2}}, "did you mean 'low'"),
        ({"model.dropout": {"low": 0.3, "high": 0.2}}, "low 0.3 is above high 0.2"),
        ({"model.dropout": {"low": 0, "high": 0.2, "log": True}}, "low above 0"),
        ({"model.dropout": {"choices": [0.1], "low": 0}}, "not both"),
        ({"model.dropout": 0.1}, "tune.model.dropout|valid dictionary"),
        ({"seed": {"choices": [1, 2]}}, "'seed' cannot be searched"),
        ({"training.choose_by": {"choices": ["bleu"]}}, "would not be comparable"),
        ({"training": {"choices": [{"max_minutes": 5.0}]}}, "'training.max_minutes' cannot be"),
    ],
)
def test_a_wrong_table_is_one_clear_line(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_recipe({"data": {"train": "t"}, "tune": table}, "recipe.toml")
    assert "\n" not in str(raised.value)
    assert "recipe.toml" in str(raised.value)


def test_what_a_search_cannot_go_on_with_is_said(searched: Path, data: Path) -> None:
    with pytest.raises(
        UserError, match=r"was started with training.batch_tokens = 200, now it is 9"
    ):
        tune(recipe_with("training.batch_tokens=9"), searched, trials=3, data=data)
    with pytest.raises(
        UserError, match=r"started with training.max_minutes = None, now it is 1e-06"
    ):
        tune(RECIPE, searched, trials=3, minutes=1e-6, data=data)
    assert tune(RECIPE, searched, trials=3, minutes=9, data=data)  # none has come so far
    assert tune(RECIPE, searched, trials=3, data=data)
    with pytest.raises(UserError, match=r"\[tune\] model.dropout.choices"):
        tune(recipe_with("tune={}"), searched, trials=3, data=data)
    with pytest.raises(UserError, match=r"started with pruning"):
        tune(RECIPE, searched, trials=3, data=data, pruning=False)
    tune(recipe_with("training.threads=2"), searched, trials=3, data=data)  # may change
    # A search that an older version began knows neither new settings nor new names.
    values = json.loads((searched / "tuning.json").read_text())
    known = values["begun_with"]["recipe"]
    del known["training.label_smoothing"]
    known["model.dim"] = known.pop("model.hidden_size")
    known["training.average"] = known.pop("training.average_checkpoints")
    (searched / "tuning.json").write_text(json.dumps(values))
    assert tune(RECIPE, searched, trials=3, data=data)


def test_a_search_needs_validation_pairs_and_an_own_folder(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs validation data"):
        tune(recipe_with("data.validation=[]"), tmp_path / "out", data=data)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("")
    with pytest.raises(UserError, match=r"contains other files \(thesis.txt\)"):
        tune(RECIPE, tmp_path / "taken", data=data)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "tuning.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="damaged"):
        tune(RECIPE, tmp_path / "torn", data=data)


def test_without_optuna_it_is_said_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "heedful.training.optuna_proposals")
    with pytest.raises(UserError, match=r"pip install 'heedful\[tune\]'"):
        importlib.import_module("heedful.training.optuna_proposals")


def test_a_search_of_an_earlier_version_goes_on(data: Path, tmp_path: Path) -> None:
    recipe = recipe_with()
    recipe["tune"] = {"model.hidden_size": {"choices": [16]}}
    assert tune(recipe, tmp_path / "out", trials=1, data=data)
    record = tmp_path / "out" / "tuning.json"
    record.write_text(record.read_text().replace("model.hidden_size", "model.dim"))
    assert tune(recipe, tmp_path / "out", trials=1, seeds=1, data=data)
    tuning = read_tuning(tmp_path / "out")
    assert tuning is not None
    trials = tuning.trials + tuning.further
    assert [trial.settings for trial in trials] == [{"model.hidden_size": 16}] * 2
