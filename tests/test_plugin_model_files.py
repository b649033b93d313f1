"""The models of ``examples/plugins``, used without a change to heedful."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file
from starlette.testclient import TestClient
from torch import Tensor
from typer.testing import CliRunner

import heedful
from command_help import run_command
from heedful.attention import watch
from heedful.cli import evaluate, view
from heedful.inference.fusing import searched
from heedful.models import EncoderSettings, PairSettings, Source, build_encoder, build_model
from heedful.models.encoders import HeadedEncoder, sequences_of
from heedful.models.model_settings import builders
from heedful.runs import registry
from heedful.serving import Served, make_application
from heedful.tasks.spec import spec_of_run
from stepping import assert_steps_are_teacher_forcing

ROOT = Path(__file__).parents[1]
PAIRS = ROOT / "examples" / "plugins" / "pair_model.py"
TEXTS = ROOT / "examples" / "plugins" / "text_encoder.py"
TRAINING = """
[training]
max_steps = 4
checkpoint_every = 2
validate_every = 4
batch_tokens = 200
warmup_steps = 1
schedule = "constant"
precision = "float32"
device = "cpu"
threads = 1
"""
PAIR_RECIPE = f"""
[data]
train = "pairs.tsv"
validation = "held.tsv"
source = "en"
target = "de"
max_tokens = 30
filters.duplicates = false
[tokeniser]
vocabulary_size = 356
[model]
kind = "gru-pairs"
hidden_size = 16
max_length = 60
{TRAINING}
"""
TEXT_RECIPE = f"""
task = "TASK"
max_tokens = 40
[data]
train = "train.tsv"
validation = "train.tsv"
COLUMNS
[tokeniser]
kind = "characters"
[model]
kind = "convolution"
hidden_size = 16
{TRAINING}
"""


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both models, in this process, for one test."""
    before = dict(builders)
    monkeypatch.setattr(registry, "_loaded", {})
    for file in (PAIRS, TEXTS):
        registry.load_file(file)
    yield
    builders.clear()
    builders.update(before)


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / "step-00000004" / "model.safetensors")


def train_twice(folder: Path, recipe: str, begin: Callable[[], object]) -> None:
    """A run that was not interrupted, ``whole``, and one that ``begin`` begins, ``parts``."""
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    heedful.train(folder / "recipe.toml", folder / "whole", data=folder)
    half = recipe.replace("max_steps = 4", "max_steps = 2")
    (folder / "half.toml").write_text(half, encoding="utf-8")
    begin()
    heedful.train(folder / "recipe.toml", folder / "parts", data=folder)
    whole, parts = weights(folder / "whole"), weights(folder / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a run of the pair model."""
    place = tmp_path_factory.mktemp("pairs")
    words = ["the dog sees", "a cat likes", "the small bird knows"]
    lines = [f"{one} {number}\t{one} {number}\n" for number in range(40) for one in words]
    (place / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    (place / "held.tsv").write_text("".join(lines[:6]), encoding="utf-8")
    (place / "in.txt").write_text("the dog sees 1\n\na cat\n", encoding="utf-8")
    return place


def test_a_pair_model_trains_and_resumes(folder: Path) -> None:
    def begin() -> None:
        command = ["train", "half.toml", "--out", "parts", "--data", ".", "--plugin", str(PAIRS)]
        done = run_command(*command, cwd=folder)
        assert done.returncode == 0, done.stderr

    train_twice(folder, PAIR_RECIPE, begin)


@torch.no_grad()
def test_steps_are_teacher_forcing() -> None:
    torch.manual_seed(1)
    settings = PairSettings.model_validate({"kind": "gru-pairs", "hidden_size": 8})
    model = build_model(settings, 20, 20).eval()
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))

    assert_steps_are_teacher_forcing(model, searched(model), source, target)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(1)
    settings = EncoderSettings.model_validate({"kind": "convolution", "hidden_size": 8})
    encoder = build_encoder(settings, 20).eval()
    alone = encoder(sequences_of([[7, 9]]))
    beside = encoder(sequences_of([[7, 9], [5, 6, 7, 8, 9]]))
    torch.testing.assert_close(beside.pooled[:1], alone.pooled)
    torch.testing.assert_close(beside.states[:1, :4], alone.states)
    model = HeadedEncoder(encoder, {})
    depths = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert depths == {
        "encoder.tokens.weight": 0,
        "encoder.convolution.weight": 1,
        "encoder.convolution.bias": 1,
        "encoder.question": 1,
    }
    with watch(encoder) as seen:
        encoder(sequences_of([[7, 9], [5, 6, 7, 8, 9]]))
    assert seen["attention"][0].shape == (2, 1, 1, 7)


def test_a_pair_model_is_used_and_served(folder: Path) -> None:
    if not (folder / "whole").exists():
        pytest.skip("the run is trained by the test before")
    lines = (folder / "in.txt").read_text(encoding="utf-8").splitlines()
    run, spec = spec_of_run(folder / "whole")
    predictor = spec.load(run.path)
    texts = [one.text for one in predictor.predict(lines)]
    app = typer.Typer()
    evaluate.register(app)
    view.register(app)
    out = str(folder / "view.html")
    for arguments in (
        ("evaluate", str(run.path), "--data", str(folder / "held.tsv")),
        ("view", str(run.path), lines[0], "--output", out),
    ):
        assert CliRunner().invoke(app, arguments).exception is None
    trace = spec.trace(predictor, lines[0])
    assert [one.name for one in trace.maps] == ["attention", "attention × gradient"]
    count = len(trace.axes["target"].labels)
    torch.testing.assert_close(trace["attention"].weights.sum(-1), torch.ones(1, count))
    assert len(spec.load(run.path, precision="int8").predict(lines)) == 3
    application = make_application([Served("run", predictor)])
    with TestClient(application, base_url="http://127.0.0.1") as client:
        answer = client.post("/api/predict/run", json={"inputs": lines[:1]}).json()
        assert answer["results"][0]["text"] == texts[0]
    application.state.engine.close()


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_a_text_encoder_trains_resumes_and_decides(task: str, tmp_path: Path) -> None:
    if task == "classification":
        columns = 'text = "text"\nlabel = "label"'
        rows = [f"{'ab'[n % 2] * 5} {n}\t{'xy'[n % 2]}" for n in range(60)]
        content = "text\tlabel\n" + "\n".join(rows) + "\n"
    else:
        columns, content = "", "".join(f"a\tX\nb\tY\n{n}\tX\n\n" for n in range(60))
    (tmp_path / "train.tsv").write_text(content, encoding="utf-8")
    recipe = TEXT_RECIPE.replace("TASK", task).replace("COLUMNS", columns)
    begin = functools.partial(
        heedful.train, tmp_path / "half.toml", tmp_path / "parts", data=tmp_path
    )
    train_twice(tmp_path, recipe, begin)
    run, spec = spec_of_run(tmp_path / "whole")
    (result,) = spec.load(run.path).predict(["a b 1"])
    assert result


@pytest.mark.parametrize(("file", "most"), [(PAIRS, 80), (TEXTS, 60)])
def test_the_documented_models_are_the_examples(file: Path, most: int) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= most
    shown = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    assert shown in (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
