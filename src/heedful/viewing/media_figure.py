"""Figures of weights over a picture, and along a sound or its features.

Shapes: H heads, Q queries, K keys.
"""

import io
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from heedful.inference.axes import Axis
from heedful.inference.media import PNG, Media
from heedful.viewing.figures import new_figure, set_missing_characters
from heedful.viewing.fonts import font_families
from heedful.viewing.heatmap import COLOURS
from heedful.viewing.labels import shorten, token_labels

_OVER = (1.0, 0.604, 0.0)
"""Orange, which is visible on black and on white."""
_VEIL, _OPACITY = (0.5, 0.5, 0.5), 0.85
"""What hides cells with little weight; the page has the same."""
_BEFORE = (0.0, 0.835, 1.0)
"""Light blue, for the steps before."""
_FRAMES = 8
"""Frames of a clip in a row."""
_MOST_PANELS = 48
_PANEL, _GAP, _TITLE, _MARGIN = 1.7, 0.12, 0.3, 0.12
_ROW, _STRIP, _WIDTH = 0.24, 0.8, 7.0
_WEIGHTS_EXPONENT = 0.75
"""Makes small weights visible; the page uses the same exponent."""


def picture_figure(
    weights: Tensor,
    queries: Sequence[str],
    axis: Axis,
    title: str,
    names: Sequence[str],
    *,
    path: bool = False,
) -> Figure:
    """Draw the picture, and one panel per query and head. The frames of a clip are in rows of 8.

    What has little weight is hidden; weights of which some are negative are drawn in colour over
    the picture in grey. The largest weight of each panel has the full strength.

    Args:
        weights: ``[H, Q, K]``.
        queries: labels of the queries.
        axis: the axis of the keys, an image or the frames of a clip.
        title: the title.
        names: names of the heads.
        path: whether the queries are steps; then each panel outlines where all steps so far read.
    """
    labels = [shorten(one, 20) for one in token_labels(queries)]
    panels: list[tuple[str, Tensor | None]] = [
        (f"{label}, {name}" if len(names) > 1 else label, weights[head, query])
        for query, label in enumerate(labels)
        for head, name in enumerate(names)
    ]
    left_out = len(panels) - _MOST_PANELS
    if left_out > 0:
        title = f"{title} (the first {_MOST_PANELS} of {len(panels):,})"
    alone = axis.media is not None and len(names) == 1
    shown = [*([("", None)] if alone else []), *panels[:_MOST_PANELS]]
    columns = min(len(shown), 6 // len(names) * len(names) or 6)
    rows = -(-len(shown) // columns)
    high, wide = _shape(axis)
    panel = _PANEL * min(1.0, high / wide), _PANEL * min(1.0, wide / high)
    width = max(columns * (panel[1] + _GAP), 3.0) + 2 * _MARGIN
    height = rows * (panel[0] + _TITLE) + _TITLE + 2 * _MARGIN
    figure = new_figure(width, height)
    families = _write_title(figure, title, [label for label, _ in shown])
    for place, (label, own) in enumerate(shown):
        row, column = divmod(place, columns)
        x = _MARGIN + column * (panel[1] + _GAP)
        y = height - _MARGIN - _TITLE - (row + 1) * (panel[0] + _TITLE) + 0.04
        axes = figure.add_axes((x / width, y / height, panel[1] / width, panel[0] / height))
        _draw_picture(axes, own, axis)
        number = place - alone
        if path and number >= 0:
            _draw_path(axes, weights[number % len(names), : number // len(names) + 1], axis)
        axes.set_title(label, fontsize=9, fontfamily=families, parse_math=False, pad=3)
    return figure


def time_figure(
    weights: Tensor, queries: Sequence[str], axis: Axis, title: str, names: Sequence[str]
) -> Figure:
    """Draw the sound or its features above one heat-map per head, over seconds.

    Args:
        weights: ``[H, Q, K]``.
        queries: labels of the queries.
        axis: the axis of the keys, time.
        title: the title.
        names: names of the heads.
    """
    labels = token_labels(queries)
    heads, step = len(names), max(1, -(-len(labels) // 40))
    block = max(len(labels) * min(_ROW, 9.0 / len(labels)), 0.5)
    strip = _STRIP + _GAP if axis.media is not None else 0.0
    left = 0.2 + 0.085 * max(map(len, labels[::step]), default=0)
    width = left + _WIDTH + _MARGIN + 0.1
    height = 2 * _MARGIN + _TITLE + strip + heads * (block + _GAP + (heads > 1) * 0.2) + 0.4
    figure = new_figure(width, height)
    families = _write_title(figure, title, [*labels, *names])
    y = height - _MARGIN - _TITLE
    if axis.media is not None:
        y -= _STRIP
        axes = figure.add_axes(
            (left / width, y / height, _WIDTH / width, _STRIP / height), label="media"
        )
        _draw_strip(axes, axis.media, axis.extent[1])
        y -= _GAP
    for head, name in enumerate(names):
        y -= block + (heads > 1) * 0.2
        axes = figure.add_axes((left / width, y / height, _WIDTH / width, block / height))
        extent = (0.0, axis.extent[1], len(labels) - 0.5, -0.5)
        axes.imshow(
            weights[head].numpy(), cmap=COLOURS, vmin=0, aspect="auto", interpolation="nearest",
            extent=extent,
        )  # fmt: skip
        style: dict[str, Any] = {"fontsize": 9, "fontfamily": families, "parse_math": False}
        places = range(0, len(labels), step)
        axes.set_yticks(list(places), [labels[place] for place in places], **style)
        axes.tick_params(length=2, labelsize=9)
        if heads > 1:
            axes.set_title(name, pad=2, loc="left", **style)
        if head < heads - 1:
            axes.set_xticklabels([])
        else:
            axes.set_xlabel("seconds", fontsize=9)
        y -= _GAP
    return figure


def _write_title(figure: Figure, title: str, labels: Sequence[str]) -> list[str]:
    families, missing = font_families([title, *labels])
    families = [*families, "sans-serif"]
    width, height = figure.get_size_inches()
    shown = shorten(title.replace("\n", " "), 80)
    figure.text(
        _MARGIN / width, 1 - _MARGIN / height, shown, fontsize=11, va="top",
        fontfamily=families, parse_math=False,
    )  # fmt: skip
    set_missing_characters(figure, missing)
    return families


def _grid(axis: Axis) -> tuple[int, int]:
    """Rows and columns of cells; the frames of a clip are in rows of 8, the last one with gaps."""
    if len(axis.extent) > 1:
        return int(axis.extent[0]), int(axis.extent[1])
    frames = int(axis.extent[0])
    uneven = axis.media is not None and axis.media.size[1] % frames
    columns = frames if uneven else min(frames, _FRAMES)
    return -(-frames // columns), columns


def _shape(axis: Axis) -> tuple[int, int]:
    """Rows and columns of the pixels that are shown, or of the cells without a picture."""
    if axis.media is None:
        return _grid(axis)
    high, wide = axis.media.size
    if len(axis.extent) > 1:
        return high, wide
    rows, columns = _grid(axis)
    return (high, wide) if rows == 1 else (rows * high, columns * (wide // int(axis.extent[0])))


def _in_rows(values: NDArray[Any], axis: Axis, empty: float) -> NDArray[Any]:
    """The frames of a clip, which are beside each other, in the rows of the grid."""
    rows, columns = _grid(axis)
    if len(axis.extent) > 1 or rows == 1:
        return values
    frames = np.split(values, int(axis.extent[0]), axis=1)
    frames += [np.full_like(frames[0], empty)] * (rows * columns - len(frames))
    starts = range(0, len(frames), columns)
    return np.concatenate([np.concatenate(frames[at : at + columns], 1) for at in starts])


def _draw_path(axes: Axes, steps: Tensor, axis: Axis) -> None:
    """Outline the cells with at least half of the largest weight of each step ``[S, K]``."""
    rows, columns = _grid(axis)
    middles = []
    for number, own in enumerate(steps):
        most = own.max()
        if most <= 0:
            continue
        cells = (own >= most / 2).nonzero().squeeze(1)
        down, right = cells // columns, cells % columns
        top, left = int(down.min()), int(right.min())
        high, wide = int(down.max()) + 1 - top, int(right.max()) + 1 - left
        last = number == len(steps) - 1
        axes.add_patch(
            Rectangle(
                (left, top), wide, high, fill=False, lw=1.6 if last else 0.8,
                edgecolor=_OVER if last else _BEFORE,
            )
        )  # fmt: skip
        middles.append((left + wide / 2, top + high / 2))
    if len(middles) > 1:
        axes.plot(*zip(*middles, strict=True), color=_BEFORE, lw=0.8)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)


def _draw_picture(axes: Axes, weights: Tensor | None, axis: Axis) -> None:
    rows, columns = _grid(axis)
    extent = (0.0, float(columns), float(rows), 0.0)
    veiled = axis.media is not None and (weights is None or bool((weights >= 0).all()))
    if axis.media is not None:
        shown = _pixels(axis.media) if veiled else _grey(axis.media)
        shown = _in_rows(shown, axis, 1.0)
        axes.imshow(shown, cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto")
    if weights is not None:
        share = weights.abs() / weights.abs().max().clamp(min=1e-12)
        flat = share.pow(_WEIGHTS_EXPONENT).view(1 if len(axis.extent) == 1 else rows, -1).numpy()
        strength = _in_rows(flat, axis, 1.0 if veiled else 0.0)
        over = np.empty((rows, columns, 4))
        over[..., :3] = _VEIL if veiled else _OVER
        over[..., 3] = _OPACITY * (1 - strength) if veiled else 0.8 * strength
        axes.imshow(over, interpolation="nearest", extent=extent, aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_strip(axes: Axes, media: Media, seconds: float) -> None:
    if media.type == PNG:
        axes.imshow(
            _grey(media), cmap="gray", vmin=0, vmax=1, aspect="auto", extent=(0, seconds, 0, 1)
        )
    else:
        loud = _loudness(media)
        heard = np.linspace(0, media.seconds, len(loud))  # may differ a little from the axis
        axes.fill_between(heard, -loud, loud, color="#444444", lw=0)
        axes.set_ylim(-1.05, 1.05)
    axes.set_xlim(0, seconds)
    axes.set_xticks([])
    axes.set_yticks([])


def _pixels(media: Media) -> NDArray[np.float64]:
    """``[rows, columns]``, or ``[rows, columns, 3]`` with colours, from 0 to 1."""
    return np.asarray(imread(io.BytesIO(media.data), format="png"), dtype=np.float64)


def _grey(media: Media) -> NDArray[np.float64]:
    """Brightness ``[rows, columns]`` from 0 to 1."""
    pixels = _pixels(media)
    return pixels if pixels.ndim == 2 else pixels[..., :3] @ np.array([0.2126, 0.7152, 0.0722])


def _loudness(media: Media, places: int = 1400) -> NDArray[np.float64]:
    """The peak amplitude in each of ``places`` intervals, relative to the overall peak."""
    with wave.open(io.BytesIO(media.data)) as file:
        width, channels = file.getsampwidth(), file.getnchannels()
        raw = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    # The highest byte of a sample is precise enough. Samples of 8 bits are unsigned.
    bytes_of = raw[: len(raw) // (width * channels) * width * channels].reshape(-1, channels, width)
    high = bytes_of[:, 0, -1]
    swing = np.abs(high.astype(np.float64) - 128 if width == 1 else high.astype(np.int8))
    parts = np.array_split(swing, min(places, len(swing)))
    loud = np.array([float(part.max()) for part in parts])
    shown: NDArray[np.float64] = np.maximum(loud / max(loud.max(), 1.0), 0.01)
    return shown
