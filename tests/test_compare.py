"""Comparing variants: what is trained, resumed exactly, with equal budgets; nothing is lost."""

import contextlib
import io
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import typer

import heedful.cli.compare
from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.runs.recipe import compare_settings, read_recipe, with_overrides, without_searches
from heedful.training import parallel_trainings
from heedful.training.budget import read_budget
from heedful.training.comparing import Plan, estimate, train_variants
from heedful.training.comparison_record import Comparison, Training, read_comparison
from heedful.training.loop import Loop
from heedful.training.variants import (
    Variant,
    bases_of,
    combine,
    find_variant,
    read_vary,
    vary_of,
)
from test_training import write_corpus
from test_tuning import RECIPE

SMALL = {key: value for key, value in RECIPE.items() if key != "tune"} | {
    "data": RECIPE["data"] | {"test": "test.tsv"},
    "training": RECIPE["training"]
    | {"max_steps": 8, "learning_rate": 0.02, "precision": "float32", "average_checkpoints": 0},
}
VARY = ["--vary", "model.dropout=0.0,0.2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for seed, part in enumerate(("train", "validation", "test"), start=1):
        write_corpus(folder / f"{part}.tsv", 300 if part == "train" else 12, seed)
    (folder / "recipe.toml").write_text(tomlkit.dumps(SMALL))
    return folder


def compare(*arguments: object) -> tuple[int, str]:
    """The exit code of ``heedful compare``, and what it prints."""
    printed = io.StringIO()
    app = typer.Typer()
    heedful.cli.compare.register(app)
    app.command(name="other")(lambda: None)  # with one command, typer takes no name
    command = typer.main.get_command(app)
    with contextlib.redirect_stdout(printed):
        code = command.main(["compare", *map(str, arguments)], standalone_mode=False)
    return code or 0, printed.getvalue()


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two variants with two seeds that was never interrupted."""
    out = tmp_path_factory.mktemp("compared") / "whole"
    code, _ = compare(data / "recipe.toml", *VARY, "--seeds", 2, "--data", data, "--out", out)
    assert code == 0
    return out


def plan(data: Path, *vary: str, seeds: int = 1, budget: str | None = None, **changes: Any) -> Plan:
    tables = with_overrides(SMALL, [f"{key}={value}" for key, value in changes.items()])
    groups = read_vary(vary)
    return Plan(tables, "the recipe", groups, seeds=seeds, budget=read_budget(budget), data=data)


def weights(run: Path) -> bytes:
    return (open_run(run).chosen().path / "model.safetensors").read_bytes()


def without_times(folder: Path) -> dict[str, Any]:
    """``report.json`` without times, which do not repeat."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            timed = ("minutes", "tokens_per_second", "seconds")
            return {key: strip(each) for key, each in value.items() if key not in timed}
        return [strip(each) for each in value] if isinstance(value, list) else value

    found = json.loads((folder / "report.json").read_text())
    return {key: strip(each) for key, each in found.items()}


# Variants


def test_values_are_toml_or_text_and_commas_in_brackets_and_quotes_do_not_separate() -> None:
    groups = read_vary(
        ["model.dropout=0.1, 0.2", "training.betas=[0.9, 0.98],[0.9,0.99]", "a.b='x,y',z,true"]
    )
    assert [[*each.values()] for each in groups[0]] == [[0.1], [0.2]]
    assert [[*each.values()] for each in groups[1]] == [[[0.9, 0.98]], [[0.9, 0.99]]]
    assert [[*each.values()] for each in groups[2]] == [["x,y"], ["z"], [True]]
    tables = read_vary(['model={kind="recurrent", cell="gru"},{kind="convolutional"}'])[0]
    assert tables[0] == {"model": {"kind": "recurrent", "cell": "gru"}}


def test_options_are_multiplied_and_keys_of_one_option_are_paired() -> None:
    product = combine(read_vary(["m.a=1,2", "m.b=x,y"]))
    assert [one.name for one in product] == ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]
    assert [one.folder for one in product][:2] == ["a-1_b-x", "a-1_b-y"]
    paired = combine(read_vary(["m.a,m.b=1:x,2:y"]))
    assert [one.settings for one in paired] == [{"m.a": 1, "m.b": "x"}, {"m.a": 2, "m.b": "y"}]


