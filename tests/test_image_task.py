"""Labels of images: reading, training, the command, evaluation, the trace, bad input."""

import base64
import gzip
import io
import json
import lzma
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import typer
from PIL import Image, ImageOps
from safetensors.torch import load_file
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import evaluate, plot, predict, task_commands, view
from heedful.cli import train as train_command
from heedful.data.image_batches import varied
from heedful.data.readers.images import (
    Form,
    as_uri,
    decoded,
    encoded,
    image_bytes,
    image_files,
    read_image,
    read_images,
)
from heedful.runs.opening import open_run
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.image_input import seen_in
from heedful.tasks.spec import Opening, spec_of_run
from page_help import needs_browser, opened
from serving_help import running

RECIPE: dict[str, Any] = {
    "task": "image-classification",
    "data": {
        "train": "train",
        "validation": "test",
        "test": "test",
        "size": [12, 12],
        "colours": "rgb",
    },
    "model": {
        "kind": "perceiver", "patch_size": 3, "bands": 4, "latents": 4, "latent_size": 16,
        "layers": 1, "heads": 2, "ffn_size": 32, "dropout": 0.0,
    },
    "training": {
        "learning_rate": 0.005,
        "warmup_steps": 10,
        "schedule": "constant",
        "max_steps": 90,
        "validate_every": 30,
        "checkpoint_every": 30,
        "batch_tokens": 24 * 432,
        "choose_by": "accuracy",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}  # fmt: skip
GREY, COLOURS = Form(8, 6, "grey"), Form(8, 6, "rgb")


def pixels(rng: np.random.Generator, label: str) -> Any:
    """Noise with a bright square at the left or the right."""
    image = rng.integers(0, 90, (12, 12, 3), dtype=np.uint8)
    row = int(rng.integers(0, 8))
    first = int(rng.integers(0, 2)) + (0 if label == "left" else 7)
    image[row : row + 4, first : first + 4] = 230
    return image


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    for part, count in (("train", 60), ("test", 15)):
        for label in ("left", "right"):
            (place / part / label).mkdir(parents=True)
            for number in range(count):
                path = place / part / label / f"{number}.png"
                Image.fromarray(pixels(rng, label)).save(path)
    assert heedful.train(RECIPE, place / "run", data=place)
    return place


def invoke(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    for one in (task_commands, evaluate, plot, predict, train_command, view):
        one.register(app)
    return CliRunner().invoke(app, list(arguments), **how)


# Reading


def test_images_become_bytes_of_one_form() -> None:
    rng = np.random.default_rng(2)
    raw = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    same = decoded(image_bytes(encoded(raw)), COLOURS, "it")
    np.testing.assert_array_equal(same, raw)
    grey = decoded(image_bytes(encoded(raw)), GREY, "it")
    luma = raw @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    assert abs(grey[..., 0] - luma).max() <= 1
    wide = np.concatenate([np.zeros_like(raw), raw, np.zeros_like(raw)], 1)
    np.testing.assert_array_equal(decoded(image_bytes(encoded(wide)), COLOURS, "it"), raw)
    large = raw.repeat(3, 0).repeat(3, 1)
    assert decoded(image_bytes(encoded(large)), COLOURS, "it").shape == (8, 6, 3)


def saved(image: Image.Image, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, how.pop("format", "png"), **how)
    return file.getvalue()


def test_transparent_parts_are_white_and_photos_are_turned() -> None:
    clear = saved(Image.new("RGBA", (6, 8), (255, 0, 0, 0)))
    assert (decoded(clear, COLOURS, "it") == 255).all()
    palette = Image.new("P", (6, 8), 0)
    assert (decoded(saved(palette, transparency=0), GREY, "it") == 255).all()
    photo, exif = Image.new("RGB", (8, 6), "black"), Image.Exif()
    photo.paste("white", (0, 0, 4, 6))  # the left half
    exif[0x0112] = 6  # to be turned by 90° to the right
    found = decoded(saved(photo, format="jpeg", exif=exif, quality=100), GREY, "it")
    assert found[:4].min() > 200  # the upper half
    assert found[4:].max() < 50


@pytest.mark.parametrize("turn", range(1, 9))
def test_photos_are_turned_whatever_else_their_exif_says(turn: int) -> None:
    photo = Image.fromarray(np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3))
    exif = Image.Exif()
    exif[0x0112] = turn
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(saved(photo, exif=exif))))
    # A resolution of four bytes in place of a fraction, which Pillow cannot write again.
    tags = struct.pack("<HHIHH", 0x0112, 3, 1, turn, 0) + struct.pack(
        "<HHI4s", 0x011A, 7, 4, b"abcd"
    )
    odd = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + tags + bytes(4)
    form = Form(upright.height, upright.width, "rgb")
    found = decoded(saved(photo, exif=odd), form, "it")
    np.testing.assert_array_equal(found, np.asarray(upright))


