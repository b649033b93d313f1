"""Descriptions of images: reading, training, the command, evaluation, the trace, bad input."""

import io
import json
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from PIL import Image
from sacrebleu.metrics.bleu import BLEU
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import heedful
from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.cli import evaluate, plot, predict, task_commands, view
from heedful.cli import train as train_command
from heedful.data.column_batch import ColumnBatch
from heedful.data.columns import columns_of
from heedful.data.readers.images import (
    Form,
    as_uri,
    decoded,
    encoded,
    image_bytes,
    notice_uncaptioned,
    read_captioned,
)
from heedful.models import CaptionSettings, ImageShape, Scenes, build_caption_model
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.captioning import Captioning
from heedful.tasks.captioning.figures import caption_figures
from heedful.tasks.captioning.predictor import find_captions
from heedful.tasks.captioning.terms import Coverage
from heedful.tasks.captioning.training import CaptionTask, captions_of
from heedful.tasks.captioning.words import encode
from heedful.tasks.column_spec import LeftOutError
from heedful.tasks.image_input import seen_in
from heedful.tasks.spec import Opening, spec_of_run
from heedful.training.terms import TeacherForced
from page_help import needs_browser, opened
from serving_help import running

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}
RECIPE: dict[str, Any] = {
    "task": "captioning",
    "data": {
        "train": "train.tsv",
        "validation": "test.tsv",
        "test": "test.tsv",
        "images": "images",
        "size": [12, 16],
        "minimum_count": 1,
    },
    "model": {
        "kind": "recurrent",
        "encoder": {"widths": [8, 16], "blocks": 1, "stem": "small"},
        "embedding_size": 16,
        "hidden_size": 32,
        "dropout": 0.0,
    },
    "training": {
        "learning_rate": 0.005,
        "warmup_steps": 10,
        "schedule": "constant",
        "max_steps": 100,
        "validate_every": 50,
        "checkpoint_every": 50,
        "batch_tokens": 16 * 12 * 16 * 3,
        "choose_by": "bleu",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}


def scene(rng: np.random.Generator) -> tuple[Any, list[str]]:
    """A square in noise, with two captions."""
    image = rng.integers(0, 60, (12, 16, 3), dtype=np.uint8)
    colour, side = str(rng.choice([*COLOURS])), str(rng.choice(["left", "right"]))
    row, first = int(rng.integers(0, 8)), int(rng.integers(0, 3)) + (0 if side == "left" else 9)
    image[row : row + 4, first : first + 4] = COLOURS[colour]
    return image, [f"a {colour} square on the {side}.", f"on the {side} is a {colour} square."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("captions"), np.random.default_rng(1)
    (place / "images").mkdir()
    for part, count in (("train", 64), ("test", 20)):
        lines = ["image\tcaption"]
        for number in range(count):
            image, captions = scene(rng)
            Image.fromarray(image).save(place / "images" / f"{part}{number}.png")
            lines += [f"{part}{number}.png\t{caption}" for caption in captions]
        (place / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert heedful.train(RECIPE, place / "run", data=place)
    return place


def invoke(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    for one in (task_commands, evaluate, plot, predict, train_command, view):
        one.register(app)
    return CliRunner().invoke(app, list(arguments), **how)


# Reading and batches


def test_rows_of_an_image_are_its_captions(folder: Path, capsys: Any) -> None:
    table, names = folder / "two.tsv", {"image": "image", "caption": "caption"}
    text = "image\tcaption\ntrain1.png\tone\ntrain0.png\ttwo\n./train1.png\tthree\n"
    table.write_text(text, encoding="utf-8")
    found = list(read_captioned(str(table), folder="images", **names))
    assert [one.captions for one in found] == [["one", "three"], ["two"]]
    assert found[1].uri == as_uri(folder / "images" / "train0.png")
    assert not capsys.readouterr().err
    notice_uncaptioned([str(table)], "image", "caption", "images")
    assert "82 of 84 images have no caption" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("none.png\ta dog", r"\.tsv: cannot read the image"),
        ("train0.png\t ", "'caption' is empty; fill it in, or remove the row$"),
        ("\ta dog", "is empty"),
        ("../bad.tsv\ta dog", "not an image"),
    ],
)
def test_tables_that_cannot_be_used_are_named(folder: Path, row: str, message: str) -> None:
    table = folder / "bad.tsv"
    table.write_text(f"image\tcaption\n{row}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        list(read_captioned(str(table), image="image", caption="caption", folder="images"))
    with pytest.raises(UserError, match="no such folder"):
        list(read_captioned(str(table), image="image", caption="caption", folder="elsewhere"))


def test_batches_have_all_captions() -> None:
    known = {"words": [*"abcd"], "lower_case": True, "split": "spaces", "longest": 4}
    codecs, spec = Captioning().codecs(known), Captioning()
    texts = [["A b", "b"], ["c d a b", "a zebra d"]]  # with END, one is too long
    with pytest.raises(LeftOutError, match="all captions have 4 words or more"):
        encode(["a b c d"], known)
    rows = [
        {"image": np.full((2, 2, 3), number, np.uint8), "captions": encode(own, known)}
        for number, own in enumerate(texts)
    ]
    batch = ColumnBatch.of(columns_of(rows, codecs))
    found = captions_of(batch)
    assert found.owners.tolist() == [0, 0, 1]
    a, b, d = 4, 5, 7
    assert found.labels.tolist() == [[a, b, 3, 0], [b, 3, 0, 0], [a, 1, d, 3]]
    assert found.target_in.tolist() == [[2, a, b, 0], [2, b, 0, 0], [2, a, 1, d]]
    assert CaptionTask.weight_of(cast(Any, None), batch) == 9
    assert spec.name == "captioning"


def clip(path: Path, frames: int) -> list[Any]:
    """An animated file of frames of one brightness each; returns the frames."""
    images = [Image.new("RGB", (16, 12), (20 * number,) * 3) for number in range(frames)]
    images[0].save(path, save_all=True, append_images=images[1:])
    return images


@pytest.mark.parametrize("ending", ["gif", "webp", "png"])
def test_frames_of_a_clip_are_taken_at_equal_distances(ending: str, tmp_path: Path) -> None:
    clip(tmp_path / f"a.{ending}", 9)
    data = (tmp_path / f"a.{ending}").read_bytes()
    found = decoded(data, Form(12, 16, "grey", 5), "it").reshape(5, 12 * 16)
    assert abs(found.mean(1) - [0, 40, 80, 120, 160]).max() < 4
    again = decoded(
        image_bytes(encoded(found.reshape(60, 16, 1), 5)), Form(12, 16, "grey", 5), "it"
    )
    np.testing.assert_array_equal(again, found.reshape(60, 16, 1))
    one = decoded(data, Form(12, 16, "grey"), "it")
    assert one.shape == (12, 16, 1)
    with pytest.raises(UserError, match="9 frames, but a clip of this run has 12"):
        decoded(data, Form(12, 16, "grey", 12), "it")


def test_clips_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which half is bright: training, resuming, the trace over the frames, the command."""
    lines = ["image\tcaption"]
    for number in range(24):
        late = number % 2
        values = [30 + 200 * ((place >= 3) == bool(late)) for place in range(6)]
        frames = [Image.new("RGB", (16, 12), (value, number, 0)) for value in values]
        frames[0].save(tmp_path / f"{number}.png", save_all=True, append_images=frames[1:])
        lines.append(f"{number}.png\t{'late' if late else 'early'} light")
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": "t.tsv", "validation": "t.tsv", "test": "t.tsv", "size": [12, 16]}
    training = {**RECIPE["training"], "max_steps": 90, "validate_every": 30, "flip": True}
    training |= {"checkpoint_every": 30, "batch_tokens": 8 * 6 * 12 * 16 * 3}
    recipe = {**RECIPE, "training": training}
    recipe["data"] = {**data, "minimum_count": 1, "frames": 6}
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path)
    run, spec = spec_of_run(tmp_path / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["BLEU-1"].value == pytest.approx(100)
    done = invoke("caption", str(tmp_path / "run"), str(tmp_path / "3.png"))
    assert done.stdout == "late light\n"
    trace = heedful.load(tmp_path / "run", device="cpu").trace(seen_in(str(tmp_path / "3.png")))
    axis = trace.axes["frames"]
    assert (axis.kind, axis.extent, axis.labels[2]) == ("frames", (6,), "frame 3")
    assert axis.media is not None
    assert axis.media.size == (12, 96)
    monkeypatch.setattr("heedful.inference.media.MOST_PIXELS", 50)  # of a side
    thin = heedful.load(tmp_path / "run", device="cpu").trace(seen_in(str(tmp_path / "3.png")))
    assert thin.axes["frames"].media.size == (6, 48)
    monkeypatch.undo()
    assert trace["decoder.attention"].weights.shape == (1, 3, 6)
    drawn = tmp_path / "drawn.svg"
    arguments = ("plot", str(tmp_path / "run"), str(tmp_path / "3.png"), "--output", str(drawn))
    assert invoke(*arguments).exit_code == 0
    assert invoke(*arguments[:3]).exit_code == 0


# Losses and figures


def test_coverage_is_the_papers() -> None:
    """Xu et al. 2015, equation 14, over the words of each caption; the gradient reaches scores."""
    torch.manual_seed(1)
    settings = CaptionSettings.model_validate(RECIPE["model"])
    model: Any = build_caption_model(settings, ImageShape(12, 16, 3), 10).double()
    images = torch.randint(256, (2, 12, 16, 3), dtype=torch.uint8)
    labels = torch.tensor([[5, 6, 3, 0], [7, 8, 9, 3]])
    with watch(model, ["decoder.attention"], keep_gradients=True) as seen:
        model.teacher_force(Scenes(images), torch.tensor([[2, 5, 6, 0], [2, 7, 8, 9]]))
    weights = torch.cat(seen["decoder.attention"], 2)[:, 0]
    expected = torch.zeros(()).double()
    for row, length in ((0, 3), (1, 4)):
        for cell in range(48):
            expected = expected + (1 - weights[row, :length, cell].sum()) ** 2
    loss = Coverage("decoder.attention", 0.5).loss(TeacherForced(labels, seen, torch.zeros(2, 4)))
    torch.testing.assert_close(loss.total, expected / 2)
    torch.testing.assert_close(loss.parts["coverage"], expected.detach())
    loss.total.backward()
    assert model.decoder.attention.score.v.grad.abs().sum() > 0


def test_figures_are_those_of_sacrebleu() -> None:
    outputs = ["a dog runs", "two men", "the cat"]
    references = [["A dog is running", "a dog runs fast"], ["two men stand there"], ["a cat", "it"]]
    found = caption_figures(outputs, references)
    transposed = [
        ["A dog is running", "two men stand there", "a cat"],
        ["a dog runs fast", None, "it"],
    ]
    for order in range(1, 5):
        metric = BLEU(max_ngram_order=order, lowercase=True, tokenize="none")
        expected = metric.corpus_score(outputs, transposed)
        assert found[f"BLEU-{order}"].value == pytest.approx(expected.score)
        plain = found[f"BLEU-{order} without brevity penalty"].value
        assert plain * expected.bp == pytest.approx(expected.score)
    assert "tok:none" in str(found["BLEU-1"].signature)


# Training and use


def test_it_learns_what_it_sees(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["BLEU-4"].value > 80
    shown = found.to_json()["figures"]["BLEU-4"]
    assert 0 < shown["low"] <= shown["value"] <= shown["high"] <= 100
    assert "tok:none" in shown["signature"]
    [table] = found.shown()
    assert table.header == ("figure", "value", "95 % interval", "better")
    assert table.rows[0][2] == "{low:.4g} to {high:.4g}".format(
        **found.to_json()["figures"]["BLEU-1"]
    )
    assert table.rows[1][2] == ""
    assert found.examples is not None
    assert found.examples.outputs[0].endswith(" .")
    predictor = heedful.load(folder / "run", device="cpu")
    uri = as_uri(folder / "images" / "test3.png")
    [caption] = predictor.predict([{"image": uri}])
    assert caption.text.endswith(".")
    assert not caption.text.endswith(" .")
    assert json.loads(json.dumps(caption.to_json()))["text"] == caption.text


def test_a_stopped_training_is_resumed_exactly(folder: Path) -> None:
    first = {**RECIPE["training"], "max_steps": 50}
    heedful.train({**RECIPE, "training": first}, folder / "stopped", data=folder)
    assert heedful.train(RECIPE, folder / "stopped", data=folder)
    one, other = (
        load_file(folder / run / "checkpoints" / "step-00000100" / "model.safetensors")
        for run in ("run", "stopped")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


VARIANTS = {
    "hard": ({"attention": "hard-reinforce"}, {"reinforce": {"entropy": 0.01}, "coverage": 0.1}),
    "none": ({"attention": "none"}, {"flip": True, "shift": 1}),
    "Transformer": (
        {"kind": "transformer", "hidden_size": 16, "ffn_size": 16, "heads": 2, "layers": 1,
         "embedding_size": None},
        {"coverage": 0.1, "label_smoothing": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_other_models_train_and_resume_exactly(name: str, folder: Path, tmp_path: Path) -> None:
    model, training = VARIANTS[name]
    short = {**RECIPE["training"], "max_steps": 4, "validate_every": 2, "checkpoint_every": 2}
    table = {key: one for key, one in {**RECIPE["model"], **model}.items() if one is not None}
    recipe = {**RECIPE, "model": table, "training": {**short, **training}}
    assert heedful.train(recipe, tmp_path / "whole", data=folder)
    heedful.train(
        {**recipe, "training": {**recipe["training"], "max_steps": 2}},
        tmp_path / "parts",
        data=folder,
    )
    assert heedful.train(recipe, tmp_path / "parts", data=folder)
    one, other = (
        load_file(tmp_path / run / "checkpoints" / "step-00000004" / "model.safetensors")
        for run in ("whole", "parts")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)
    predictor = heedful.load(tmp_path / "whole", device="cpu")
    seen = {"image": as_uri(folder / "images" / "test3.png")}
    assert isinstance(predictor.predict([seen])[0].text, str)


@pytest.mark.parametrize(
    ("model", "training", "message"),
    [
        ({"attention": "none"}, {"coverage": 1.0}, "coverage needs an attention"),
        ({}, {"reinforce": {}}, "learns by reward"),
        ({}, {"validation_images": 0}, "validation_images above 0"),
        ({"max_length": 3}, {}, "all captions have"),
        ({"kind": "transformer", "patch_size": 5, "embedding_size": None}, {}, "patch_size"),
        ({"encoder": {"widths": [4, 4], "blocks": [1]}}, {}, "one for each stage"),
    ],
)
def test_recipes_that_cannot_work_are_refused(
    model: dict[str, Any], training: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    table = {key: one for key, one in {**RECIPE["model"], **model}.items() if one is not None}
    recipe = {**RECIPE, "model": table, "training": {**RECIPE["training"], **training}}
    with pytest.raises(UserError, match=message):
        heedful.train(recipe, tmp_path / "run", data=folder)


def torchvision_features(state: dict[str, Any], image: Any, bottleneck: bool) -> Any:
    """The features of a ResNet by torchvision's names, in evaluation mode."""

    def norm(x: Any, name: str) -> Any:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale = state[f"{name}.weight"] / (variance + 1e-5).sqrt()
        shift = state[f"{name}.bias"] - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]

    x = F.conv2d(image, state["conv1.weight"], stride=2, padding=3)
    x = F.max_pool2d(norm(x, "bn1").relu(), 3, 2, 1)
    for stage in (1, 2):
        name = f"layer{stage}.0"
        stride, own = 1 if stage == 1 else 2, x
        count = 3 if bottleneck else 2
        for place in range(1, count + 1):
            weight = state[f"{name}.conv{place}.weight"]
            at = 2 if bottleneck else 1
            x = F.conv2d(
                x, weight, stride=stride if place == at else 1, padding=weight.shape[-1] // 2
            )
            x = norm(x, f"{name}.bn{place}")
            x = x.relu() if place < count else x
        if f"{name}.downsample.0.weight" in state:
            own = F.conv2d(own, state[f"{name}.downsample.0.weight"], stride=stride)
            own = norm(own, f"{name}.downsample.1")
        x = (x + own).relu()
    return x


def torchvision_state(bottleneck: bool) -> dict[str, Any]:
    """Random tensors by the names of a ResNet of torchvision with two stages of one block."""
    sizes = {"conv1.weight": (4, 3, 7, 7)}
    inputs = 4
    for stage, width in ((1, 4), (2, 6)):
        name, outputs = f"layer{stage}.0", width * (4 if bottleneck else 1)
        kernels = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
        kernels = kernels if bottleneck else [(width, inputs, 3), (width, width, 3)]
        for place, (out, into, size) in enumerate(kernels, 1):
            sizes[f"{name}.conv{place}.weight"] = (out, into, size, size)
        if stage == 2 or bottleneck:
            sizes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
        inputs = outputs
    state = {name: torch.randn(size) / 4 for name, size in sizes.items()}
    for name, size in sizes.items():
        norm = (
            name.replace("conv", "bn")
            .replace("downsample.0", "downsample.1")
            .removesuffix(".weight")
        )
        state |= {
            f"{norm}.{part}": torch.randn(size[0]) for part in ("weight", "bias", "running_mean")
        }
        state |= {f"{norm}.running_var": torch.rand(size[0]) + 0.5}
        state |= {f"{norm}.num_batches_tracked": torch.tensor(3)}
    return {**state, "fc.weight": torch.zeros(2, 2), "fc.bias": torch.zeros(2)}


@pytest.mark.parametrize("bottleneck", [False, True])
def test_weights_in_torchvisions_layout_are_the_start(
    bottleneck: bool, folder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(4)
    state = torchvision_state(bottleneck)
    save_file(state, folder / "resnet.safetensors")
    encoder = {"widths": [4, 6], "blocks": 1, "stem": "large", "bottleneck": bottleneck}
    encoder |= {"norm": "fixed", "scaling": "imagenet"}
    short = {**RECIPE["training"], "max_steps": 1, "validate_every": 1, "checkpoint_every": 1}
    short |= {"learning_rate": 1e-9, "warmup_steps": 0}
    recipe = {**RECIPE, "model": {**RECIPE["model"], "encoder": encoder}, "training": short}
    recipe["data"] = {**RECIPE["data"], "encoder_weights": "resnet.safetensors"}
    assert heedful.train(recipe, tmp_path / "run", data=folder)
    predictor = heedful.load(tmp_path / "run", device="cpu")
    pixels = torch.rand(2, 3, 40, 52)
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    scaled = (pixels - mean[:, None, None]) / spread[:, None, None]
    expected = torchvision_features(state, scaled, bottleneck)
    with torch.no_grad():
        found = predictor.model.look.network(2 * pixels - 1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "norm": ({"norm": "group"}, "set model.encoder.norm = 'fixed'"),
    "width": ({"widths": [4, 8]}, "correct widths"),
    "stage": ({"widths": [4, 6, 8], "blocks": 1}, "has no weights for blocks.2"),
    "fewer": ({"widths": [4], "blocks": 1}, "add stages or blocks"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_weights_of_another_network_are_refused(
    changed: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    save_file(torchvision_state(False), folder / "other.safetensors")
    encoder = {"widths": [4, 6], "blocks": 1, "stem": "large", "norm": "fixed"}
    encoder |= {"scaling": "imagenet", **changed}
    recipe = {**RECIPE, "model": {**RECIPE["model"], "encoder": encoder}}
    recipe["data"] = {**RECIPE["data"], "encoder_weights": "other.safetensors"}
    with pytest.raises(UserError, match=message):
        heedful.train(recipe, tmp_path / "run", data=folder)


def test_the_command_has_a_line_for_each_image(folder: Path) -> None:
    paths = [str(folder / f"images/test{number}.png") for number in (0, 1)]
    done = invoke("caption", str(folder / "run"), *paths)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("square" in line for line in lines)
    piped = invoke("caption", str(folder / "run"), input=f"{paths[0]}\n\n{paths[1]}\n")
    assert piped.stdout.split("\n") == [lines[0], "", lines[1], ""]
    done = invoke("caption", str(folder / "run"), "--json", "--nbest", "2", paths[0])
    found = json.loads(done.stdout)
    assert found["text"] == lines[0]
    assert len(found["others"]) == 1
    done = invoke("caption", str(folder / "run"), "--nbest", "9", paths[0])
    assert "nbest" in str(done.exception)
    done = invoke("caption", str(folder / "run"), "none.png")
    assert "cannot read the image none.png" in str(done.exception)
    assert invoke("predict", str(folder / "run"), input=f"{paths[0]}\n").stdout == f"{lines[0]}\n"
    drawn = folder / "drawn.svg"
    assert invoke("plot", str(folder / "run"), paths[0], "--output", str(drawn)).exit_code == 0
    assert "<svg" in drawn.read_text(encoding="utf-8")
    made = folder / "view.html"
    assert invoke("view", str(folder / "run"), paths[0], "--output", str(made)).exit_code == 0
    assert "data:image/png" in made.read_text(encoding="utf-8")


def test_the_trace_has_a_map_for_each_word(folder: Path, tmp_path: Path) -> None:
    path, out = folder / "images" / "test3.png", tmp_path / "it.safetensors"
    invoke("caption", str(folder / "run"), str(path), "--trace", str(out))
    trace = heedful.inference.Trace.load(out)
    axis = trace.axes["image"]
    assert (axis.kind, axis.extent) == ("image", (6, 8))
    assert axis.media is not None
    shown = np.asarray(Image.open(io.BytesIO(axis.media.data)))
    np.testing.assert_array_equal(shown, np.asarray(Image.open(path)))
    own = trace["decoder.attention"]
    assert (own.query_axis, own.key_axis) == ("target", "image")
    assert trace.decided[-1] == "</s>"
    assert own.weights.shape == (1, len(trace.decided), 48)
    predictor = heedful.load(folder / "run", device="cpu")
    images = torch.from_numpy(np.asarray(Image.open(path)).copy())[None]
    with predictor.ready():
        [[best, *_]] = find_captions(predictor.model, images, predictor.options)
    torch.testing.assert_close(
        torch.tensor(trace.log_probabilities), torch.tensor(best.token_log_probabilities),
        rtol=1e-3, atol=1e-4,
    )  # fmt: skip


def test_a_recipe_is_chosen_for_a_table(folder: Path, tmp_path: Path) -> None:
    arguments = ["train", "--task", "caption", "--data", str(folder / "train.tsv")]
    arguments += ["--images", str(folder / "images"), "--out", str(tmp_path / "run")]
    small = ["size=[12,16]", "hidden_size=8", "max_steps=2", "warmup_steps=1", "validate_every=2"]
    tables = {"size": "data", "hidden_size": "model"}
    for change in small:
        key = change.partition("=")[0]
        arguments += ["--set", f"{tables.get(key, 'training')}.{change}"]
    done = invoke(*arguments, "--set", "model.encoder.widths=[4,8]")
    assert done.exit_code == 0, done.output
    run, _ = spec_of_run(tmp_path / "run")
    assert run.facts["data"]["train"] < 64
    test = (tmp_path / "run" / "data" / "test.jsonl").read_text(encoding="utf-8")
    kept = json.loads(test.splitlines()[0])
    assert len(kept["captions"]) == 2


@pytest.fixture(scope="module")
def address(folder: Path) -> Any:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    with running(make_application(served)) as one:
        yield one


def test_a_server_describes_data_uris_and_no_files(folder: Path, address: str) -> None:
    path = folder / "images" / "test3.png"
    good, bad = {"image": as_uri(path)}, {"image": str(path)}
    answer = httpx.post(f"{address}/api/predict/run", json={"inputs": [good]})
    assert "square" in answer.json()["results"][0]["text"]
    traced = httpx.post(f"{address}/api/trace", json={"model": "run", "input": good})
    assert traced.status_code == 200, traced.text
    refused = httpx.post(f"{address}/api/predict/run", json={"inputs": [bad]})
    assert refused.status_code == 400
    assert "data URI" in refused.text


@needs_browser()
def test_the_page_describes_an_image_that_is_chosen(
    chromium: Any, folder: Path, address: str
) -> None:
    with opened(chromium, address) as it:
        it.page.set_input_files("input[type=file]", folder / "images" / "test3.png")
        it.page.wait_for_selector(".heed-result dd >> text=square")
        it.tab("steps")
        it.page.wait_for_selector("main > :not([hidden]) svg image")
