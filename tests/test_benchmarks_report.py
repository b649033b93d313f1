"""Reports of the benchmarks: goals, growth of cost, profiles. Speeds are not tested."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by its name, as ``python benchmarks/NAME.py`` would."""
    sys.path.insert(0, str(BENCHMARKS))
    limits = importlib.import_module("limits")
    before = limits.SLICE, limits.WIDTH, limits.READ
    limits.SLICE, limits.WIDTH, limits.READ = 0.0, 64, 1 << 16
    yield importlib.import_module
    limits.SLICE, limits.WIDTH, limits.READ = before
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def corpus_folder(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    corpus = benchmark("corpus").prepare_corpus(folder, None, 600, 300)
    (corpus.folder / "test.json").write_text(json.dumps(corpus.test), encoding="utf-8")
    return Path(corpus.folder)


def row(*speeds: float) -> dict[str, Any]:
    return {"median": sorted(speeds)[len(speeds) // 2], "all": list(speeds)}


def test_goals_are_met_or_missed_by_the_rounds_ratios(benchmark: Any) -> None:
    rows = {
        "CTranslate2": row(100, 200, 400),
        "ours": row(10, 10, 10),
        "ours, bfloat16": row(90, 180, 200),
        "ours, int8": row(900, 900, 900),
    }
    precisions = ["float32", "float32", "bfloat16", "int8"]
    sides = {name: {"precision": one} for name, one in zip(rows, precisions, strict=True)}
    found = {"sides": sides, "searches": {"greedy": {"rows": rows}, "beam 5": {"rows": rows}}}
    times = {"CTranslate2, 1 thread": {"p50": [2.0]}, "CTranslate2, 2 threads": {"p50": [4.0]}}
    times |= {"CTranslate2, int8, 1 thread": {"p50": [0.1]}, "ours, 1 thread": {"p50": [1.9]}}
    one = {"sides": {"ours, 1 thread": {"precision": "float32"}}, "rows": times}
    training = {"variants": {"ours": row(30), "Eole": row(10), "plain loop": row(9)}}
    results = {
        "translate_speed": {"sizes": {"tiny": found}},
        "one_sentence": {"sizes": {"base": one}},
        "train_speed": {"sizes": {"tiny": training}},
    }
    lines = benchmark("goals").report(results).splitlines()
    said = {tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines[4:]}
    best, wanted = "ours, bfloat16", ("≥ 0.8×", "≥ 1.2×")
    what = "translate, tiny, greedy, best float precision"
    assert (what, best, "CTranslate2 float32", "0.90×", *wanted, "must met") in said
    quick = ("≤ 1× its time", "≤ 0.7× its time", "must met")
    what = "one sentence at a time, p50, base"
    assert (what, "ours, 1 thread", "CTranslate2 float32", "0.95×", *quick) in said
    assert any(cells[0] == "train tiny" and cells[3] == "3.33×" for cells in said)
    verdicts = {cells[0]: cells[-1] for cells in said}
    assert verdicts["translate, tiny, greedy, int8"] == "CTranslate2, int8 skipped"
    assert verdicts["train base"] == "not measured"
    goals = benchmark("goals")
    assert goals.verdict(goals.GOALS[0], 0.79) == "**missed**"


def test_growth_is_measured_and_drawn(benchmark: Any, tmp_path: Path) -> None:
    cost_growth = benchmark("cost_growth")
    options = cost_growth.parse(
        ["--sizes", "smallest", "--repetitions", "1", "--threads", "1", "--length", "3"]
    )
    axes = {"batch": [1, 3], "beam": [1, 2], "source": [8, 40], "vocabulary": [50, 90]}
    found = json.loads(json.dumps(cost_growth.measure(options, axes)))
    assert {
        axis: [one["value"] for one in found["sizes"]["smallest"][axis]] for axis in axes
    } == axes
    cost_growth.draw(found, tmp_path / "growth.svg")
    assert "source tokens" in (tmp_path / "growth.svg").read_text(encoding="utf-8")
    point = found["sizes"]["smallest"]["beam"][1]
    point["more"] = 1.6
    assert "smallest, beam 2: 1.6×" in cost_growth.report(found)


def test_a_profile_names_where_the_time_goes(benchmark: Any, tmp_path: Path) -> None:
    profile_step = benchmark("profile_step")
    small = ["--sizes", "smallest", "--threads", "1", "--vocabulary", "400", "--pairs", "40"]
    options = profile_step.parse([*small, "--batch-tokens", "128", "--rows", "3", "--length", "3"])
    found = json.loads(json.dumps(profile_step.measure(options, tmp_path)))
    profiles = found["sizes"]["smallest"]
    assert len(profiles) == 3
    training = profiles["3 training steps, float32"]["groups"]
    assert training["matrix products"] > 0
    assert training["optimiser"] > 0
    assert "| matrix products " in profile_step.report(found)
    assert profile_step.group_of("aten::_softmax") == "softmax and loss"
    assert profile_step.group_of("aten::addmm") == "matrix products"


def test_every_benchmark_has_a_quick_form_that_it_understands(benchmark: Any) -> None:
    run = benchmark("run")
    assert set(run.QUICK) == {*run.REPORTS, run.MEMORY}
    for name in run.REPORTS:
        benchmark(name).parse([*run.QUICK[name], "--json", "--threads", "1"])


def test_what_is_slower_beside_a_busy_process_is_marked(benchmark: Any) -> None:
    machine = benchmark("reporting").machine(2)
    rows = {
        "fine": {"1": [0.2, 0.1, 0.3], "2": [0.25, 0.1, 0.26]},
        "slow": {"1": [0.2, 0.1, 0.3], "2": [0.25, 0.9, 0.27]},
    }
    found = json.loads(json.dumps({"machine": machine, "busy": True, "rows": rows}))
    text = benchmark("beside_busy").report(found)
    fine, slow = (line for line in text.splitlines() if line.startswith(("| fine", "| slow")))
    assert [cell.strip() for cell in fine.split("|")[2:6]] == ["200", "250", "1.25×", "yes"]
    assert [cell.strip() for cell in slow.split("|")[2:6]] == ["200", "270", "1.35×", "**no**"]


def test_rows_beside_a_busy_process_do_their_work(benchmark: Any, corpus_folder: Path) -> None:
    beside_busy = benchmark("beside_busy")
    small = {"kind": "transformer", "layers": 1, "hidden_size": 16, "ffn_size": 32, "heads": 2}
    for work in (
        beside_busy.additive(70, backward=True),
        beside_busy.translating(corpus_folder, small, 2, 3),
        beside_busy.translating(corpus_folder, small, 1, 2, each=True),
        beside_busy.serving(corpus_folder, small, 1, 2),
    ):
        work()
