"""Sizes on paper of recordings, images, stories, summaries and algorithms, against a step of their
training; those of all built-in recipes."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.basics.errors import UserError
from heedful.data.positions import Position
from heedful.runs.model_size import count_parameters
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, write_toml
from heedful.tasks.algorithm.batches import AlgorithmBatch
from heedful.tasks.size_description import describe_size
from heedful.tasks.size_on_paper import Assumptions, size_on_paper
from heedful.tasks.spec import spec_named
from heedful.training.operations import operation_counter

LETTERS = "abcdef"
RATE, STEP = 8000, 0.015
FRAMES = 81
"""Of 1.215 seconds, in which 18 characters are said."""
STEPS = 7
SHORT = {"transcription": 40, "synthesis": 24, "answer": 2, "image-classification": None}
"""Task → the length of a row, in which a step of its recipes takes less than a second or two."""


def one_for_each_model() -> list[str]:
    """A built-in recipe for each kind of model of each task."""
    found: dict[tuple[str, str, str], str] = {}
    for path in sorted(find_recipe("ntm-copy").parent.glob("*.toml")):
        # Steps of the large recurrent models of WMT14 are computed, which takes seconds.
        if "gnmt" in path.stem:
            continue
        tables = read_recipe(path)
        model = tables.get("model", {})
        kind = model.get("kind", ""), model.get("language_model", {}).get("kind", "")
        found.setdefault((tables.get("task", "translation"), *kind), path.stem)
    return list(found.values())


def letters(first: int, count: int) -> list[str]:
    return [LETTERS[(first + place) % len(LETTERS)] for place in range(count)]


def write_images(folder: Path) -> int:
    """Images with a label each and a caption of four words; returns their number."""
    rows = ["image\tlabel\tcaption"]
    for number in range(10):
        Image.new("RGB", (16, 12), (number, 0, 0)).save(folder / f"{number}.png")
        rows.append(f"{number}.png\tlabel {number}\t{' '.join(letters(number, 4))}")
    (folder / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 10


def write_sounds(folder: Path) -> int:
    """Recordings of 18 characters."""
    rng = np.random.default_rng(1)
    rows = ["path\ttext"]
    for number in range(3):
        samples = 0.1 * rng.standard_normal(round((FRAMES - 1) * STEP * RATE))
        soundfile.write(folder / f"{number}.wav", samples, RATE)
        rows.append(f"{number}.wav\t{''.join(letters(number, 18))}")
    (folder / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 3


def write_stories(folder: Path) -> int:
    """Questions about three facts, with 196 words, of which 100 are answers."""
    rows = []
    for number in range(100):
        words = [f"w{(number + place) % 96}" for place in range(21)]
        facts = [" ".join(words[first : first + 7]) for first in (0, 7, 14)]
        one = {"story": facts, "question": " ".join(words[:5]), "answer": f"a{number}"}
        rows.append(json.dumps({**one, "supports": [1, 2]}))
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 100


def write_texts(folder: Path) -> int:
    """Texts of fourteen words with summaries of six."""
    one = {"source": " ".join(letters(0, 14)), "target": " ".join(letters(0, 6))}
    (folder / "train.jsonl").write_text(f"{json.dumps(one)}\n" * 4, encoding="utf-8")
    return 4


def draw(folder: Path) -> int:
    """Examples of this task are drawn; returns the rows of a batch."""
    return 5


class Case(NamedTuple):
    """A small model and its data; a batch has all of them."""

    task: str
    write: Callable[[Path], int]
    row: int
    """What a row counts in ``batch_tokens``, less one."""
    length: int | None
    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]

    @property
    def of_rows(self) -> bool:
        """Whether operations are given for a row."""
        return self.task in ("image-classification", "captioning", "answer")


IMAGES = {"train": "train.tsv", "size": [12, 16], "colours": "rgb"}
CAPTIONS = {**IMAGES, "minimum_count": 1, "vocabulary_size": 10}
SOUNDS = {
    "train": "train.tsv", "vocabulary_size": 10, "longest": 1.3,
    "features": {"rate": RATE, "bands": 16, "step": STEP, "window": 0.06},
}  # fmt: skip
STORIES = {"train": "train.jsonl"}
SUMMARIES = {
    "train": "train.jsonl", "longest_source": 14, "longest_summary": 6, "minimum_count": 1,
    "vocabulary_size": 10,
}  # fmt: skip
COPY = {"kind": "copy", "bits": 2, "sizes": [3, 3]}
ENCODER = {"encoder": {"widths": [8, 16], "blocks": 1, "stem": "small"}}
SMALL = {"layers": 1, "hidden_size": 24, "ffn_size": 48}
CELL = {**ENCODER, "kind": "recurrent", "embedding_size": 16, "hidden_size": 24}
MACHINE = {"hidden_size": 12, "slots": 8, "slot_size": 6}
PIXELS = 12 * 16 * 3


def image(**model: Any) -> Case:
    return Case("image-classification", write_images, PIXELS, None, IMAGES, model, {})


def caption(model: dict[str, Any], **training: Any) -> Case:
    return Case("captioning", write_images, PIXELS, 5, CAPTIONS, model, training)


def transcription(**model: Any) -> Case:
    return Case("transcription", write_sounds, FRAMES, FRAMES, SOUNDS, model, {})


def synthesis(**model: Any) -> Case:
    return Case("synthesis", write_sounds, FRAMES, FRAMES, SOUNDS, model, {})


def algorithm(**model: Any) -> Case:
    return Case("algorithm", draw, 7 - 1, 7, COPY, model, {})


def answer(model: dict[str, Any], **training: Any) -> Case:
    return Case("answer", write_stories, 3 * 7, 3, STORIES, {"memory": 4, **model}, training)


def summary(model: dict[str, Any], **training: Any) -> Case:
    return Case("summary", write_texts, 15, 15, SUMMARIES, model, training)


CASES = {
    "convolutional": image(kind="convolutional"),
    "residual": image(kind="residual", widths=[8, 16], blocks=1),
    "vision-transformer": image(kind="transformer", patch_size=4, heads=2, **SMALL),
    "glimpses": image(kind="glimpses", hidden_size=24, samples=3),
    "soft-captions": caption({**CELL, "attention": "bahdanau"}, coverage=1.0),
    "hard-captions": caption({**CELL, "attention": "hard-reinforce"}),
    "transformer-captions": caption({"kind": "transformer", "heads": 2, **ENCODER, **SMALL}),
    "listener": transcription(
        kind="recurrent", outputs="both", attention={"score": "location-aware"}, encoder_size=16,
        hidden_size=24,
    ),
    "ctc-transformer": transcription(kind="transformer", outputs="ctc", heads=2, **SMALL),
    "tacotron": synthesis(
        kind="recurrent", embedding_size=16, encoder_size=12, hidden_size=24, prenet_size=16,
        postnet_channels=8, frames_per_step=2,
    ),
    "speaking-transformer": synthesis(kind="transformer", postnet_channels=8, heads=2, **SMALL),
    "turing-machine": algorithm(kind="neural-turing-machine", **MACHINE),
    "neural-computer": algorithm(kind="differentiable-neural-computer", **MACHINE),
    "memory-network": answer({"kind": "memory-network", "hidden_size": 16}, supervision=1.0),
    "story-transformer": answer({"kind": "story-transformer", **SMALL}),
    "story-machine": answer({"kind": "story-machine", "embedding_size": 8}, batch_rows=9),
    "pointer-generator": summary(
        {"kind": "pointer-generator", "hidden_size": 16, "coverage": True}, coverage=1.0
    ),
    "summary-transformer": summary({"kind": "transformer", "heads": 2, **SMALL}),
    "copying-transformer": summary(
        {"kind": "transformer", "copy_source": True, "heads": 2, **SMALL}
    ),
}  # fmt: skip


class Step(NamedTuple):
    """A real step of training."""

    parameters: int
    rows: int
    forward: int
    """Operations without gradients: the kernel of the cross-entropy computes its gradients in the
    forward pass."""
    whole: int
    """With the backward pass."""


def in_float64(batch: Any) -> Any:
    """The same batch, for a model in float64."""
    if isinstance(batch, AlgorithmBatch):
        return replace(batch, inputs=batch.inputs.double())
    columns = {
        name: replace(one, values=one.values.double()) if one.values.is_floating_point() else one
        for name, one in batch.columns.items()
    }
    return replace(batch, columns=columns)


def real_step(recipe: Any, folder: Path) -> Step:
    """Prepare a run, and compute its first batch with PyTorch's unfused products, which its counter
    sees one by one."""
    spec = spec_named(recipe.task)
    run = spec.prepare(folder / "run", recipe, folder, None)
    model: Any = spec.fresh_model(run)
    model.train().double()
    cpu = torch.device("cpu")
    task: Any = spec.build_task(run, model, recipe.training, cpu, "float32")
    _, drawn = next(iter(task.batches(Position(1, 0, 0))))
    batch = in_float64(drawn)
    with sdpa_kernel(SDPBackend.MATH):
        with operation_counter() as forward, torch.no_grad():
            task.loss(batch)
        with operation_counter() as whole:
            task.loss(batch).total.backward()
    drawn_rows = isinstance(batch, AlgorithmBatch)
    rows = len(batch.inputs if drawn_rows else next(iter(batch.columns.values())).lengths)
    counted = forward.get_total_flops(), whole.get_total_flops()
    return Step(count_parameters(model), rows, *counted)


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_operations_are_those_of_a_training_step(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    most = case.write(tmp_path) * (case.row + 1)
    training = {"max_steps": STEPS, "batch_tokens": most, **case.training}
    tables = {"task": case.task, "data": case.data, "model": case.model, "training": training}
    recipe: Any = check_recipe(tables, name)
    (tmp_path / "recipe.toml").write_text(write_toml(recipe), encoding="utf-8")
    step = real_step(recipe, tmp_path)
    given = Assumptions(batch=step.rows, length=case.length)
    found = size_on_paper(str(tmp_path / "recipe.toml"), given)
    assert found["parameters"] == step.parameters
    units = step.rows if case.of_rows else step.rows * (case.length or 1)
    operations = found["operations_per_token"]
    # The kernel of the cross-entropy multiplies a bias as one more column of the table.
    assert operations["forward"] * units == pytest.approx(step.forward, rel=2e-4)
    assert operations["training"] * units == pytest.approx(step.whole, rel=2e-4)
    assert found["training"]["tokens"] == STEPS * (step.rows if case.of_rows else most)


@pytest.mark.parametrize("name", one_for_each_model())
def test_every_model_of_a_built_in_recipe_has_a_size(name: str) -> None:
    task = read_recipe(find_recipe(name)).get("task", "translation")
    found = size_on_paper(name, Assumptions(length=SHORT.get(task, 8)))
    operations, text = found["operations_per_token"], describe_size(found)
    assert 0 < operations["forward"] < operations["training"]
    assert f"{found['parameters']:,}" in text
    assert f"a {found['unit']} " in text or f"an {found['unit']} " in text


def test_convolutions_have_the_operations_of_the_formula() -> None:
    """Two convolutions of 7 × 7 with 16 channels, each before a pooling by 2, and a linear map."""
    found = size_on_paper("mnist-convolutional", Assumptions(batch=3))
    first, second, last = 28**2 * 16 * 7**2, 14**2 * 16**2 * 7**2, 7**2 * 16 * 10
    operations = found["operations_per_token"]
    assert operations["forward"] == 2 * (first + second + last)
    assert operations["training"] == 6 * (first + second + last) - 2 * first  # images are given
    assert found["parameters"] == 16 * 7**2 + 16 + 16**2 * 7**2 + 16 + 7**2 * 16 * 10 + 10


def test_each_batch_of_a_step_counts(tmp_path: Path) -> None:
    alone = size_on_paper("mnist-convolutional", Assumptions())["training"]["tokens"]
    assert alone == 5000 * 128
    own = 'base = "mnist-convolutional"\n[training]\naccumulation_steps = 3\nvirtual_shards = 2\n'
    (tmp_path / "recipe.toml").write_text(own, encoding="utf-8")
    more = size_on_paper(str(tmp_path / "recipe.toml"), Assumptions())
    assert more["training"]["tokens"] == 6 * alone
    assert more["source"] == "5,000 steps of 768 images, as the recipe says"


@pytest.mark.parametrize(("name", "given", "says"), [
    ("an4", {"length": 4000}, "--length 4000: at most 3,001 frames of 10 ms in an4"),
    ("babi-memory-network", {"length": 51}, "at most 50 facts"),
    ("flickr8k-soft", {"length": 41}, "at most 40 tokens"),
    ("multi30k-recurrent-none-gru", {"length": 600}, "at most 512 target tokens"),
    ("cifar10-residual", {"length": 9}, "every image of 32 × 32 pixels in colour has one size"),
    ("ntm-copy", {"batch": 10**15}, "need more memory than there is"),
    ("gpt2-small", {"batch": 10**18}, "need more memory than there is"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(name: str, given: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        size_on_paper(name, Assumptions(**given))


def test_settings_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    own = 'base = "cifar10-transformer"\n[model]\npatch_size = 5\n'
    (tmp_path / "recipe.toml").write_text(own, encoding="utf-8")
    with pytest.raises(UserError, match="cannot be cut into patches of 5 × 5"):
        size_on_paper(str(tmp_path / "recipe.toml"), Assumptions())


def test_the_text_says_what_is_counted() -> None:
    shown = describe_size(size_on_paper("mnist-perceiver", Assumptions(batch=3)))
    assert "3 images of 28 × 28 pixels in grey; " in shown
    assert "FLOPs an image" in shown
    assert "6N" not in shown
    shown = describe_size(size_on_paper("flickr8k-transformer", Assumptions()))
    assert "1 image of 96 × 96 pixels in colour with a caption of 16 tokens; " in shown


def test_the_page_shows_what_the_command_prints() -> None:
    text = (Path(__file__).parents[1] / "docs" / "sizes.md").read_text(encoding="utf-8")
    found = size_on_paper("cifar10-transformer", Assumptions(batch=64))
    assert f"```text\n{describe_size(found)}\n```" in text
