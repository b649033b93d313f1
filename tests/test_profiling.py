"""Profiles of training steps: nothing changes, and the files say where the time goes."""

import gzip
import json
import re
from pathlib import Path

import pytest
import torch
from tests.test_threads import TRANSFORMER, task, two_threads
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.runs.checkpoints import model_tensors
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.training.loop import Loop
from heedful.training.profiling import Profiler, phase, shares
from heedful.training.report import Report
from heedful.training.train import train

__all__ = ["two_threads"]  # pytest finds the fixture here
CPU = torch.device("cpu")


def trained(folder: Path, steps: int, profile: int) -> dict[str, Tensor]:
    data = folder.with_suffix(".data")
    data.mkdir()
    one = task(data, TRANSFORMER, 2500)
    settings = TrainingSettings(
        max_steps=steps, validate_every=100, warmup_steps=2, accumulation_steps=2
    )
    with Report(steps) as report:
        loop = Loop(
            one,
            settings,
            folder,
            seed=1,
            device=CPU,
            precision="float32",
            report=report,
            profile=profile,
        )
        assert loop.run()
    return model_tensors(one.model)


def test_a_profile_changes_no_weight_and_shows_operators_of_all_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = trained(tmp_path / "without", 6, 0)
    assert not (tmp_path / "without" / "profile").exists()
    found = trained(tmp_path / "with", 6, 2)
    assert all(torch.equal(found[name], tensor) for name, tensor in without.items())
    assert re.search(r"profiled 2 steps: data \d+%, forward \d+%, back", capsys.readouterr().err)
    text = (tmp_path / "with" / "profile" / "summary.txt").read_text()
    assert text.startswith("2 steps on cpu with 2 threads: number 4 to 5 of this process")
    phases, operators = text.split("operator ")
    percent = [float(one) for one in re.findall(r"([\d.]+)%", phases)]
    assert len(percent) == 5
    assert sum(percent) == pytest.approx(100, abs=0.5)
    assert "(forward, outside operators)" in operators
    assert "aten::mm" in operators
    with gzip.open(tmp_path / "with" / "profile" / "trace.json.gz", "rt") as file:
        trace = json.load(file)
    assert trace["host_name"] == ""
    spans = [event for event in trace["traceEvents"] if event.get("name") == "heedful: forward"]
    assert len(spans) == 2 * 2 * 2  # steps, batches of a step, threads
    assert len({event["tid"] for event in spans}) == 2


def test_training_that_ends_early_writes_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "some", 4, 10)
    assert (tmp_path / "some" / "profile" / "summary.txt").read_text().startswith("1 step on")
    trained(tmp_path / "none", 3, 10)
    assert "no step was profiled" in capsys.readouterr().err
    assert not (tmp_path / "none" / "profile").exists()


def test_an_error_in_a_profiled_step_is_raised_as_it_is(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, 2, CPU, print)

    def failing(step: int) -> float:
        with profiler.step(), phase("forward"):
            return 1 / (4 - step)

    with pytest.raises(ZeroDivisionError), profiler:
        list(map(failing, range(5)))
    assert not (tmp_path / "profile").exists()
    timed = profiler._phases.seconds()
    assert timed.keys() == {"step", "forward"}
    with phase("forward"):  # no longer timed
        pass
    assert profiler._phases.seconds() == timed


def test_phases_without_threads_are_not_scaled() -> None:
    found = shares({"step": 10.0, "gradients": 7.0, "forward": 2.0, "backward": 4.0, "data": 1.0})
    assert found == {"data": 1, "forward": 2, "backward": 4, "optimiser": 0, "other": 3}


def test_the_number_of_steps_is_checked_before_anything_else(tmp_path: Path) -> None:
    for steps in (-1, 101):
        with pytest.raises(UserError, match=f"--profile {steps}: give a number of steps from 1"):
            train("no-such-recipe", tmp_path / "run", profile=steps)
