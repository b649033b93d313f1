"""The benchmarks of single texts run, go on where they stopped, and score once."""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from text_help import RECIPES, write_data

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by its name, as ``python benchmarks/NAME.py`` would."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and recipes whose test set is what is held out."""
    folder = tmp_path_factory.mktemp("benchmarks")
    (folder / "data").mkdir()
    write_data(folder / "data")
    for name in ("masked", "tagging", "classification"):
        tables: dict[str, Any] = json.loads(json.dumps(RECIPES[name]))
        tables["data"]["test"] = tables["data"]["validation"]
        if name == "tagging":
            tables["tokeniser"] = RECIPES["masked"]["tokeniser"]
        if name == "classification":
            tables["data"] |= {"train": "lines.txt", "format": "label-text"}
            tables["data"] |= {"validation": [], "test": [], "validation_share": 0.2}
        (folder / f"{name}.toml").write_text(tomlkit.dumps(tables))
    lines = [f"{label} the {label} thing number {n}" for n in range(30) for label in ("up", "down")]
    (folder / "data" / "lines.txt").write_bytes("\n".join(lines).encode("latin-1"))
    return folder


def test_ten_folds_part_the_lines(benchmark: Any, folder: Path, tmp_path: Path) -> None:
    folds = benchmark("folds")
    folds.make(folder / "data", str(folder / "classification.toml"), tmp_path)
    lines = Counter((folder / "data" / "lines.txt").read_text().split("\n"))
    tested: Counter[str] = Counter()
    for fold in range(10):
        parts = {
            part: Counter((tmp_path / f"fold-{fold}.{part}").read_text().splitlines())
            for part in ("train", "test")
        }
        assert parts["train"] + parts["test"] == lines
        assert parts["test"].total() == 6
        tested += parts["test"]
    assert tested == lines


def test_a_table_is_made_once(
    benchmark: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: dict[str, Any] = {
        "before": {"name": "pre-training", "seeds": 0, "recipe": "masked"},
        "after": {"name": "tagging", "start": "before", "recipe": "tagging"},
        "folds": {"name": "lines", "folds": 1, "recipe": "classification"},
    }
    rows["before"]["figures"] = ["masked_accuracy"]
    for row in rows.values():
        row |= {"recipe": str(folder / f"{row['recipe']}.toml"), "data": "data"}
    table = tmp_path / "table.toml"
    table.write_text(tomlkit.dumps({"budget": {"trials": 1, "seeds": 1}, "rows": rows}))
    results = benchmark("text_results")
    arguments = ["--table", table, "--data", folder, "--out", tmp_path / "out"]
    assert results.main(list(map(str, arguments))) == 0
    found = {row["key"]: row for row in json.loads(read(tmp_path / "out" / "text_results.json"))}
    assert {key: row["runs"] for key, row in found.items()} == {"before": 1, "after": 2, "folds": 1}
    tuning = json.loads(read(tmp_path / "out" / "after" / "tuning.json"))
    for trial in [*tuning["trials"], *tuning["further"]]:
        run = json.loads(read(tmp_path / "out" / "after" / trial["folder"] / "run.json"))
        assert run["started_from"]["run"].endswith("before/trial-00")
    for scores in (tmp_path / "out").glob("*/*/test.json"):
        assert json.loads(read(scores))["scores"], scores
    scored = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*/test.json")}
    assert len(scored) == 4
    assert results.main([*map(str, arguments), "--only", "folds"]) == 0
    assert scored == {path: path.stat().st_mtime_ns for path in scored}
    assert "| lines" in capsys.readouterr().out
    assert results.main([*map(str, arguments), "--only", "nothing"]) == 2


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_characters_beside_a_peer(benchmark: Any, tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("to be or not to be, that is the question.\n" * 60, encoding="utf-8")
    arguments = [text, "--out", tmp_path / "out", "--rounds", 1, "--steps", 2, "--max-steps", 3]
    assert benchmark("character_model").main(list(map(str, arguments))) == 0
    found = json.loads(read(tmp_path / "out" / "character_model.json"))
    assert found["time"]["ours"]["ratio"] > 0
    assert 0 < found["validation"]["loss"] < 10


def test_the_penalty_parts_the_hops(benchmark: Any, tmp_path: Path) -> None:
    questions = [
        f"{n % 2} what {word} is number {n} ?" for n in range(80) for word in ("colour", "time")
    ]
    for name in ("TREC.train.all", "TREC.test.all"):
        (tmp_path / name).write_text("\n".join(questions) + "\n", encoding="latin-1")
    picture = tmp_path / "penalty.svg"
    arguments = ["--data", tmp_path, "--out", tmp_path / "out", "--picture", picture]
    arguments += ["--steps", 6, "--seeds", 1, "--penalties", 0, 30]
    assert benchmark("penalty").main(list(map(str, arguments))) == 0
    without, with_it = json.loads(read(tmp_path / "out" / "penalty.json"))
    assert with_it["disagreement"] < without["disagreement"]
    assert picture.stat().st_size > 1000
