"""``--plugin``: a task from a file of the user's own, ``examples/plugins/picture_labels.py``."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from heedful.basics.errors import UserError
from heedful.runs import registry
from heedful.runs.registry import load_file as load_plugin
from heedful.serving import make_application
from heedful.tasks.spec import spec_of_run
from page_help import browser, needs_browser, opened

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "picture_labels.py"
RECIPE = """
task = "picture-labels"
[data]
train = "train.txt"
validation = "held.txt"
[training]
learning_rate = 0.02
warmup_steps = 2
schedule = "constant"
max_steps = 40
validate_every = 20
checkpoint_every = 10
batch_tokens = 256
precision = "float32"
device = "cpu"
threads = 1
"""


def drawn(label: str, rng: random.Random) -> str:
    """A bar across the picture, horizontal or vertical, with noise."""
    place = rng.randrange(8)
    cells = [
        9 if place == (row if label == "horizontal" else column) else rng.randrange(3)
        for row in range(8)
        for column in range(8)
    ]
    return "".join(map(str, cells))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("pictures"), random.Random(1)
    for name, count in (("train.txt", 200), ("held.txt", 40)):
        labels = [rng.choice(["horizontal", "vertical"]) for _ in range(count)]
        lines = [f"{label}\t{drawn(label, rng)}\n" for label in labels]
        (place / name).write_text("".join(lines), encoding="utf-8")
    (place / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return place


def heedful(folder: Path, *arguments: str, given: str | None = None) -> Any:
    command = [sys.executable, "-m", "heedful", *arguments]
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True)


def test_a_task_from_a_file_trains_resumes_and_predicts(folder: Path) -> None:
    plugin = ("--plugin", str(PLUGIN))
    train = ("train", "recipe.toml", "--data", ".", *plugin)
    whole = heedful(folder, *train, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    assert "200 pictures" in whole.stderr
    part = ("--set", "training.max_steps=20", "--out", "parts")
    assert heedful(folder, *train, *part).returncode == 0
    assert heedful(folder, *train, "--out", "parts").returncode == 0
    weights = [
        load_file(folder / run / "checkpoints" / "step-00000040" / "model.safetensors")
        for run in ("whole", "parts")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

    pictures = [line.split("\t") for line in (folder / "held.txt").read_text().splitlines()]
    given = "".join(f"{digits}\n" for _, digits in pictures)
    found = heedful(folder, "predict", "whole", f"--plugin={PLUGIN}", given=given)
    assert found.returncode == 0, found.stderr
    labels = found.stdout.splitlines()
    assert len(labels) == len(pictures)
    right = sum(own == label for own, (label, _) in zip(labels, pictures, strict=True))
    told = heedful(folder, "info", "whole", "--json", *plugin)
    figures = json.loads(told.stdout)["validation"]
    assert right / len(pictures) == pytest.approx(figures["accuracy"])

    without = heedful(folder, "predict", "whole", given=given)
    assert without.returncode == 2
    assert "unknown task 'picture-labels'" in without.stderr
    assert "--plugin FILE.py" in without.stderr


def test_it_is_evaluated(folder: Path) -> None:
    if not (folder / "whole").exists():
        pytest.skip("the run is trained by the test before")
    plugin = ("--plugin", str(PLUGIN))
    how = ("--data", "held.txt", "--output", "labels.txt", "--json")
    found = heedful(folder, "evaluate", "whole", *how, *plugin)
    assert found.returncode == 0, found.stderr
    labels = (folder / "labels.txt").read_text().splitlines()
    right = [line.split("\t")[0] for line in (folder / "held.txt").read_text().splitlines()]
    share = sum(one == label for one, label in zip(labels, right, strict=True)) / len(right)
    accuracy = json.loads(found.stdout)["figures"]["accuracy"]
    assert accuracy == {"value": pytest.approx(100 * share), "unit": "%", "more_is_better": True}

    own = heedful(folder, *plugin, "evaluate", "whole")
    assert own.stdout.splitlines()[1:] == [
        "figure\tvalue\tbetter",
        f"accuracy\t{100 * share:.4g} %\tmore",
    ]
    told = json.loads(heedful(folder, "info", "whole", "--json", *plugin).stdout)
    assert told["scores"][0]["scores"]["accuracy"]["value"] == pytest.approx(100 * share)
    exported = heedful(folder, "export", "hf", "whole", "--out", "exported", *plugin)
    assert exported.returncode == 2
    assert "is a run for picture-labels, and Hugging Face's layout has no" in exported.stderr
    refused = heedful(folder, "evaluate", "whole", "--beam", "2", *plugin)
    assert refused.returncode == 2
    assert "whole is a run for picture-labels" in refused.stderr


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
    assert "shouting (shout)" in " ".join(told.split())
    assert "picture-labels (predict)" in " ".join(told.split())
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


@pytest.fixture
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's task, in this process."""
    registry.kinds()
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))  # other tests list all tasks
    monkeypatch.setattr(registry, "_loaded", {})
    load_plugin(PLUGIN)