def test_names_are_short_and_folders_are_plain_unique_and_stable() -> None:
    two = combine(read_vary(["encoder.layers=1", "decoder.layers=2"]))[0]
    assert two.name == "encoder.layers=1 decoder.layers=2"
    values = ["1", "-1", "'a/b'", "'A/B'", "'a b'", '["a", 1]', f"'{'x' * 300}'", "é", "1e-4"]
    found = combine(read_vary([f"m.a={','.join(values)}"]))
    folders = [one.folder for one in found]
    assert len({folder.lower() for folder in folders}) == len(values)
    assert all(folder.isascii() and "/" not in folder and len(folder) < 100 for folder in folders)
    assert folders[0] == "a-1"
    alone = combine(read_vary(["m.a='a/b'"]))[0]
    assert alone == found[2], "a folder depends on its own values only"
    assert combine([]) == [Variant("recipe", "recipe", {})]
    table = combine(read_vary(["m.a={name='rotary', base=5e5},rotary,true,'true',1,'\"1\"'"]))
    names = [one.name for one in table]
    assert names[:2] == ["a=rotary(base=500000.0)", "a=rotary"]
    assert len(set(names)) == len({one.folder for one in table}) == 6


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.dropout", "expected KEY=VALUE"),
        ("model.dropout=", "expected KEY=VALUE"),
        ("=1,2", "expected KEY=VALUE"),
        ("model.dropout=0.1,,0.2", "a value is empty"),
        ("model.dropout=0.1,0.10", "given twice"),
        ("m.a,m.b=1:2,3", "1 of 2 values"),
        ("m.a,m.a=1:2", "varied twice"),
        ("seed=1,2", "--seeds trains"),
        ("task=a,b", "same task"),
        ("data.test=a,b", "not be comparable"),
        ("training.max_minutes=1,2", "--budget"),
    ],
)
def test_a_wrong_option_is_one_clear_line(option: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        read_vary([option])
    assert "\n" not in str(raised.value)
    assert option.partition("=")[0] in str(raised.value)


def test_a_recipe_can_hold_the_comparison(data: Path, tmp_path: Path) -> None:
    vary = {"model": {"dropout": [0.0, 0.2]}, "model.heads, model.layers": [[2, 1], [1, 2]]}
    table = {"vary": vary, "seeds": 2, "budget": 3, "baseline": "dropout=0.2 heads=2 layers=1"}
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tomlkit.dumps(SMALL | {"compare": table}))
    printed = compare(recipe, "--list")[1]
    assert "4 variants, 8 trainings of 3 steps" in printed
    assert "heads=1 layers=2 dropout=0.2\theads-1_layers-2_dropout-0.2" in printed
    printed = compare(recipe, "--vary", "model.heads=1,2", "--seeds", 1, "--list")[1]
    assert "2 variants, 2 trainings of 3 steps" in printed
    run = tmp_path / "run"
    assert heedful.train(recipe, run, data=data)
    assert "compare" not in (run / "recipe.toml").read_text()
    assert heedful.train(SMALL, run, data=data), "a comparison changes nothing in a run"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"vray": {}}, r"\[compare\]: unknown key 'vray'; did you mean 'vary'"),
        ({"vary": {"model.dropout": 0.1}}, "vary.model.dropout"),
        ({"vary": {"model.dropout": []}}, "give a list of values"),
        ({"vary": {"model.heads, model.layers": [1, 2]}}, "give a list of lists"),
        ({"vary": {"model.heads, model.layers": [[1]]}}, "1 of 2 values"),
        ({"vary": {"seed": [1, 2]}}, "cannot be varied"),
        ({"vary": {"data": [{"train": "a", "validation": "b"}]}}, "'data.validation' cannot be"),
        (
            {"vary": {"training": [{"max_steps": 3}, {"max_steps": 9}]}, "budget": 7},
            "training.max_steps is varied",
        ),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_a_wrong_table_is_one_clear_line(
    tmp_path: Path, table: dict[str, Any], message: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tomlkit.dumps(SMALL | {"compare": table}))
    with pytest.raises(UserError, match=message) as raised:
        compare(recipe, "--list")
    assert "\n" not in str(raised.value)
    assert "recipe.toml" in str(raised.value)


