"""The retrieval experiment of fast weights: its data, its models, its report."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def retrieval() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield importlib.import_module("key_retrieval")
    torch.set_num_threads(threads)
    sys.path.remove(str(BENCHMARKS))


def test_the_last_value_of_a_key_is_right(retrieval: Any) -> None:
    random = torch.Generator().manual_seed(1)
    given = retrieval.draw(3, 5, 10, True, random)
    for keys, values in zip(given.keys.tolist(), given.values.tolist(), strict=True):
        pairs = dict(zip(keys, values, strict=True))  # later pairs replace earlier ones
        one = retrieval.Sequences(torch.tensor([keys]), torch.tensor([values]))
        found = retrieval.last_value(one, torch.tensor([list(pairs)]))
        assert found.tolist() == [list(pairs.values())]
    once = retrieval.draw(3, 5, 5, False, random)
    assert once.keys.sort(1).values.tolist() == [list(range(5))] * 3


@pytest.mark.parametrize("name", ["linear-sum", "dpfp-1-delta"])
def test_models_learn_to_retrieve(retrieval: Any, name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(retrieval, "TESTS", 5)
    found = retrieval.train(name, 4, False, 1, 300)
    assert found["loss"] < 0.8 * found["curve"][0]
    assert found["steps"] == 300


def test_results_are_trained_once_and_reported(
    retrieval: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path), "--keys", "3", "--steps", "100", "--with-replacement"]
    figure = tmp_path / "curves.svg"
    command = [*arguments, "--models", "softmax", "--figure", str(figure)]
    assert retrieval.main(command) == 0
    path = tmp_path / "softmax-3-again-1.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "loss": 0.25}))
    assert retrieval.main(command) == 0
    assert "0.250" in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")
    assert retrieval.main(["--out", str(tmp_path / "none"), "--report"]) == 2


@pytest.mark.slow
def test_the_loop_of_the_delta_rule_is_the_chunked_form(retrieval: Any, capsys: Any) -> None:
    delta_rule = importlib.import_module("delta_rule")
    assert delta_rule.main(["--length", "70", "--width", "4", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["ratio"] for row in found["rows"] if row["side"] == "loop"] == [1, 1]
    assert "| chunks" in delta_rule.report(found)
