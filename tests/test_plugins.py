"""``--plugin``: files of the user's own that add tasks and commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_help import run_command
from heedful.basics.errors import UserError
from heedful.runs import registry
from heedful.runs.registry import load_file as load_plugin
from heedful.serving import make_application

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "picture_captions.py"


def heedful(folder: Path, *arguments: str) -> Any:
    return run_command(*arguments, cwd=folder)


COMMAND = """
from dataclasses import dataclass
from typing import Annotated
import typer
from heedful.tasks.spec import Command, register
from heedful.tasks.tagging import Tagging

@dataclass(frozen=True)
class Options:
    \"\"\"Shout a word.\"\"\"
    word: Annotated[str, typer.Argument(help="What is shouted.")]
    twice: Annotated[bool, typer.Option("--twice", help="Two times.")] = False

@dataclass(frozen=True)
class Data:
    loudness: Annotated[str | None, typer.Option("--loud", help="Of the shouts.")] = None

class Shouting(Tagging):
    name = "shouting"
    command = "{command}"
    place = 900
    train_option = "shout"
    corpus = "a list of shouts"
    trace_options = frozenset(("echo",))

    def data_options(self):
        return Data

    def commands(self, loads):
        return [Command(self.command, Options, self.run)]

    def run(self, options):
        print(options.word.upper() * (2 if options.twice else 1))

register(Shouting())
"""


def test_help_lists_tasks_and_commands_of_plugins(tmp_path: Path) -> None:
    file = tmp_path / "shouting.py"
    file.write_text(COMMAND.format(command="shout"), encoding="utf-8")
    told = heedful(tmp_path, "--help", "--plugin", str(file), "--plugin", str(PLUGIN)).stdout
    tasks = " ".join(told.split()).replace("- ", "-")  # a line may end at a hyphen
    assert "shouting (shout)" in tasks
    assert "picture-captions (predict)" in tasks
    assert "Shout a word." in told
    for arguments in (
        ("--plugin", file, "shout", "a"),
        ("shout", "a", "--twice", "--plugin", file),
    ):
        done = heedful(tmp_path, *map(str, arguments))
        assert done.stdout.strip() == "A" * (1 + ("--twice" in arguments)), done.stderr
    assert "Two times." in heedful(tmp_path, "shout", "--help", "--plugin", str(file)).stdout
    train = " ".join(heedful(tmp_path, "train", "--help", "--plugin", str(file)).stdout.split())
    assert "with --task shout a list of shouts" in train
    assert "--loud <str> Of the shouts." in train
    wrong = ("train", "--data", "x.tsv", "--out", "run", "--loud", "3", "--plugin", str(file))
    assert "--loud is for --task shout, not for translate" in heedful(tmp_path, *wrong).stderr
    file.write_text(COMMAND.format(command="tag"), encoding="utf-8")
    both = heedful(tmp_path, "info", "--plugin", str(file))
    assert both.returncode == 2
    assert "the tasks 'tagging' and 'shouting' both have a command tag" in both.stderr


def test_requests_for_traces_have_the_options_of_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.kinds()
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    monkeypatch.setattr(registry, "_loaded", {})
    file = tmp_path / "echoing.py"
    file.write_text(COMMAND.format(command="shout"), encoding="utf-8")
    for present in (False, True):
        application = make_application()
        application.state.engine.close()
        assert ('"echo"' in json.dumps(application.openapi()["paths"]["/api/trace"])) is present
        load_plugin(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import none_such", r"broken\.py:1: ModuleNotFoundError"),
        ("x = 1\nraise ValueError('why')", r"broken\.py:2: ValueError: why"),
        ("def", r"broken\.py: SyntaxError"),
    ],
)
def test_a_broken_plugin_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_plugin(tmp_path / "broken.py")
    with pytest.raises(UserError, match="no plug-in at"):
        load_plugin(tmp_path / "missing.py")


def test_a_plugin_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.kinds()
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    monkeypatch.setattr(registry, "_loaded", {})
    for path in (PLUGIN, PLUGIN.parent / ".." / PLUGIN.parent.name / PLUGIN.name):
        load_plugin(path)
    copy = tmp_path / PLUGIN.name
    copy.write_bytes(PLUGIN.read_bytes())
    with pytest.raises(UserError, match="is already registered"):
        load_plugin(copy)


def test_a_plugin_needs_a_file() -> None:
    done = heedful(Path.cwd(), "info", "--plugin")
    assert (done.returncode, "--plugin needs a file" in done.stderr) == (2, True)