def test_every_recipe_that_compares_has_valid_variants() -> None:
    folder = Path(heedful.__file__).parent / "recipes"
    compared = [path for path in sorted(folder.glob("*.toml")) if "[compare]" in path.read_text()]
    assert len(compared) >= 3
    for path in compared:
        tables = read_recipe(path)
        settings = compare_settings(tables, str(path))
        groups = vary_of(settings.vary, str(path))
        budget = read_budget(settings.budget)
        bases = {base: without_searches(read_recipe(path, base)) for base in bases_of(groups)}
        own = without_searches(tables)
        listed = Plan(own, str(path), groups, settings.seeds, budget, bases=bases)
        variants, refused = listed.checked()
        assert not refused, path
        assert len(variants) > 2
        assert settings.seeds >= 3
        assert settings.budget is not None


def test_whole_recipes_are_compared_by_their_bases(data: Path, tmp_path: Path) -> None:
    own = (data / "recipe.toml").read_text()
    (tmp_path / "one.toml").write_text(own)
    (tmp_path / "other.toml").write_text('base = "one.toml"\n[model]\ndropout = 0.4\n')
    (tmp_path / "wrong.toml").write_text('base = "one.toml"\n[data]\ntest = "train.tsv"\n')
    top = tmp_path / "top.toml"
    top.write_text('base = "one.toml"\n[training]\nlearning_rate = 0.125\n')
    vary = ["--vary", "base=one.toml,other.toml", "--seeds", 1, "--budget", 2]
    out = tmp_path / "out"
    assert compare(top, *vary, "--data", data, "--out", out)[0] == 0
    for name, dropout in (("one", SMALL["model"].get("dropout", 0.1)), ("other", 0.4)):
        recipe = open_run(out / f"base-{name}.toml" / "seed-3").recipe
        assert recipe.model.dropout == dropout
        assert recipe.training.learning_rate == 0.125
    assert compare(top, *vary, "--data", data, "--out", out)[0] == 0  # nothing is left to do
    with pytest.raises(UserError, match=r"base=wrong\.toml has another data\.test"):
        compare(top, "--vary", "base=one.toml,wrong.toml", "--list")
    with pytest.raises(UserError, match=r"no recipe at .*none\.toml"):
        compare(top, "--vary", "base=one.toml,none.toml", "--list")
    with pytest.raises(UserError, match="base = 3: expected a recipe's name or path"):
        compare(top, "--vary", "base=one.toml,3", "--list")


def test_a_variant_is_found_by_its_name_or_folder() -> None:
    variants = combine(read_vary(["m.a=1,2"]))
    assert find_variant(variants, "a-2", "--baseline") is variants[1]
    two = combine(read_vary(["m.a=1", "m.b=x"]))
    assert find_variant(two, "b=x a=1", "--baseline") is two[0]
    with pytest.raises(UserError, match="--baseline: no variant 'a=3'; did you mean 'a="):
        find_variant(variants, "a=3", "--baseline")


# Budgets


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("2000", "steps", 2000),
        ("2e3", "steps", 2000),
        ("10m", "minutes", 10),
        ("90s", "minutes", 1.5),
        ("1.5h", "minutes", 90),
        ("1e15flops", "operations", 1e15),
        ("1E15 FLOPs", "operations", 1e15),
    ],
)
def test_a_budget_is_steps_time_or_operations(text: str, field: str, value: float) -> None:
    assert getattr(read_budget(text), field) == value