def write_idx(path: Path, values: Any) -> None:
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    packs = {".gz": gzip.compress, ".xz": lzma.compress}
    path.write_bytes(packs.get(path.suffix, bytes)(head + values.tobytes()))


@pytest.mark.parametrize("packing", [("", ".gz"), (".xz", ".gz"), (".gz", "")])
def test_idx_files_have_their_labels_beside_them(tmp_path: Path, packing: Any) -> None:
    rng = np.random.default_rng(4)
    images, labels = rng.integers(0, 256, (3, 8, 6), dtype=np.uint8), np.array([7, 0, 2], np.uint8)
    path = tmp_path / f"t-images-idx3-ubyte{packing[0]}"
    write_idx(path, images)
    write_idx(tmp_path / f"t-labels-idx1-ubyte{packing[1]}", labels)
    found = list(read_images(str(path), image="", label=""))
    assert [one.label for one in found] == ["7", "0", "2"]
    grey = [decoded(image_bytes(one.uri), GREY, one.where)[..., 0] for one in found]
    np.testing.assert_array_equal(np.stack(grey), images)
    first = decoded(image_bytes(found[0].uri), COLOURS, "")
    np.testing.assert_array_equal(first, images[0, ..., None].repeat(3, -1))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_tables_name_images_relative_to_themselves(
    folder: Path, tmp_path: Path, ending: str
) -> None:
    rows = [("train/left/0.png", "left"), ("train/right/3.png", "right")]
    lines = [json.dumps({"file": path, "side": label}) for path, label in rows]
    if ending != "jsonl":
        lines = [("," if ending == "csv" else "\t").join(row) for row in [("file", "side"), *rows]]
    table = folder / f"some.{ending}"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    form = Form(12, 12, "rgb")
    found = list(read_images(str(table), image="file", label="side"))
    assert [one.label for one in found] == ["left", "right"]
    assert found[1].where == str(folder / rows[1][0])
    one = decoded(image_bytes(found[1].uri), form, "")
    np.testing.assert_array_equal(one, read_image(folder / rows[1][0], form))


def test_tables_and_python_data_may_have_data_uris(folder: Path, tmp_path: Path) -> None:
    rows = [
        {"image": as_uri(folder / f"train/{label}/{number}.png"), "label": label}
        for label in ("left", "right")
        for number in range(4)
    ]
    table = tmp_path / "some.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    form = Form(12, 12, "rgb")
    found = list(read_images(str(table), image="image", label="label"))
    one = decoded(image_bytes(found[5].uri), form, "")
    np.testing.assert_array_equal(one, read_image(folder / "train/right/1.png", form))
    recipe = {**RECIPE, "training": {**RECIPE["training"], "max_steps": 1}}
    recipe["data"] = {"size": [12, 12], "colours": "rgb"}
    assert heedful.train(recipe, tmp_path / "run", data={"train": rows, "test": rows})


