"""``make results``: one command makes all comparisons, resumes them, and scores nothing twice."""

import contextlib
import importlib
import io
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import typer

import heedful.cli.compare
from command_help import run_command
from heedful.basics.errors import UserError
from heedful.runs.recipe import compare_settings, find_recipe, read_recipe
from test_compare import SMALL
from test_training import write_corpus

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``results``, with its commands run here: each process of its own would load PyTorch."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    made = importlib.import_module("results")
    monkeypatch.setattr(made, "run_command", run_here)
    return made


def run_here(arguments: list[str]) -> int:
    """What a command ends with."""
    app = typer.Typer()
    heedful.cli.compare.register(app)
    app.command(name="other")(lambda: None)  # with one command, typer takes no name
    with contextlib.redirect_stdout(io.StringIO()):
        return typer.main.get_command(app).main(arguments, standalone_mode=False) or 0


def drive(driver: Any, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Its exit code, and its last line on standard error."""
    capsys.readouterr()
    code = driver.main(list(map(str, arguments)))
    return code, (capsys.readouterr().err.splitlines() or [""])[-1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two comparisons, one of them with a further test set."""
    folder = tmp_path_factory.mktemp("results")
    data = folder / "data" / "small"
    data.mkdir(parents=True)
    for seed, part in enumerate(("train", "validation", "test", "other")):
        write_corpus(data / f"{part}.tsv", 200 if part == "train" else 12, seed)
    for name, values in (("first", [0.0, 0.1]), ("second", [0.0, 0.2])):
        compared = {"seeds": 1, "budget": 2, "vary": {"model.dropout": values}}
        (folder / f"{name}.toml").write_text(tomlkit.dumps({**SMALL, "compare": compared}))
    tables = {
        str(folder / "first.toml"): {"data": "small"},
        str(folder / "second.toml"): {"data": "small", "test": ["other.tsv"]},
    }
    (folder / "table.toml").write_text(tomlkit.dumps(tables))
    return folder


@pytest.mark.slow
def test_comparisons_are_made_and_nothing_is_scored_twice(
    driver: Any, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    out = place / "out"
    where = ["--table", place / "table.toml", "--out", out, "--data", place / "data"]
    assert drive(driver, capsys, *where, "--only", "first")[0] == 0
    text = (out / "results.md").read_text()
    assert "Missing: second, second-test." in text
    assert text.count("## Results") == 1
    scores = {path: path.stat().st_mtime_ns for path in out.rglob("test.json")}
    assert len(scores) == 2
    assert drive(driver, capsys, *where)[0] == 0
    assert all(path.stat().st_mtime_ns == made for path, made in scores.items())
    assert len(list(out.rglob("test.json"))) == 6
    text = (out / "results.md").read_text()
    assert "Missing" not in text
    assert text.count("## Results") == 3
    for line in text.splitlines():
        if line.startswith("!["):
            assert (out / line.partition("(")[2].rstrip(")")).is_file()
    # What was scored at another checkpoint is not scored again; the other comparison is made.
    path = out / "first" / "dropout-0.1" / "seed-3" / "test.json"
    path.write_text(path.read_text().replace('"checkpoint": "step-', '"checkpoint": "other-'))
    (out / "second-test" / "report.json").unlink()
    code, said = drive(driver, capsys, *where)
    assert code == 1
    assert "its test set has been used" in said
    assert (out / "second-test" / "report.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "no folder small in nowhere or"),
        (["--data", "nowhere", "--only", "fist"], "unknown; choose from first, second"),
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
    where = ["--table", place / "table.toml", "--out", tmp_path]
    code, said = drive(driver, capsys, *where, *arguments)
    assert code == 1
    assert message in said


def test_it_runs_as_a_program_with_its_own_table(tmp_path: Path) -> None:
    done = run_command("--out", tmp_path, program=BENCHMARKS / "results.py")
    assert done.returncode == 1
    assert "--data FOLDER is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_data_that_are_made_of_others_are_made_once(driver: Any, tmp_path: Path) -> None:
    lines = "".join(f"English {n}.\tDeutsch {n}.\n" for n in range(16_000))
    (tmp_path / "deu.txt").write_text(lines)
    (tmp_path / "input.txt").write_text("0123456789" * 9)
    joined = driver.Comparison("compare-positions", "joined", "deu.txt", ("long.en",))
    cut = driver.Comparison("compare-windows", "tinyshakespeare-cut", "input.txt")
    out = tmp_path / "out"
    for one, name in ((joined, "train.en"), (cut, "validation.txt")):
        driver.make_data(one, tmp_path, out)
        made = (out / "data" / one.data / name).stat().st_mtime_ns
        driver.make_data(one, tmp_path, out)
        assert (out / "data" / one.data / name).stat().st_mtime_ns == made
        assert driver.find_folder(one, [tmp_path, out / "data"]) == out / "data" / one.data
    generated = driver.Comparison("compare-recall", "associative-recall")
    for name in ("train.tsv", "test.tsv"):
        driver.make_data(generated, tmp_path, out)
        assert (out / "data" / "associative-recall" / name).is_file()
    assert driver.find_folder(generated, [tmp_path, out / "data"]).name == "associative-recall"
    (out / "data" / "joined" / "long.en").unlink()
    with pytest.raises(UserError, match=r"has no long\.en"):
        driver.find_folder(joined, [out / "data"])


def test_every_comparison_is_a_recipe_that_comes_with_heedful(driver: Any) -> None:
    for one in driver.read_comparisons(BENCHMARKS / "results.toml"):
        tables = read_recipe(find_recipe(one.recipe))
        assert compare_settings(tables, one.recipe).vary