@pytest.mark.usefixtures("_example")
def test_its_attention_is_traced(folder: Path) -> None:
    if not (folder / "whole").exists():
        pytest.skip("the run is trained by the test before")
    run, spec = spec_of_run(folder / "whole")
    digits = (folder / "held.txt").read_text().splitlines()[0].split("\t")[1]
    trace = spec.trace(spec.load(run.path), digits)
    patches = trace.axes["patches"]
    assert (patches.kind, patches.extent, patches.media.size) == ("image", (4, 4), (8, 8))
    torch.testing.assert_close(trace["attention"].weights.sum(), torch.tensor(1.0))


def first_picture(folder: Path) -> str:
    return (folder / "held.txt").read_text().splitlines()[0].split("\t")[1]


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server of the run, in a process of its own."""
    if not (folder / "whole").exists():
        pytest.skip("the run is trained by the first test")
    command = [sys.executable, "-m", "heedful", "serve", "whole", "--port=0", "--device=cpu"]
    with subprocess.Popen(
        [*command, "--plugin", str(PLUGIN)], cwd=folder, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "serving whole at" in said, said + process.stderr.read()
        yield said.split(" at ")[1].split(" ")[0]
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.usefixtures("_example")
def test_it_is_served(folder: Path, address: str) -> None:
    digits = first_picture(folder)
    run, spec = spec_of_run(folder / "whole")
    predictor = spec.load(run.path)
    with httpx.Client(base_url=address, timeout=30) as client:
        listed = client.get("/api/models").json()
        assert listed["readers"] == [
            {"name": "whole", "task": "picture-labels", "labels": ["horizontal", "vertical"]}
        ]
        assert listed["panels"] == [{"name": "predict", "title": "Predict", "models": ["whole"]}]
        assert listed["inputs"]["whole"]["required"] == ["picture"]
        given = {"inputs": [{"picture": digits}, {"picture": "0" * 64}]}
        answer = client.post("/api/predict/whole", json=given).json()
        expected = [one.to_json() for one in predictor.predict([digits, "0" * 64])]
        assert [one["label"] for one in answer["results"]] == [one["label"] for one in expected]
        for wrong, message in (
            ("1" * 64, "inputs.0: input should be a valid dictionary"),
            ({"picture": "12"}, "inputs.0.picture: string should match"),
            ({"picture": digits, "more": 1}, "inputs.0.more: extra inputs are not permitted"),
        ):
            refused = client.post("/api/predict/whole", json={"inputs": [wrong]})
            assert refused.status_code == 400
            assert message in refused.json()["error"]
        trace = {"model": "whole", "input": {"picture": digits}}
        found = client.post("/api/trace", json=trace).json()
        assert found["kinds"]["patches"]["kind"] == "image"
        weights = client.post("/api/attention", json={**trace, "map": 0}).content
        assert len(weights) == 16
        bad = client.post("/api/trace", json={**trace, "input": {"picture": "12"}})
        assert (bad.status_code, "input.picture" in bad.json()["error"]) == (400, True)


@needs_browser()
def test_the_page_has_a_panel_for_it(folder: Path, address: str) -> None:
    digits = first_picture(folder)
    with browser() as chromium, opened(chromium, address) as it:
        assert it.page.inner_text("[role=tab][aria-selected=true]") == "Predict"
        it.page.fill("textarea[aria-label=Picture]", digits[:10])
        it.page.wait_for_selector("text=string should match")
        # What the server refuses is logged by the browser as well.
        it.errors.clear()
        it.page.fill("textarea[aria-label=Picture]", digits)
        it.page.wait_for_selector(".heed-result dd")
        label = it.page.inner_text(".heed-result dd >> nth=0")
        assert label in ("horizontal", "vertical")
        it.tab("heads")
        it.page.wait_for_selector(".heed-over-picture >> visible=true")
        it.page.reload()
        it.tab("predict")
        it.page.wait_for_selector(".heed-result dd")
        assert it.page.input_value("textarea[aria-label=Picture]") == digits


def test_its_attention_is_viewed(folder: Path, tmp_path: Path) -> None:
    if not (folder / "whole").exists():
        pytest.skip("the run is trained by the first test")
    page = tmp_path / "view.html"
    arguments = ("view", "whole", first_picture(folder), "--output", str(page))
    done = heedful(folder, *arguments, "--plugin", str(PLUGIN))
    assert done.returncode == 0, done.stderr
    assert "data:image/" in page.read_text(encoding="utf-8")


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
