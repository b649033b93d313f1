"""Runs and traces of version 0.1 are still of use: ``tests/data/runs-0.1``."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

import heedful
from earlier_runs import CASES, UNFINISHED, filled_in, with_earlier_names
from heedful.cli import main
from heedful.inference.trace import Trace
from heedful.runs.opening import open_run

EARLIER = Path(__file__).parent / "data" / "runs-0.1"
TRACED = [name for name, case in CASES.items() if "trace" in case.commands]
COMMANDS = [
    (name, what)
    for name, case in CASES.items()
    for what, arguments in case.commands.items()
    if arguments[0] != "-c"
]
RELATIVE = 2e-3  # of figures, on other processors


@pytest.fixture(scope="module")
def commands() -> Any:
    if not main.app.registered_commands:
        main._register()
    return main.app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in the folder where the commands were given."""
    shutil.copytree(EARLIER, tmp_path / "earlier")
    monkeypatch.chdir(tmp_path / "earlier")
    return tmp_path / "earlier"


def pieces(text: str) -> Iterator[str | float]:
    """Words and numbers of a text, so that numbers can be compared as such."""
    for word in text.replace(",", " , ").replace("}", " } ").replace("]", " ] ").split():
        try:
            yield float(word)
        except ValueError:
            yield word


@pytest.mark.parametrize(("name", "what"), COMMANDS)
def test_commands_print_what_they_printed(
    name: str, what: str, folder: Path, commands: Any
) -> None:
    arguments = filled_in(CASES[name].commands[what], f"{name}/run")
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.output
    expected = json.loads((folder / name / "outputs.json").read_text("utf-8"))[what]
    now, then = list(pieces(done.stdout)), list(pieces(expected))
    assert [each for each in now if isinstance(each, str)] == [
        each for each in then if isinstance(each, str)
    ]
    numbers = [[each for each in side if isinstance(each, float)] for side in (now, then)]
    assert numbers[0] == pytest.approx(numbers[1], rel=RELATIVE, abs=RELATIVE)


def recorded_axes(path: Path) -> Any:
    """The axes as the file has them: in version 0.1, lists of tokens."""
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["trace"])["axes"]


@pytest.mark.parametrize("name", TRACED)
def test_a_trace_opens_and_is_made_again(
    name: str, folder: Path, commands: Any, tmp_path: Path
) -> None:
    earlier = Trace.load(folder / name / "trace.safetensors")
    arguments = filled_in(
        CASES[name].commands["trace"], f"{name}/run", str(tmp_path / "now.safetensors")
    )
    if arguments[0] == "-c":
        heedful.load(arguments[2]).trace(*arguments[4:]).save(arguments[3])
    else:
        assert CliRunner().invoke(commands, arguments).exit_code == 0
    now = Trace.load(tmp_path / "now.safetensors")
    for axes in (now.axes, earlier.axes):
        labels = {axis: own.labels for axis, own in axes.items()}
        assert labels == recorded_axes(folder / name / "trace.safetensors")
    assert [each.name for each in now.maps] == [each.name for each in earlier.maps]
    for one, other in zip(now.maps, earlier.maps, strict=True):
        torch.testing.assert_close(one.weights, other.weights, rtol=RELATIVE, atol=RELATIVE)


@pytest.mark.parametrize("name", CASES)
def test_facts_are_told(name: str, folder: Path, commands: Any) -> None:
    done = CliRunner().invoke(commands, ["info", f"{name}/run", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["task"], told["step"]) == (CASES[name].recipe["task"], 50)
    assert told["finished"]


@pytest.mark.parametrize("name", CASES)
def test_recipes_of_today_differ_in_names_alone(name: str) -> None:
    earlier = tomllib.loads((EARLIER / name / "recipe.toml").read_text("utf-8"))
    assert with_earlier_names(CASES[name].recipe) == earlier


@pytest.mark.parametrize("name", UNFINISHED)
def test_an_interrupted_run_is_resumed(name: str, folder: Path, commands: Any) -> None:
    run = f"{name}/unfinished"
    assert open_run(run).result is None
    # Its user's recipe has names of settings that are refused; what heedful wrote is read.
    done = CliRunner().invoke(commands, ["train", f"{name}/recipe.toml", "--out", run])
    assert re.fullmatch(r".*/recipe\.toml: \w+\.\w+ is now \w+\.\w+", str(done.exception))
    assert open_run(run).result is None
    own = [] if name == "translation" else [f"{run}/recipe.toml"]
    done = CliRunner().invoke(commands, ["train", *own, "--data", "data", "--out", run])
    assert done.exit_code == 0, done.output
    weights = [
        load_file(folder / name / which / "checkpoints" / "step-00000050" / "model.safetensors")
        for which in ("unfinished", "run")
    ]
    assert weights[0].keys() == weights[1].keys()
    for key, tensor in weights[1].items():
        if key.endswith("key_projection.bias"):
            continue  # Its gradient is rounding alone, of which Adam makes steps of full size.
        # Rounding of another processor grows from step to step; a lost random state is far more.
        torch.testing.assert_close(weights[0][key], tensor, rtol=0.02, atol=0.02)