@pytest.mark.parametrize(
    "text", ["", "ten", "0", "1.5", "-3", "0m", "5 days", "1e999flops", "1..2", "1e400", "1e308h"]
)
def test_a_wrong_budget_is_one_clear_line(text: str) -> None:
    with pytest.raises(UserError, match="--budget"):
        read_budget(text)


def test_a_time_limit_is_not_ended_by_the_steps_of_the_recipe(data: Path) -> None:
    timed = plan(data, budget="1m").recipe({})
    assert timed.training.max_minutes == 1
    assert timed.training.max_steps == 10**9
    # A cosine ends at the last step, wherever the time ends.
    assert (
        plan(data, budget="1m", **{"training.schedule": "cosine"}).recipe({}).training.max_steps
        == 8
    )
    limited = plan(data, budget="20", **{"training.max_minutes": 3}).recipe({})
    assert (limited.training.max_steps, limited.training.max_minutes) == (20, None)


def test_schedules_that_do_not_end_with_the_time_are_reported(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cosine = {"training.schedule": "cosine", "training.max_steps": 3}
    assert train_variants(plan(data, budget="9m", **cosine), tmp_path / "short")
    assert "ended at its last step, 3, before the time" in capfd.readouterr().err
    long = cosine | {"training.max_steps": 100_000}
    assert train_variants(plan(data, budget="0.01s", **long), tmp_path / "long")
    assert "but its cosine schedule ends at 100,000" in capfd.readouterr().err


def test_short_trainings_are_validated_often_enough_for_a_curve(data: Path) -> None:
    assert (
        plan(data, budget="200", **{"training.validate_every": 100})
        .recipe({})
        .training.validate_every
        == 20
    )
    kept = plan(data, budget="200", **{"training.validate_every": 30}).recipe({})
    assert kept.training.validate_every == 30


def test_equal_operations_are_other_steps_and_the_same_cost(data: Path, tmp_path: Path) -> None:
    limit = 6e8
    wide = plan(data, "model.hidden_size=16,32", seeds=1, budget=f"{limit}flops")
    assert train_variants(wide, tmp_path / "out")
    found = read_comparison(tmp_path / "out")
    assert found is not None
    steps = {each.variant: each.max_steps for each in found.trainings}
    assert steps["hidden_size=16"] > 1.5 * steps["hidden_size=32"]
    for each in found.trainings:
        run = open_run(tmp_path / "out" / each.folder)
        spent = [record for record in run.metrics() if record["kind"] == "train"][-1]
        assert spent["step"] == each.max_steps == steps[each.variant]
        assert spent["operations"] == pytest.approx(limit, rel=0.15)
    with pytest.raises(UserError, match="less than one step"):
        train_variants(plan(data, budget="5flops"), tmp_path / "small")


# Training


def test_every_variant_is_trained_with_every_seed_as_heedful_train_does(
    whole: Path, data: Path, tmp_path: Path
) -> None:
    found = read_comparison(whole)
    assert found is not None
    assert [(each.variant, each.seed) for each in found.wanted] == [
        *[("dropout=0.0", 3), ("dropout=0.2", 3)],
        *[("dropout=0.0", 4), ("dropout=0.2", 4)],
    ]
    assert all(each.state == "complete" for each in found.trainings)
    alone = with_overrides(SMALL, ["model.dropout=0.2", "training.validate_every=1"])
    assert heedful.train(alone, tmp_path / "alone", data=data)
    assert weights(tmp_path / "alone") == weights(whole / "dropout-0.2" / "seed-3")
    seeds = [weights(whole / "dropout-0.2" / f"seed-{seed}") for seed in (3, 4)]
    assert seeds[0] != seeds[1]


def test_interrupted_and_resumed_is_the_same(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "resumed"
    arguments = [data / "recipe.toml", *VARY, "--seeds", 2, "--data", data, "--out", out]
    taken = 0
    step = Loop._step

    def interrupted(loop: Loop, batches: Any) -> None:
        nonlocal taken
        step(loop, batches)
        taken += 1
        if taken == 13:  # in the middle of the second training
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Loop, "_step", interrupted)
    assert compare(*arguments)[0] == 130
    known = read_comparison(out)
    assert known is not None
    assert [each.state for each in known.wanted] == ["complete", "running", "waiting", "waiting"]
    assert not list(out.glob("**/test.json")), "the test set is for the end"
    assert compare(*arguments)[0] == 0
    assert taken == 4 * 8, "no step is trained twice"
    for run in whole.glob("*/seed-*"):
        assert weights(run) == weights(out / run.relative_to(whole))
    assert without_times(out) == without_times(whole)
    before = {path: path.stat().st_mtime_ns for path in out.glob("**/test.json")}
    assert compare(*arguments)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("**/test.json")} == before
    assert taken == 4 * 8