def pretended(width: int, height: int) -> bytes:
    """A PNG of one pixel whose header has another size."""
    data = bytearray(saved(Image.new("L", (1, 1))))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def animated(kind: str) -> bytes:
    """A file of three frames of noise."""
    noise = np.random.default_rng(1).integers(0, 256, (3, 24, 20), dtype=np.uint8)
    frames = [Image.fromarray(one) for one in noise]
    return saved(frames[0], format=kind, save_all=True, append_images=frames[1:])


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
BAD = {
    "no image": (b"hello", "not an image"),
    "half an image": (saved(Image.effect_noise((90, 90), 50))[:2000], "damaged"),
    "16 bits": (saved(Image.new("I;16", (6, 8))), "more than 8 bits"),
    "too large": (saved(Image.new("1", (9000, 9000))), "too many"),
    "empty": (b"", "not an image"),
    "no pixels": (pretended(0, 0), "not an image|damaged"),
    "a bomb": (pretended(30_000, 30_000), "damaged|too many"),
    "a program": (EPS, "not an image"),
    "half a GIF": (animated("gif")[:2152], "damaged"),
    "a page without a width": (
        b"\xee\1\4\0".join(animated("tiff").rsplit(b"\0\1\4\0", 1)),
        "damaged",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_what_is_no_image_is_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "it.png"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as raised:
        read_image(path, GREY)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unusual_images_are_read(tmp_path: Path) -> None:
    """CMYK, a palette, several frames (the first one is read), and a narrow image."""
    red = Image.new("CMYK", (20, 20), (0, 255, 255, 0))
    file = io.BytesIO()
    red.save(file, "jpeg")
    found = decoded(file.getvalue(), COLOURS, "it")
    assert found[4, 3, 0] > 200
    assert found[4, 3, 1:].max() < 60
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("blue", "red")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decoded((tmp_path / "a.gif").read_bytes(), COLOURS, "it")[0, 0].tolist() == [0, 0, 255]
    assert decoded(saved(Image.new("P", (1, 900))), GREY, "it").shape == (8, 6, 1)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the image .*none\.png"):
        read_image(tmp_path / "none.png", GREY)
    with pytest.raises(UserError, match="no images"):
        image_files(tmp_path)
    Image.new("L", (3, 3)).save(tmp_path / "beside.png")
    with pytest.raises(UserError, match=r"beside\.png: not in a folder"):
        image_files(tmp_path)
    idx = tmp_path / "a-images-idx3-ubyte"
    write_idx(idx, np.zeros((2, 8, 6), np.uint8))
    with pytest.raises(UserError, match="a-labels-idx1-ubyte, are not beside it"):
        list(read_images(str(idx), image="", label=""))
    write_idx(tmp_path / "a-labels-idx1-ubyte", np.zeros(3, np.uint8))
    with pytest.raises(UserError, match=r"has 2 images, but .* 3 labels"):
        list(read_images(str(idx), image="", label=""))
    idx.write_bytes(idx.read_bytes()[:-1])
    with pytest.raises(UserError, match="95 values, but the sizes"):
        list(read_images(str(idx), image="", label=""))


@pytest.mark.parametrize("uri", ["image.png", "data:text/html;base64,AA==", "data:image/png,AA"])
def test_only_data_uris_are_inputs(folder: Path, uri: str) -> None:
    """A path would let users of a server read its files."""
    with pytest.raises(UserError, match="not a data URI"):
        heedful.load(folder / "run", device="cpu").predict([{"image": uri}])


# Training and use


def test_it_learns_where_the_square_is(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["accuracy"].value > 90
    predictor = heedful.load(folder / "run", device="cpu")
    [label] = predictor.predict([{"image": as_uri(folder / "test/left/2.png")}])
    assert label.label == "left"
    told = json.loads(json.dumps(label.to_json()))
    assert [one["label"] for one in told["labels"]] == ["left", "right"]
    total = sum(np.exp(one["log_probability"]) for one in told["labels"])
    assert total == pytest.approx(1, abs=1e-5)


def test_a_stopped_training_is_resumed_exactly(folder: Path) -> None:
    first = {**RECIPE["training"], "max_steps": 40}
    heedful.train({**RECIPE, "training": first}, folder / "stopped", data=folder)
    assert heedful.train(RECIPE, folder / "stopped", data=folder)
    one, other = (
        load_file(folder / run / "checkpoints" / "step-00000090" / "model.safetensors")
        for run in ("run", "stopped")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_other_images_in_the_folder_are_noticed(folder: Path) -> None:
    """A run is not resumed with other data."""
    more = folder / "train" / "left" / "more.png"
    Image.new("RGB", (12, 12)).save(more)
    try:
        longer = {**RECIPE["training"], "max_steps": 120}
        with pytest.raises(UserError, match="train"):
            heedful.train({**RECIPE, "training": longer}, folder / "run", data=folder)
    finally:
        more.unlink()


def test_the_command_has_a_line_for_each_image(folder: Path) -> None:
    paths = [str(folder / f"test/{label}/{number}.png") for number in (1, 4) for label in
             ("left", "right")]  # fmt: skip
    done = invoke("classify-images", str(folder / "run"), *paths)
    assert done.stdout.split() == ["left", "right"] * 2
    piped = "".join(f"{path}\n" for path in [paths[0], "", *paths[1:]])
    done = invoke("classify-images", str(folder / "run"), input=piped)
    assert done.stdout.split("\n") == ["left", "", "right", "left", "right", ""]
    done = invoke("classify-images", str(folder / "run"), "--json", paths[0])
    assert json.loads(done.stdout)["image"] == paths[0]
    done = invoke("classify-images", str(folder / "run"), paths[0], "none.png")
    assert done.exit_code != 0
    assert "cannot read the image none.png" in str(done.exception)
    done = invoke("predict", str(folder / "run"), input=f"{paths[1]}\n")
    assert done.stdout == "right\n"
    drawn = folder / "drawn.svg"
    assert invoke("plot", str(folder / "run"), paths[0], "--output", str(drawn)).exit_code == 0
    assert "<svg" in drawn.read_text(encoding="utf-8")
    made = folder / "view.html"
    assert invoke("view", str(folder / "run"), paths[0], "--output", str(made)).exit_code == 0
    assert "data:image/png" in made.read_text(encoding="utf-8")


def test_probabilities_are_calibrated_on_the_validation_images(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    spec, run = spec_of_run(tmp_path / "run")[1], open_run(tmp_path / "run")
    with pytest.raises(UserError, match="no head"):
        spec.calibrate(run, "other", Opening())
    plain = heedful.load(run.path, device="cpu")
    found = spec.calibrate(run, None, Opening(device="cpu"))
    assert found.temperature.after <= found.temperature.before
    scaled = heedful.load(run.path, device="cpu")
    assert scaled.temperature == found.temperature.value
    examples = list(run.recipe.data.read_lines([str(run.path / "data" / "test.jsonl")]))
    inputs = [{"image": one.image} for one in examples]
    for one, other in zip(plain.predict(inputs), scaled.predict(inputs), strict=True):
        # With two labels, the log-odds are divided by the temperature.
        assert one.label == other.label
        odds = [own[0][1] - own[1][1] for own in (one.others, other.others)]
        assert odds[1] == pytest.approx(odds[0] / scaled.temperature, rel=1e-3, abs=1e-5)
    measured = spec.calibration(run, None, Opening(device="cpu"))
    assert measured.count == len(examples)
    done = invoke("evaluate", str(run.path), "--json", "--device", "cpu")
    figures = json.loads(done.stdout)["figures"]
    error = figures["expected_calibration_error"]
    assert error["value"] == pytest.approx(measured.expected_error)
    assert not error["more_is_better"]


def test_without_test_images_the_reason_is_told(folder: Path, tmp_path: Path) -> None:
    data = {key: value for key, value in RECIPE["data"].items() if key != "test"}
    data["test_share"] = 0.001  # of 120 images
    tables = {**RECIPE, "data": data, "training": {**RECIPE["training"], "max_steps": 1}}
    assert heedful.train(tables, tmp_path / "run", data=folder)
    run, spec = spec_of_run(tmp_path / "run")
    for measure in (spec.evaluate, spec.calibration):
        more = (None,) if measure == spec.evaluate else ()
        with pytest.raises(UserError, match=r"or data\.test_share held out none"):
            measure(run, None, *more, Opening(device="cpu"))


def test_the_trace_lies_over_the_image(folder: Path, tmp_path: Path) -> None:
    path = folder / "test" / "right" / "0.png"
    out = tmp_path / "it.safetensors"
    invoke("classify-images", str(folder / "run"), str(path), "--trace", str(out))
    trace = heedful.inference.Trace.load(out)
    axis = trace.axes["image"]
    assert (axis.kind, axis.extent) == ("image", (4, 4))
    shown = np.asarray(Image.open(io.BytesIO(axis.media.data)))
    np.testing.assert_array_equal(shown, np.asarray(Image.open(path)))
    one = trace["array.reads.0.attention"]
    assert (one.query_axis, one.key_axis) == ("latents", "image")
    torch.testing.assert_close(one.weights.sum(-1), torch.ones(1, 4))


def test_varied_images_are_moved_and_mirrored() -> None:
    torch.manual_seed(1)
    images = torch.arange(1, 25, dtype=torch.uint8).view(1, 4, 6, 1).expand(200, 4, 6, 1)
    found = {bytes(one.flatten().tolist()) for one in varied(images, 1, flip=True)}
    expected = set()
    for own in (images[0, ..., 0], images[0, ..., 0].flip(1)):
        wide = torch.zeros(6, 8, dtype=torch.uint8)
        wide[1:5, 1:7] = own
        for down in range(3):
            for right in range(3):
                cut = wide[down : down + 4, right : right + 6]
                expected.add(bytes(cut.flatten().tolist()))
    assert found == expected
    assert torch.equal(varied(images, 0, flip=False), images)


MODELS = [
    {"kind": "residual", "widths": [4, 8], "blocks": 1, "channel_attention": "cbam",
     "reduction": 2},
    {"kind": "transformer", "patch_size": 3, "layers": 2, "hidden_size": 8, "ffn_size": 8,
     "heads": 2, "pooling": "class"},
    {"kind": "transformer", "patch_size": 3, "layers": 1, "hidden_size": 8, "ffn_size": 8,
     "heads": 2, "attention": {"positions": {"name": "quadratic", "shape": [4, 4]}}},
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=["residual", "class vector", "quadratic"])
def test_other_models_train_and_show_what_they_weigh(
    model: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    training = {**RECIPE["training"], "max_steps": 4, "validate_every": 2, "checkpoint_every": 2}
    training |= {"shift": 1, "flip": True}
    recipe = {**RECIPE, "model": model, "training": training}
    assert heedful.train(recipe, tmp_path / "whole", data=folder)
    first = {**recipe, "training": {**training, "max_steps": 2}}
    heedful.train(first, tmp_path / "parts", data=folder)
    assert heedful.train(recipe, tmp_path / "parts", data=folder)
    one, other = (
        load_file(tmp_path / run / "checkpoints" / "step-00000004" / "model.safetensors")
        for run in ("whole", "parts")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    predictor = heedful.load(tmp_path / "whole", device="cpu")
    trace = predictor.trace(seen_in(str(folder / "test/left/2.png")))
    images = {name: axis for name, axis in trace.axes.items() if axis.kind == "image"}
    assert all(axis.media is not None for axis in images.values())
    if model["kind"] == "residual":
        assert {axis.extent for axis in images.values()} == {(12, 12), (6, 6)}
        assert "channels of network.blocks.0" in trace.axes
        assert trace["network.blocks.1.attention.spatial"].key_axis == "image, 6 × 6"
    else:
        rows = 1 if model.get("pooling") == "class" else 16
        own = trace["encoder.layers.0.self_attention"]
        assert own.weights.shape == (2, rows, 16)
        assert any(one.kind == "rollout" for one in trace.maps)


def test_a_batch_is_classified_like_single_images(folder: Path) -> None:
    predictor = heedful.load(folder / "run", device="cpu")
    rows = [{"image": as_uri(one)} for one in sorted((folder / "test").rglob("*.png"))[:9]]
    for row, found in zip(rows, predictor.predict(rows), strict=True):
        [alone] = predictor.predict([row])
        assert alone.label == found.label
        assert alone.log_probability == pytest.approx(found.log_probability, abs=1e-5)


def test_a_recipe_is_chosen_for_a_folder(folder: Path, tmp_path: Path) -> None:
    done = invoke(
        *("train", "--task", "classify-images", "--data", str(folder / "train")),
        *("--out", str(tmp_path / "run"), "--set", "training.max_steps=2", "--threads", "1"),
        *("--set", "model.channels=2", "--device", "cpu"),
    )
    assert done.exit_code == 0, done.exception
    run, _ = spec_of_run(tmp_path / "run")
    assert run.facts["known"] == {"labels": ["left", "right"], "form": [32, 32, "rgb", 1]}
    counts = [run.facts["data"][part] for part in ("train", "validation", "test")]
    assert sum(counts) == 120
    assert min(counts) > 0


REFUSED = {
    "patches": ({"model": {"patch_size": 5}}, "cannot be cut into patches of 5"),
    "one label": ({"data": {"train": "only"}}, "at least two labels"),
    "no folder": ({"data": {"train": "nowhere"}}, "does not exist"),
    "size": ({"data": {"size": [0, 3]}}, "greater than or equal to 1"),
    "even kernel": ({"model": {"kind": "convolutional", "kernel_size": 4}}, "no centre"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED)
def test_recipes_that_cannot_work_are_refused(
    folder: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    (folder / "only" / "left").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 12)).save(folder / "only" / "left" / "1.png")
    recipe = {**RECIPE, "data": {**RECIPE["data"], **changed.get("data", {})}}
    model = changed.get("model", {})
    recipe["model"] = model if "kind" in model else {**RECIPE["model"], **model}
    with pytest.raises(UserError, match=message) as raised:
        heedful.train(recipe, tmp_path / "run", data=folder)
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def address(folder: Path) -> Any:
    served = load_all([folder / "run"], [], several=True, device="cpu")
    with running(make_application(served)) as one:
        yield one


def test_a_server_reads_data_uris_and_no_files(folder: Path, address: str) -> None:
    path = folder / "test/left/0.png"
    image = base64.b64encode(path.read_bytes()).decode()
    good = {"image": f"data:image/png;base64,{image}"}
    answer = httpx.post(f"{address}/api/predict/run", json={"inputs": [good]})
    assert answer.json()["results"][0]["label"] == "left"
    traced = httpx.post(f"{address}/api/trace", json={"model": "run", "input": good})
    assert traced.status_code == 200, traced.text
    for bad in ({"image": str(path)}, {"image": ""}, {"image": "data:image/png;base64,AAAA"}):
        for url, body in (
            ("predict/run", {"inputs": [bad]}),
            ("trace", {"model": "run", "input": bad}),
        ):
            answer = httpx.post(f"{address}/api/{url}", json=body)
            assert answer.status_code == 400, answer.text
    for text in (str(path), json.dumps({"image": str(path)})):
        answer = httpx.post(f"{address}/api/trace", json={"model": "run", "source": text})
        assert answer.status_code in (400, 422), answer.text


@needs_browser()
def test_the_page_classifies_an_image_that_is_chosen(
    chromium: Any, folder: Path, address: str, tmp_path: Path
) -> None:
    table = tmp_path / "some.csv"
    table.write_text("image,label\n", encoding="utf-8")
    with opened(chromium, address) as it:
        assert it.page.locator(".heed-chosen-image").is_hidden()
        it.page.set_input_files("input[type=file]", folder / "test/right/2.png")
        it.page.wait_for_selector(".heed-result dd >> text=right")
        assert it.page.locator(".heed-chosen-image").get_attribute("alt") == "2.png"
        pytest.importorskip("axe_playwright_python")
        from test_page_accessibility import violations

        assert violations(it) == []
        it.tab("steps")
        it.page.wait_for_selector("main > :not([hidden]) svg image")
        it.tab("predict")
        it.page.reload()
        it.page.wait_for_selector(".heed-result dd >> text=right")  # saved in the history entry
        it.page.click("text=Clear")
        it.page.locator(".heed-output").wait_for(state="hidden")
        it.page.set_input_files("input[type=file]", table)
        assert "some.csv is not an image" in it.page.inner_text(".heed-image-field .heed-notice")
