"""Scores in recipes of Transformers: heedful's by name, and one from a plug-in."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from command_help import run_command
from heedful.attention import watch
from heedful.attention.scores import Score, build_score, register_score
from heedful.attention.scores.registry import _builders
from heedful.basics.errors import UserError
from heedful.inference.fusing import searched
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.recipe import check_recipe
from stepping import assert_steps_are_teacher_forcing

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "examples" / "plugins" / "manhattan.py"
SIZES = {"layers": 1, "hidden_size": 8, "ffn_size": 8, "heads": 2, "max_length": 32}


def model_of(score: str) -> Transformer:
    torch.manual_seed(1)
    normalizer = "plain-sum" if score == "exp-dot" else "softmax"
    attention = {"score": score, "normalizer": normalizer}
    settings = TransformerSettings.model_validate({**SIZES, "attention": attention})
    return Transformer(settings, 20, 20).eval()


@pytest.mark.parametrize("score", [name for name, kind in _builders.items() if not kind.reads_past])
@torch.no_grad()
def test_steps_are_teacher_forcing(score: str) -> None:
    model = model_of(score)
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))

    assert_steps_are_teacher_forcing(model, searched(model), source, target)


def test_every_attention_has_the_score() -> None:
    dot, cosine = model_of("scaled-dot"), model_of("cosine")
    found = {name for name, _ in cosine.named_modules() if name.endswith(".score")}
    assert len(found) == 3
    for name in found:
        assert type(cosine.get_submodule(name)).__name__ == "Cosine"
    cosine.load_state_dict(dot.state_dict())
    source, target = Source(torch.tensor([[4, 5, 6]]), torch.tensor([3])), torch.tensor([[2, 7]])
    seen: list[Any] = []
    for model in (dot, cosine):
        with watch(model) as weights:
            model.states(source, target)
        seen.append(weights)
    for name in ("decoder.0.self_attention", "decoder.0.cross_attention"):
        assert not torch.allclose(seen[0][name][0], seen[1][name][0])


def test_an_unknown_score_names_the_nearest() -> None:
    tables = {
        "data": {"train": ["a.tsv"]},
        "model": {"kind": "transformer", "attention": {"score": "scaled_dot"}},
    }
    with pytest.raises(UserError, match=r"model.attention.score.* did you mean 'scaled-dot'\?"):
        check_recipe(tables, "the recipe")
    with pytest.raises(ValueError, match="with --plugin"):
        build_score("mystery", 4)


def heedful(folder: Path, *arguments: str) -> Any:
    return run_command(*arguments, cwd=folder)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(UserError, match=r"'dot' .* is already registered"):
        register_score("dot", lambda width: Score())
    with pytest.raises(UserError, match=r"'dot' .* is already registered"):
        register_score("dot", _builders["cosine"])


RECIPE = """
[data]
train = "pairs.tsv"
source = "en"
target = "de"
max_tokens = 30
[tokeniser]
vocabulary_size = 356
[model]
layers = 1
hidden_size = 8
ffn_size = 8
heads = 2
max_length = 40
attention.score = "manhattan"
[data.filters]
duplicates = false
[training]
max_steps = 4
checkpoint_every = 2
batch_tokens = 200
warmup_steps = 1
precision = "float32"
device = "cpu"
threads = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("manhattan")
    words = ["the dog sees", "a cat likes", "the small bird knows"]
    lines = [f"{one} {number}\t{one} {number}\n" for number in range(40) for one in words]
    (place / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    (place / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    done = heedful(place, "train", "recipe.toml", "--out", "run", "--plugin", str(PLUGIN))
    assert done.returncode == 0, done.stderr
    return place


def test_a_score_from_a_plug_in_trains_and_resumes(folder: Path) -> None:
    train = ("train", "recipe.toml", "--plugin", str(PLUGIN), "--out", "parts")
    assert heedful(folder, *train, "--set", "training.max_steps=2").returncode == 0
    assert heedful(folder, *train).returncode == 0
    whole, parts = (
        load_file(folder / run / "checkpoints" / "step-00000004" / "model.safetensors")
        for run in ("run", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    state = folder / "run" / "checkpoints" / "step-00000004" / "state.json"
    recorded = json.loads(state.read_text(encoding="utf-8"))["parts"]
    assert recorded["decoder.0.cross_attention.score"].endswith(".Manhattan")


def test_a_run_with_a_score_from_a_plug_in_is_used(folder: Path) -> None:
    (folder / "in.txt").write_text("the dog sees 1\n\na cat\n", encoding="utf-8")
    plugin = ("--plugin", str(PLUGIN))
    done = heedful(folder, "translate", "run", "in.txt", *plugin)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    save = ("--save", "trace.safetensors", "--no-browser")
    done = heedful(folder, "view", "run", "the dog sees 1", *save, *plugin)
    assert done.returncode == 0, done.stderr


def test_no_export_has_the_score(folder: Path) -> None:
    done = heedful(folder, "export", "hf", "run", "--out", "out", "--plugin", str(PLUGIN))
    assert done.returncode == 2
    assert "model.attention.score = 'manhattan'" in done.stderr


def test_a_run_without_its_plug_in_says_so(folder: Path) -> None:
    done = heedful(folder, "info", "run")
    assert done.returncode == 2
    assert "'manhattan'" in done.stderr
    assert "--plugin" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_documented_score_is_the_example() -> None:
    text = PLUGIN.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 15
    shown = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    assert shown in (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
