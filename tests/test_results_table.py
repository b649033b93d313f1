"""The driver of the table: one command makes it, goes on with it, and scores nothing twice."""

import contextlib
import importlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import typer

import heedful.cli.evaluate
import heedful.cli.tune
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from test_training import write_corpus
from test_tuning import RECIPE

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``results_table``, with its commands run here: each process of its own would load PyTorch."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    made = importlib.import_module("results_table")
    monkeypatch.setattr(made, "run_command", run_here)
    return made


def run_here(arguments: list[str]) -> tuple[int, str]:
    """What a command ends with and prints."""
    printed = io.StringIO()
    app = typer.Typer()
    for command in (heedful.cli.tune, heedful.cli.evaluate):
        command.register(app)
    with contextlib.redirect_stdout(printed):
        code = typer.main.get_command(app).main(arguments, standalone_mode=False)
    return code or 0, printed.getvalue()


def drive(driver: Any, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Its exit code, and what it prints; if it fails, its last line."""
    capsys.readouterr()
    code = driver.main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return code, err.splitlines()[-1] if code else out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two rows, with stand-ins for their recipes."""
    folder = tmp_path_factory.mktemp("table")
    data = folder / "data" / "small"
    data.mkdir(parents=True)
    for seed, part in enumerate(("train", "validation", "test")):
        write_corpus(data / f"{part}.tsv", 200 if part == "train" else 12, seed)
    tables = []
    for name, rate in (("slow", 1e-2), ("fast", 3e-2)):
        tables.append({"name": f"the {name} one", "recipe": str(folder / f"{name}.toml")})
        recipe = RECIPE | {
            "data": RECIPE["data"] | {"test": "test.tsv"},
            "training": RECIPE["training"] | {"learning_rate": rate, "max_steps": 24},
            "tune": {"model.dropout": {"choices": [0.0, 0.2]}},
        }
        (folder / f"{name}.toml").write_text(tomlkit.dumps(recipe))
    table = {"title": "Small", "data": "small", "against": "slow", "rows": tables}
    budget = {"trials": 2, "minutes": 5, "seeds": 1}
    text = tomlkit.dumps({"budget": budget, "tables": {"small": table}})
    (folder / "table.toml").write_text(text)
    return folder


def test_the_table_is_made_row_by_row_and_nothing_is_scored_twice(
    driver: Any, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    where = ["--table", place / "table.toml", "--out", place / "out"]
    code, first = drive(driver, capsys, *where, "--data", place / "data", "--only", "slow")
    assert code == 0, first
    assert "| the slow one |" in first
    assert "Missing: the fast one." in first
    scores = {path: path.stat().st_mtime_ns for path in (place / "out").rglob("test.json")}
    assert len(scores) == 2  # the winner and one more seed
    code, second = drive(driver, capsys, *where, "--data", place / "data")
    assert code == 0, second
    assert all(path.stat().st_mtime_ns == made for path, made in scores.items())
    assert second == (place / "out" / "results.md").read_text() + "\n"
    assert drive(driver, capsys, *where, "--collect") == (0, second)
    found = json.loads((place / "out" / "results.json").read_text())
    slow, fast = found["rows"]
    assert found["missing"] == []
    assert [len(row["seeds_scored"]) for row in found["rows"]] == [2, 2]
    assert fast["against"]["name"] == "the slow one"
    gained = fast["scores"]["BLEU"]["value"] - slow["scores"]["BLEU"]["value"]
    assert fast["against"]["difference"] == pytest.approx(gained)
    assert slow["against"] is None
    assert sum(bucket["count"] for bucket in fast["by_length"]) == 12
    assert {head["module"] for head in fast["attention"]} >= {"decoder.0.cross_attention"}
    # All reach the worst one's best loss; the better one sooner.
    worst = fast["cost"][0]
    assert worst["loss"] == slow["best_loss"] > fast["best_loss"]
    assert worst["spent"]["operations"] <= slow["cost"][0]["spent"]["operations"]
    for row in found["rows"]:
        assert len(row["trials"]) == 2
        assert 0 < row["operations"] <= row["search_operations"]
    # What was scored at another checkpoint is not scored again.
    path = place / "out" / "slow" / "trial-00" / "test.json"
    path = path if path.exists() else place / "out" / "slow" / "trial-01" / "test.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"checkpoint": "step-00000004"}))
    code, said = drive(driver, capsys, *where, "--data", place / "data")
    assert code == 1
    assert "its test set has been used" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "no folder small in nowhere or"),
        (["--data", "nowhere", "--only", "fats"], "unknown row; choose from slow, fast"),
    ],
)
def test_what_is_missing_is_one_clear_line(
    driver: Any,
    capsys: pytest.CaptureFixture[str],
    place: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    code, said = drive(
        driver, capsys, "--table", place / "table.toml", "--out", tmp_path, *arguments
    )
    assert code == 1
    assert message in said


def test_it_runs_as_a_program_with_its_own_table(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "results_table.py", "--out", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "--data FOLDER is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_data_that_are_made_of_others_are_made_once(driver: Any, tmp_path: Path) -> None:
    lines = "".join(f"English {n}.\tDeutsch {n}.\n" for n in range(16_000))
    (tmp_path / "deu.txt").write_text(lines)
    table = tmp_path / "table.toml"
    row = {"name": "one", "recipe": "multi30k-budget", "made_from": "deu.txt"}
    budget = {"trials": 1, "minutes": 1, "seeds": 0}
    tables = {"joined": {"title": "Joined", "data": "joined", "rows": [row]}}
    table.write_text(tomlkit.dumps({"budget": budget, "tables": tables}))
    (found,) = driver.read_rows(table)
    out = tmp_path / "out"
    driver.make_data(found, tmp_path, out)
    made = (out / "data" / "joined" / "train.en").stat().st_mtime_ns
    driver.make_data(found, tmp_path, out)
    assert (out / "data" / "joined" / "train.en").stat().st_mtime_ns == made


def test_every_row_is_a_recipe_that_comes_with_heedful(driver: Any) -> None:
    rows = driver.read_rows(BENCHMARKS / "results_table.toml")
    for row in rows:
        recipe = check_recipe(read_recipe(find_recipe(row.recipe)), row.recipe)
        assert recipe.data.test
        assert recipe.tune, "all rows say what is searched"
        assert row.against in {other.key for other in rows}
