"""``heedful view``: one HTML file, a saved trace, the page; clear refusals."""

import base64
import json
import re
import signal
import zlib
from pathlib import Path
from urllib.parse import unquote_plus

import httpx
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from command_help import PIPE, Started
from heedful.basics.errors import UserError
from heedful.cli import view
from heedful.inference import Trace
from heedful.viewing.trace_encoding import map_bytes
from serving_help import small_run

TEXT = "the cat sat on the mat."
torch.set_num_threads(1)
app = typer.Typer()
app.callback()(lambda: None)
view.register(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    small_run(folder, source="en", target="de")
    return folder


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["view", *map(str, arguments)])


def embedded(path: Path) -> dict[str, list[dict[str, object]]]:
    found = re.search(r'id="heedful-data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert found is not None
    data: dict[str, list[dict[str, object]]] = json.loads(found[1])
    return data


def test_a_run_becomes_one_file_with_its_weights(folder: Path, tmp_path: Path) -> None:
    page, saved = tmp_path / "view.html", tmp_path / "trace.safetensors"
    result = call(
        folder / "run", TEXT, "--target", "a small dog", "--output", page, "--save", saved
    )
    assert result.exit_code == 0, result.output
    trace = Trace.load(saved)
    assert trace.title == TEXT
    assert {one.kind for one in trace.maps} == {"weights", "rollout", "gradient"}
    assert trace.faithfulness is not None
    assert trace.faithfulness["words"] == len(trace.faithfulness["dropped"]) == 1
    [shown] = embedded(page)["traces"]
    assert isinstance(shown["summary"], dict)
    assert shown["summary"]["faithfulness"] == trace.faithfulness
    packed = shown["maps"]
    assert isinstance(packed, list)
    for i in range(len(trace.maps)):
        assert zlib.decompress(base64.b64decode(packed[i])) == map_bytes(trace, i)
    assert not re.search(r'(src|href)="(?!data:)', page.read_text(encoding="utf-8"))
    again = call(saved, "--output", tmp_path / "again.html")
    assert again.exit_code == 0, again.output
    assert embedded(tmp_path / "again.html") == embedded(page)


def test_two_runs_on_one_sentence_and_a_given_translation(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    result = call(
        folder / "run", TEXT, "--target", "a dog", "--with", folder / "run", "--output", page
    )
    assert result.exit_code == 0, result.output
    titles = [one["title"] for one in embedded(page)["traces"]]
    assert titles == [f"run: {TEXT}", f"run-2: {TEXT}"]
    [first, _] = embedded(page)["traces"]
    assert isinstance(first["summary"], dict)
    assert "".join(first["summary"]["decided"]).replace("▁", " ").strip() == "a dog</s>"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--output", "x.html"], "needs a text"),
        (["run", TEXT, "--output", "x.png"], "must end in .html"),
        (["run", TEXT, "--save", "x.html"], "must end in .safetensors"),
        (["run", TEXT, "--with", "run", "--save", "x.safetensors"], "one trace"),
        (["run", TEXT, "--target", "a"], "--target needs --output"),
        (["run", " ", "--output", "x.html"], "the source is empty"),
        (["nothing", TEXT, "--output", "x.html"], "no run"),
        (["nothing.safetensors"], "cannot read"),
        (["run/recipe.toml", TEXT, "--output", "x.html"], "is not a run"),
    ],
)
def test_wrong_input_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    result = call(*arguments)
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not list(folder.glob("x.*"))


def test_the_page_is_served_to_this_machine_until_it_is_interrupted(
    folder: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "kept.safetensors"
    assert call(folder / "run", TEXT, "--save", saved).exit_code == 0
    command = ("view", folder / "run", TEXT, "--with", saved, "--no-browser")
    with Started(*command, stderr=PIPE) as process:
        assert process.stderr is not None
        line, shown = process.stderr.readline(), None
        while "serving" not in line:
            shown = shown or re.search(r"http://127\.0\.0\.1:\d+/#text=(\S+)", line)
            line = process.stderr.readline()
        assert shown is not None
        assert unquote_plus(shown[1]) == TEXT
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found is not None, line
        models = httpx.get(f"{found[0]}api/models", timeout=30).json()
        assert [one["name"] for one in models["models"]] == ["run"]
        assert models["traces"] == ["kept"]
        told = httpx.post(f"{found[0]}api/trace", json={"trace": "kept"}, timeout=30).json()
        assert told["title"] == TEXT
        assert "heedful" in httpx.get(found[0], timeout=30).text
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
