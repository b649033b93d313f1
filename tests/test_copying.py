"""The benchmark of copying and reversing: strings, scores, going on where it stopped."""

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.data.positions import Position
from heedful.models import PairModel, Source

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by its name, as ``python benchmarks/NAME.py`` would."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


class Echo(PairModel):
    """Says what it was told, with its first ``wrong`` symbols replaced and ``more`` at the end."""

    def __init__(self, wrong: int = 0, more: int = 0) -> None:
        super().__init__()
        self.wrong, self.more = wrong, more

    def start(self, source: Source) -> "Heard":
        symbols = source.tokens[:, :-1].clone()
        symbols[:, : self.wrong] = 33 - symbols[:, : self.wrong]  # 4 … 29 the other way round
        extra = torch.full((len(symbols), self.more), 4)
        end = torch.full((len(symbols), 1), END)
        return Heard(torch.cat([symbols, extra, end], 1))

    def step(self, tokens: Tensor, state: "Heard") -> tuple[Tensor, "Heard"]:
        return torch.nn.functional.one_hot(state.left[:, 0], 30) * 9.0, Heard(state.left[:, 1:])


class Heard:
    def __init__(self, left: Tensor) -> None:
        self.left = left

    def select(self, rows: Tensor) -> "Heard":
        return Heard(self.left[rows])


def test_strings_are_what_they_should_be(benchmark: Any) -> None:
    make = benchmark("copying_task").make_batch
    copied, turned = make("copy", 3, 7, 5), make("reverse", 3, 7, 5)
    assert torch.equal(copied.source, turned.source)
    assert torch.equal(copied.target_out, copied.source)
    assert torch.equal(turned.target_out[:, :-1].flip(1), turned.source[:, :-1])
    for batch in (copied, turned):
        assert batch.target_in[:, 0].eq(BEGIN).all()
        assert torch.equal(batch.target_in[:, 1:], batch.target_out[:, :-1])
        assert batch.target_out[:, -1].eq(END).all()
        assert batch.weight == batch.target_out.numel() == int(batch.target_lengths.sum())
    many = make("copy", 400, 50, 6).source[:, :-1]
    assert set(many.unique().tolist()) == set(range(4, 30))


def test_a_batch_is_a_function_of_its_place(benchmark: Any) -> None:
    task = benchmark("copying_task").CopyTask(Echo(), "copy")
    first = list(itertools.islice(task.batches(Position(1)), 60))
    again = list(itertools.islice(task.batches(first[19][0]), 40))
    for (place, batch), (other_place, other) in zip(first[20:], again, strict=True):
        assert place == other_place
        assert torch.equal(batch.source, other.source)
    lengths = {batch.source.shape[1] - 1 for _, batch in first}
    assert min(lengths) < 10
    assert max(lengths) > 40
    _, other = next(task.batches(Position(2)))
    assert not torch.equal(other.source[:, :1], first[0][1].source[:, :1])


def test_scores_count_symbols_and_whole_strings(benchmark: Any) -> None:
    score = benchmark("copying_task").score
    right = score(Echo(), "copy", 10, 7, rows=3)
    assert right.exact.tolist() == right.symbols.tolist() == [1.0] * 7
    some = score(Echo(wrong=3), "copy", 10, 7)
    assert some.exact.sum() == 0
    torch.testing.assert_close(some.symbols, torch.full((7,), 0.7))
    long = score(Echo(more=2), "copy", 10, 7)
    assert long.exact.sum() == 0
    assert long.symbols.tolist() == [1.0] * 7
    endless = score(Echo(more=500), "copy", 200, 2)
    assert endless.symbols.tolist() == [1.0] * 2
    assert score(Echo(), "reverse", 40, 7).symbols.mean() < 0.2


def test_an_interval_holds_the_mean(benchmark: Any) -> None:
    values = (torch.rand(200, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    low, high = benchmark("copying").interval(values)
    mean = values.mean().item()
    half = 1.96 * (mean * (1 - mean) / 200) ** 0.5
    assert (low, high) == (
        pytest.approx(mean - half, abs=0.01),
        pytest.approx(mean + half, abs=0.01),
    )


def test_it_runs_and_goes_on(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = benchmark("copying")
    words = "--tasks reverse --systems none-gru --trial-updates 1 --updates 2 --longer 2"
    words += f" --strings 3 --lengths 3 60 --out {tmp_path} --json {tmp_path}/found.json"
    words += f" --picture {tmp_path}/found.svg"
    copying.main(words.split())
    out, shown = capsys.readouterr()
    assert "step 2/2" in shown
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    assert [one["title"] for one in found] == [
        "GRU, no attention",
        "GRU, no attention, 2 × the updates",
    ]
    for one in found:
        assert one["rate"] == min(one["trials"], key=lambda trial: trial["loss"])["rate"]
        assert set(one["lengths"]) == {"3", "60"}
    assert out.count("\n| GRU, no attention") == 6  # three tables
    copying.main(words.split())
    again, shown = capsys.readouterr()
    assert again == out
    assert "step" not in shown
    assert (tmp_path / "found.svg").read_text().count("×") > 0