def test_values_and_seeds_can_be_added(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "more"
    shutil.copytree(whole, out)
    kept = weights(out / "dropout-0.0" / "seed-3")
    recipe = data / "recipe.toml"
    code, printed = compare(
        recipe,
        "--vary",
        "model.dropout=0.0,0.3",
        "--seeds",
        1,
        "--data",
        data,
        "--out",
        out,
        "--json",
    )
    assert code == 0
    names = [variant["name"] for variant in json.loads(printed)["variants"]]
    assert names == ["dropout=0.0", "dropout=0.3"]
    assert weights(out / "dropout-0.0" / "seed-3") == kept
    assert (out / "dropout-0.2" / "seed-4" / "result.json").exists(), "nothing is deleted"
    with pytest.raises(
        UserError, match=r"started with training.learning_rate = 0.02, now it is 0.5"
    ):
        compare(recipe, *VARY, "--data", data, "--out", out, "--set", "training.learning_rate=0.5")
    with pytest.raises(UserError, match=r"started with budget = .*, now it is '9 steps'"):
        compare(recipe, *VARY, "--data", data, "--out", out, "--budget", 9)


def test_a_training_that_diverges_is_listed_and_the_others_are_trained(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, _ = compare(
        *(data / "recipe.toml", "--vary", "training.learning_rate=1e30,0.02", "--seeds", 1),
        *("--set", "training.clip_norm=off", "--data", data, "--out", out),
    )
    assert code == 1
    report = json.loads((out / "report.json").read_text())
    [failed] = report["failed"]
    assert "not finite" in failed["error"]
    assert [len(variant["runs"]) for variant in report["variants"]] == [0, 1]
    assert "not finite" in (out / "report.md").read_text()


@pytest.mark.slow
def test_processes_train_what_one_process_trains(whole: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "parallel"
    place = ["--data", data, "--out", out]
    assert compare(data / "recipe.toml", *VARY, "--seeds", 1, "--jobs", 2, *place)[0] == 0
    assert (out / "report.md").exists()
    for name in ("dropout-0.0", "dropout-0.2"):
        assert weights(out / name / "seed-3") == weights(whole / name / "seed-3")
        assert "trained:" in (out / name / "seed-3.log").read_text()


# The command


def test_invalid_combinations_are_listed_before_anything_is_trained(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *(data / "recipe.toml", "--vary", "model.heads=2,3", "--data", data),
        *("--out", tmp_path / "out", "--seeds", 1, "--budget", 2),
    ]
    with pytest.raises(UserError, match=r"1 of 2 variants are invalid.*--skip-invalid"):
        compare(*arguments)
    listed = capfd.readouterr().err
    assert "invalid variant heads=3: 'model': hidden_size 16 is not a multiple of heads 3" in listed
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="1 of 2 variants"):
        compare(*arguments, "--list")
    assert compare(*arguments, "--skip-invalid")[0] == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [each["name"] for each in report["refused"]] == ["heads=3"]
    assert "not a multiple of heads 3" in (tmp_path / "out" / "report.md").read_text()
    nothing = [*arguments[:1], "--vary", "model.heads=3,5", *arguments[3:], "--skip-invalid"]
    with pytest.raises(UserError, match="nothing is left to compare"):
        compare(*nothing)


def test_the_list_trains_nothing(data: Path, whole: Path, tmp_path: Path) -> None:
    code, printed = compare(data / "recipe.toml", *VARY, "--list", "--out", tmp_path / "new")
    assert code == 0
    assert "2 variants, 6 trainings" in printed
    assert "dropout=0.2\tdropout-0.2\t0 of 3 trained" in printed
    assert not (tmp_path / "new").exists()
    printed = compare(data / "recipe.toml", *VARY, "--list", "--out", whole)[1]
    assert "dropout=0.2\tdropout-0.2\t2 of 3 trained" in printed


def test_the_report_is_made_again_without_training(
    whole: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(whole, out)
    before = {file.name: file.read_bytes() for file in out.glob("report.*")}
    for file in out.glob("report.*"):
        file.unlink()
    refuse: Callable[..., None] = lambda *_, **__: pytest.fail("this trains or scores")  # noqa: E731
    monkeypatch.setattr(Loop, "run", refuse)
    monkeypatch.setattr("heedful.tasks.pairs.evaluation.evaluate_pairs", refuse)
    assert compare("--report", out)[0] == 0
    assert {file.name: file.read_bytes() for file in out.glob("report.*")} == before


def test_a_report_of_a_part_is_made_of_what_is_there(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "part"
    shutil.copytree(whole, out)
    record = json.loads((out / "comparison.json").read_text())
    record["trainings"][3] |= {"state": "running"}  # dropout=0.2, seed 4
    (out / "comparison.json").write_text(json.dumps(record))
    for name in ("dropout-0.0/seed-3", "dropout-0.2/seed-3"):
        (out / name / "test.json").unlink()
    assert compare("--report", out)[0] == 0
    report = json.loads((out / "report.json").read_text())
    assert report["unfinished"] == [{"variant": "dropout=0.2", "seed": 4}]
    assert report["seconds_left"] >= 0
    assert [len(variant["runs"]) for variant in report["variants"]] == [2, 1]
    assert len(report["variants"][0]["test"]["BLEU"]["values"]) == 1
    assert report["variants"][1]["against_baseline"] == []
    text = (out / "report.md").read_text()
    assert "The test set is used when all trainings have ended" in text
    assert "dropout=0.2, seed 4 | not finished" in text
    for training in record["trainings"]:
        training["state"] = "waiting"
    (out / "comparison.json").write_text(json.dumps(record))
    assert compare("--report", out) == (0, "")


def test_runs_are_scored_on_another_test_set(
    whole: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    write_corpus(tmp_path / "other.tsv", 9, 5)
    out = tmp_path / "scored"
    options = ["--report", whole, "--test", tmp_path / "other.tsv", "--out", out]
    assert compare(*options)[0] == 0
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before
    report = json.loads((out / "report.json").read_text())
    inputs = json.loads((out / "dropout-0.2/seed-4/test.json").read_text())["examples"]["inputs"]
    assert len(inputs) == 9
    own = json.loads((whole / "report.json").read_text())
    for variant, known in zip(report["variants"], own["variants"], strict=True):
        assert len(variant["test"]["BLEU"]["values"]) == 2
        assert variant["test"] != known["test"]
        assert variant["validation"] == known["validation"]
        assert sum(each["count"] for each in variant["by_length"]) == 9
    assert "other.tsv, which each run was scored on once" in (out / "report.md").read_text()
    monkeypatch.setattr(
        "heedful.tasks.pairs.evaluation.evaluate_pairs", lambda *_: pytest.fail("this scores")
    )
    assert compare(*options)[0] == 0
    assert json.loads((out / "report.json").read_text()) == report
    write_corpus(tmp_path / "other.tsv", 9, 6)
    with pytest.raises(UserError, match="has the scores of other test data"):
        compare(*options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "give a recipe, or --report"),
        (["RECIPE", "--out", "x", "--test", "x.tsv"], "--test is for --report"),
        (["--report", "WHOLE", "--test", "x.tsv"], "--out FOLDER is missing"),
        (["--report", "WHOLE", "--test", "x.tsv", "--out", "x"], "x.tsv does not exist"),
        (["--report", "WHOLE", "--test", "x.tsv", "--out", "WHOLE"], "is a comparison"),
        (["--report", "DATA", "--test", "x.tsv", "--out", "x"], "is not a comparison"),
        (["RECIPE"], "--out FOLDER is missing"),
        (["RECIPE", "--report", "x"], "--report FOLDER trains nothing"),
        (["--report", "DATA"], "is not a comparison"),
        (["--report", "DATA", "--out", "x"], "--out has no effect with --report without --test"),
        (["--report", "DATA", "--seeds", "3"], "--seeds has no effect"),
        (["nothing.toml", "--out", "x"], "no recipe at nothing.toml"),
        (["RECIPE", "--out", "x", "--seeds", "0"], "--seeds 0"),
        (["RECIPE", "--out", "x", "--jobs", "0"], "--jobs 0"),
        (["RECIPE", "--out", "x", "--baseline", "b", *VARY], "--baseline: no variant 'b'"),
        (["RECIPE", "--out", "x", "--vary", "model.dropuot=1"], "1 of 1 variants"),
        (["RECIPE", "--out", "x", "--set", "data.validation=[]"], "needs validation data"),
        (["RECIPE", "--out", "DATA"], "contains other files"),
        (
            ["RECIPE", "--out", "x", "--vary", "training.max_steps=1,2", "--budget", "3"],
            "is varied",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(
    data: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"RECIPE": str(data / "recipe.toml"), "DATA": str(data), "WHOLE": str(whole)}
    with pytest.raises(UserError, match=message) as raised:
        compare(*[places.get(each, each) for each in arguments])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "x").exists()


def test_the_time_is_estimated_from_the_trainings_that_are_done() -> None:
    def comparison(*trainings: Training) -> Comparison:
        variants = [Variant(name, name, {}) for name in ("a", "b")]
        head: dict[str, Any] = {"recipe": "", "task": "", "compared_by": "", "budget": ""}
        return Comparison(
            {}, **head, higher=True, baseline="a", seeds=[1, 2], variants=variants,
            trainings=list(trainings),
        )  # fmt: skip

    waiting = [Training(name, seed, "") for seed in (1, 2) for name in ("a", "b")]
    assert estimate(comparison(*waiting)) is None
    waiting[0] = Training("a", 1, "", state="complete", seconds=10)
    assert estimate(comparison(*waiting)) == 30  # all like the only one
    waiting[1] = Training("b", 1, "", state="complete", seconds=20)
    assert estimate(comparison(*waiting)) == 30  # 10 for a, 20 for b
    assert estimate(comparison(*waiting), without=waiting[2]) == 20
    waiting[3].seconds = 15
    assert estimate(comparison(*waiting)) == 15


@pytest.mark.parametrize(
    ("code", "interrupted", "state", "error"),
    [
        (0, False, "complete", None),
        (0, True, "complete", None),
        (130, False, "running", None),
        (-2, True, "running", None),  # Ctrl-C while Python starts
        (2, True, "running", None),
        (2, False, "failed", "the loss is not finite"),
        (-9, False, "failed", "ended by signal 9"),
    ],
)
def test_how_a_process_ended(code: int, interrupted: bool, state: str, error: str | None) -> None:
    class Ended:
        began, training = 0.0, Training("a", 1, "a/seed-1", state="running")

        class process:  # noqa: N801
            returncode = code

        def error(self) -> str:
            return "the loss is not finite"

    found: list[str | None] = []

    def end(training: Training, seconds: float, *, finished: bool, error: str | None) -> None:
        found.append(error)
        if finished:
            training.state = "complete" if error is None else "failed"

    one: Any = Ended()
    one.training.state = "running"
    parallel_trainings._ended(one, end, interrupted=interrupted)
    assert (one.training.state, found) == (state, [error])
