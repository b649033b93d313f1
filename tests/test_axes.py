"""Axes of traces: kinds, what lies under them, and what is refused."""

import io
import math
import wave
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from safetensors import safe_open
from safetensors.torch import save_file

from heedful.basics.errors import UserError
from heedful.inference import AttentionMap, Axis, Media, Trace, axes, make_trace
from heedful.inference.axes import AxisKind, register_axis_kind
from page_help import kinds_trace


def test_a_picture_is_a_png_of_its_pixels() -> None:
    pixels = torch.rand(5, 7, 3, generator=torch.Generator().manual_seed(1))
    made = Media.picture(pixels)
    assert made.size == (5, 7)
    read = torch.tensor(imread(io.BytesIO(made.data), format="png"))
    torch.testing.assert_close(read, pixels, rtol=0, atol=0.5 / 255 + 1e-6)
    grey = torch.tensor(imread(io.BytesIO(Media.picture(pixels[..., 0]).data), format="png"))
    torch.testing.assert_close(grey, pixels[..., 0], rtol=0, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("shape", [(8, 10_240, 3), (3, 4097)])
def test_a_small_picture_has_each_second_pixel_or_fewer(shape: tuple[int, ...]) -> None:
    pixels = torch.arange(math.prod(shape)).remainder(251).to(torch.uint8).view(shape)
    step = -(-shape[1] // 4096)
    made = Media.small_picture(pixels)
    assert made == Media.picture(pixels[::step, ::step])
    assert Media.small_picture(pixels[:2, :40]) == Media.picture(pixels[:2, :40])


def test_a_sound_is_a_wav_of_its_samples() -> None:
    samples = torch.sin(torch.arange(4000) / 9)
    made = Media.sound(samples, 8000)
    assert made.seconds == 0.5
    with wave.open(io.BytesIO(made.data)) as file:
        read = torch.frombuffer(bytearray(file.readframes(4000)), dtype=torch.int16)
    torch.testing.assert_close(read / 32767, samples, rtol=0, atol=1e-4)


def test_places_of_an_extent_are_named() -> None:
    cells = Axis("image", extent=(2, 3))
    assert (len(cells), cells.labels[4]) == (6, "row 2 column 2")
    frames = Axis("time", extent=(4, 2.0))
    assert frames.labels == ["0.00 s", "0.50 s", "1.00 s", "1.50 s"]


PNG, WAV = Media.picture(torch.rand(4, 4)), Media.sound(torch.zeros(800), 8000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axis("cube", ["a"]), "unknown kind of axis 'cube'; known kinds are tokens"),
        (lambda: Axis("image", ["a"], (1, 1)), "an extent instead of labels"),
        (lambda: Axis("image", extent=(2,)), r"must be \(rows, columns\)"),
        (lambda: Axis("image", extent=(2, 0)), "above 0"),
        (lambda: Axis("image", extent=(2, 1.5)), "the extent"),
        (lambda: Axis("image", extent=(1 << 12, 1 << 12)), "the extent"),
        (lambda: Axis("time", extent=(2, float("nan"))), "above 0"),
        (lambda: Axis("tokens", ["a"], (1, 1)), "has labels instead of an extent"),
        (lambda: Axis("tokens", ["a"], media=PNG), "takes no media"),
        (lambda: Axis("image", extent=(2, 2), media=WAV), "takes image/png, not audio/wav"),
        (
            lambda: Axis("time", extent=(5, 1.0), media=WAV),
            "1.00 s does not match its sound of 0.10 s",
        ),
        (lambda: Media("text/html", b"<p>"), "unknown type of media 'text/html'"),
        (lambda: Media("image/png", b"<svg>"), "not a PNG"),
        (lambda: Media("image/png", PNG.data[:20]), "not a PNG"),
        (lambda: Media("image/png", _wide(PNG.data)), "damaged PNG"),
        (lambda: Media("image/png", PNG.data + b"\0" * (16 << 20)), "at most 16,777,216"),
        (lambda: Media("audio/wav", b"RIFF\0\0\0\0WAVE"), "damaged WAV"),
        (lambda: Media("audio/wav", PNG.data), "not a WAV"),
        (lambda: Media.picture(torch.rand(4097, 1)), "at most 4,096 a side"),
        (lambda: Media.picture(torch.rand(4)), "pixels"),
    ],
)
def test_what_does_not_fit_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def _wide(data: bytes) -> bytes:
    """A PNG whose header says that it is wider than it is."""
    return data[:16] + b"\0\0\xff\xff" + data[20:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decided": ["a"]}, "numbers of decided"),
        ({"decided": ["a"], "log_probabilities": [0.5]}, "above 0"),
        ({"decided": ["a"], "log_probabilities": [float("nan")]}, "above 0 or not a number"),
        ({"words": {"text": [0]}}, "words of the axis text: 1 indices"),
        ({"words": {"other": [0]}}, "words of the axis other"),
    ],
)
def test_a_trace_whose_parts_do_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    maps = [AttentionMap("a", "text", "text", torch.ones(1, 2, 2))]
    with pytest.raises(ValueError, match=message):
        make_trace({"text": ["x", "y"]}, maps, **change)  # type: ignore[arg-type]


def test_all_kinds_go_through_a_file(tmp_path: Path) -> None:
    trace = kinds_trace()
    assert {axis.kind for axis in trace.axes.values()} == {
        "tokens", "image", "time", "slots", "labels",
    }  # fmt: skip
    trace.save(tmp_path / "kinds.safetensors")
    again = Trace.load(tmp_path / "kinds.safetensors")
    assert again.axes == trace.axes
    assert all(
        torch.equal(one.weights, other.weights)
        for one, other in zip(again.maps, trace.maps, strict=True)
    )


def test_a_strangers_media_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "kinds.safetensors"
    kinds_trace().save(path)
    with safe_open(path, framework="pt") as file:
        header, names = file.metadata(), file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    for name in [name for name in tensors if name.startswith("media")]:
        changed = tensors | {name: torch.frombuffer(bytearray(b"<script>"), dtype=torch.uint8)}
        save_file(changed, path, header)
        with pytest.raises(UserError, match="damaged"):
            Trace.load(path)


def test_a_kind_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "_kinds", dict(axes._kinds))
    register_axis_kind(
        AxisKind("ring", ("places",), lambda extent: int(extent[0]), lambda _, at: f"{at}°")
    )
    assert Axis("ring", extent=(3,)).labels == ["0°", "1°", "2°"]
