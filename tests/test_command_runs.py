"""The command of a task refuses the run of another task, and names its command."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import task_commands

app = typer.Typer()
app.callback()(lambda: None)
task_commands.register(app)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("another") / "run"
    rows = [{"text": f"{word} {number}", "label": word} for word in "ab" for number in range(4)]
    recipe = {
        "task": "classification",
        "data": {"validation_share": 0.0},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "bert", "layers": 1, "hidden_size": 4, "heads": 1, "max_length": 16},
        "training": {"max_steps": 1},
        "max_tokens": 16,
    }
    assert heedful.train(recipe, folder, data={"train": rows})
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["answer"],
        ["ask", "--context", "text"],
        ["summarise"],
        ["classify-images", "a.png"],
        ["caption", "a.png"],
        ["transcribe", "a.wav"],
        ["speak", "hello", "-o", "out.wav"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_run_of_another_task_is_refused(
    run: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("A text.\n")
    name, *others = arguments
    done = CliRunner().invoke(app, [name, str(run), *others], input="one\n")
    assert isinstance(done.exception, UserError)
    assert str(done.exception) == f"{run} is a run for classification; use heedful classify"
    assert not (tmp_path / "out.wav").exists()
