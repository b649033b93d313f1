"""Heat-maps of weights: rows are queries, columns are keys, white is 0.

Letters: `H` heads, `Q` queries, `K` keys.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.viewing.figures import new_figure, set_missing_characters
from heedful.viewing.fonts import font_families
from heedful.viewing.labels import shorten, token_labels

Weights = torch.Tensor | NDArray[np.floating[Any]] | Sequence[Sequence[float]]

FULL, NEGATIVE = (11, 107, 99), (179, 84, 30)
"""The colours of the largest weight and of negative ones, red, green and blue up to 255."""


def _ramp(full: tuple[int, int, int]) -> list[tuple[float, ...]]:
    """White to a colour, as the page draws weights: small ones are visible, too."""
    strengths = [(step / 32) ** 0.75 for step in range(33)]
    return [tuple((255 + (part - 255) * own) / 255 for part in full) for own in strengths]


# One hue that becomes darker: readable in greyscale and by all types of colour vision.
COLOURS = LinearSegmentedColormap.from_list("heedful", _ramp(FULL))
SIGNED_COLOURS = LinearSegmentedColormap.from_list(
    "heedful-signed", [*reversed(_ramp(NEGATIVE)), *_ramp(FULL)[1:]]
)
"""For weights of which some are negative: white is 0."""
_NO_WEIGHT = "#d8d8d8"
_POINTS = 72.0
_LARGEST_FONT, _SMALLEST_FONT = 11.0, 5.5
_LARGEST_CELL, _SMALLEST_CELL = 0.36, 0.06
_LONGEST_SIDE = 11.0
_MARGIN, _GAP, _BAR = 0.12, 0.16, 0.13
_DRAWN_AS_SHAPES = 6000
# Glyphs are rounded to whole dots, so the width of text depends slightly on the resolution.
_ROUNDING = 1.05


@dataclass(frozen=True)
class _Grid:
    """Sizes in inches and points, derived from the numbers of tokens and panels."""

    height: float
    """Of a cell."""
    width: float
    font: float
    columns: int
    """Of panels."""
    rows: int
    row_step: int
    """If a cell is lower than the font, only every n-th row gets a label."""
    column_step: int

    @classmethod
    def of(cls, queries: int, keys: int, panels: int) -> "_Grid":
        columns = math.ceil(math.sqrt(panels * queries / keys)) if panels > 1 else 1
        columns = min(max(columns, 1), panels, 6)
        if panels % columns and panels % (columns + 1) == 0:
            columns += 1
        rows = math.ceil(panels / columns)
        fits = _LONGEST_SIDE / max(queries * rows, keys * columns)
        cell = min(max(fits, _SMALLEST_CELL), _LARGEST_CELL)
        font = min(max(cell * _POINTS * 0.72, _SMALLEST_FONT), _LARGEST_FONT)
        # Along an axis with few tokens, cells are large enough for all labels.
        label = font * 1.05 / _POINTS
        height, width = (
            max(cell, min(label, _LONGEST_SIDE / count))
            for count in (queries * rows, keys * columns)
        )
        steps = (max(1, math.ceil(label / side - 1e-9)) for side in (height, width))
        return cls(height, width, font, columns, rows, *steps)


def alignment_figure(
    weights: Weights, queries: Sequence[str], keys: Sequence[str], title: str = ""
) -> Figure:
    """A heat-map of `[Q, K]` weights.

    Args:
        weights: `[Q, K]`, the weight of each key for each query.
        queries: tokens of the rows (of a translation: the output).
        keys: tokens of the columns (of a translation: the source).
        title: the title; it is not interpreted as mathematics.

    Raises:
        UserError: the shape does not match the numbers of tokens, or a weight is not finite.
    """
    matrix = checked_weights(weights, 2)
    return head_figure(matrix[None], queries, keys, title, names=[""])


def head_figure(
    weights: Weights | Sequence[Weights],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    names: Sequence[str] | None = None,
    blank: NDArray[np.bool_] | None = None,
) -> Figure:
    """One heat-map per head, with a common colour scale.

    Args:
        weights: `[H, Q, K]`.
        queries: tokens of the rows.
        keys: tokens of the columns.
        title: the title; it is not interpreted as mathematics.
        names: a name for each head; default: ``head 1``, ``head 2``, …
        blank: `[H, Q, K]`: cells that have no weight, which are grey.

    Raises:
        UserError: the shape does not match the numbers of tokens, or a weight is not finite.
    """
    stack = checked_weights(weights, 3)
    heads = stack.shape[0]
    names = list(names) if names is not None else [f"head {head + 1}" for head in range(heads)]
    if stack.shape != (len(names), len(queries), len(keys)) or not stack.size:
        raise UserError(
            f"weights of shape {list(stack.shape)} do not belong to {len(names)} heads, "
            f"{len(queries)} queries and {len(keys)} keys"
        )
    grid = _Grid.of(len(queries), len(keys), heads)
    figure = new_figure(_LONGEST_SIDE, _LONGEST_SIDE)
    texts = _Texts.of(queries, keys, names, title, grid)
    stack = np.ma.masked_array(stack, mask=np.ma.nomask if blank is None else blank)
    high = max(float(np.abs(stack).max()), 1e-6)
    low = -high if (stack < 0).any() else 0.0
    panels = []
    drawn: list[QuadMesh | AxesImage] = []
    for head, name in enumerate(names):
        axes = figure.add_axes((0, 0, 1, 1), label=f"panel {head}")
        drawn.append(
            _draw_weights(axes, stack[head], low, high, as_shapes=stack.size <= _DRAWN_AS_SHAPES)
        )
        row, column = divmod(head, grid.columns)
        _label(axes, texts, grid, name, top=row == 0, left=column == 0)
        panels.append(axes)
    bar = figure.add_axes((0, 0, 1, 1), label="colour bar")
    figure.colorbar(drawn[0], cax=bar)
    bar.tick_params(labelsize=min(9.0, grid.font + 1), width=0.6, length=2.5)
    for spine in bar.spines.values():
        spine.set_linewidth(0.6)
    _place(figure, panels, bar, texts, grid, (len(queries), len(keys)))
    return figure


@dataclass(frozen=True)
class _Texts:
    """The texts of a figure, ready to draw."""

    queries: list[str]
    keys: list[str]
    title: str
    note: str
    families: list[str]
    missing: str

    @classmethod
    def of(
        cls,
        queries: Sequence[str],
        keys: Sequence[str],
        names: Sequence[str],
        title: str,
        grid: _Grid,
    ) -> "_Texts":
        rows, columns = token_labels(queries), token_labels(keys)
        families, missing = font_families([*rows, *columns, *names, title])
        notes = []
        for step, what in ((grid.row_step, "rows"), (grid.column_step, "columns")):
            if step > 1:
                notes.append(f"1 of {step} {what} is labelled")
        if _any_shortened(rows, queries) or _any_shortened(columns, keys):
            notes.append("long tokens shortened")
        shown = shorten(title.replace("\n", " "), 120)
        return cls(rows, columns, shown, "; ".join(notes), [*families, "sans-serif"], missing)


def _any_shortened(labels: Sequence[str], tokens: Sequence[str]) -> bool:
    return any(
        "…" in label and "…" not in token for label, token in zip(labels, tokens, strict=True)
    )


def checked_weights(weights: Weights | Sequence[Weights], dimensions: int) -> NDArray[np.float64]:
    """The weights as an array.

    Raises:
        UserError: the number of dimensions is another one, or a weight is not finite.
    """
    if isinstance(weights, torch.Tensor):
        weights = weights.detach().to("cpu", torch.float64).numpy()
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != dimensions:
        raise UserError(f"weights of shape {list(array.shape)}: {dimensions} dimensions are needed")
    if not np.isfinite(array).all():
        raise UserError("some weights are not finite numbers and cannot be drawn")
    return array


def _colours(low: float) -> Colormap:
    return (SIGNED_COLOURS if low < 0 else COLOURS).with_extremes(bad=_NO_WEIGHT)


def _draw_weights(
    axes: Axes, matrix: NDArray[np.float64], low: float, high: float, *, as_shapes: bool
) -> QuadMesh | AxesImage:
    queries, keys = matrix.shape
    if not as_shapes:
        # Viewers are slow with thousands of squares in a vector file; an image stays small.
        return axes.imshow(
            matrix, cmap=_colours(low), vmin=low, vmax=high, interpolation="nearest", aspect="auto"
        )
    few = max(queries, keys) <= 40
    mesh = axes.pcolormesh(
        np.arange(keys + 1) - 0.5,
        np.arange(queries + 1) - 0.5,
        matrix,
        cmap=_colours(low),
        vmin=low,
        vmax=high,
        edgecolor="#e4e4e4" if few else "face",
        linewidth=0.4 if few else 0.1,
    )
    axes.set_ylim(queries - 0.5, -0.5)
    return mesh


def _label(axes: Axes, texts: _Texts, grid: _Grid, name: str, *, top: bool, left: bool) -> None:
    style: dict[str, Any] = {
        "fontsize": grid.font,
        "fontfamily": texts.families,
        "parse_math": False,
    }
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_linewidth(0.6)
        spine.set_color("#808080")
    columns = range(0, len(texts.keys), grid.column_step)
    upright = len(texts.keys) > 24
    axes.set_xticks(
        list(columns),
        [texts.keys[place] for place in columns] if top else [""] * len(columns),
        rotation=90 if upright else 50,
        ha="center" if upright else "left",
        va="bottom",
        rotation_mode="default" if upright else "anchor",
        **style,
    )
    rows = range(0, len(texts.queries), grid.row_step)
    axes.set_yticks(
        list(rows), [texts.queries[place] for place in rows] if left else [""] * len(rows), **style
    )
    if name:
        axes.set_xlabel(
            name,
            fontsize=max(grid.font, 8),
            fontfamily=texts.families,
            parse_math=False,
            labelpad=3,
        )
        axes.xaxis.set_label_position("bottom")


def _place(
    figure: Figure,
    panels: list[Axes],
    bar: Axes,
    texts: _Texts,
    grid: _Grid,
    tokens: tuple[int, int],
) -> None:
    """Set the size of the panels, measure the labels, and fit the figure around them."""
    height, width = tokens[0] * grid.height, tokens[1] * grid.width
    left, right, above = _measure(figure, panels, width, height, texts)
    below = 0.26 if panels[0].get_xlabel() else 0.0
    title = 0.34 if texts.title else 0.0
    note = 0.22 if texts.note else 0.0
    inside_x = grid.columns * width + (grid.columns - 1) * _GAP
    inside_y = grid.rows * (height + below) + (grid.rows - 1) * _GAP
    gap = _GAP + right
    total_x = max(left + inside_x + gap + _BAR + 0.45, _title_width(figure, texts)) + 2 * _MARGIN
    total_y = max(above + inside_y, 1.0) + title + note + 2 * _MARGIN
    figure.set_size_inches(total_x, total_y)
    for place, axes in enumerate(panels):
        row, column = divmod(place, grid.columns)
        x = _MARGIN + left + column * (width + _GAP)
        y = total_y - _MARGIN - title - above - height - row * (height + below + _GAP)
        axes.set_position((x / total_x, y / total_y, width / total_x, height / total_y))
    tall = min(max(height, 0.8), 3.0)
    y = total_y - _MARGIN - title - above - max(height, 0.0)
    bar_y = y + height - tall
    if bar_y < _MARGIN + note:
        bar_y = _MARGIN + note
    bar_x = _MARGIN + left + inside_x + gap
    bar.set_position((bar_x / total_x, bar_y / total_y, _BAR / total_x, tall / total_y))
    written: dict[str, Any] = {"fontfamily": texts.families, "parse_math": False, "ha": "left"}
    if texts.title:
        y = 1 - _MARGIN / total_y
        figure.text(_MARGIN / total_x, y, texts.title, fontsize=11, va="top", **written)
    if texts.note:
        x, y = _MARGIN / total_x, _MARGIN / total_y
        figure.text(x, y, texts.note, fontsize=7, va="bottom", color="#606060", **written)
    set_missing_characters(figure, texts.missing)


def _measure(
    figure: Figure, panels: list[Axes], width: float, height: float, texts: _Texts
) -> tuple[float, float, float]:
    """The space that labels need outside of the panels: left, right and above, in inches."""
    first = panels[0]
    size_x, size_y = figure.get_size_inches()
    # The position does not matter, but the panels must have their final size.
    for axes in panels:
        axes.set_position((0.5, 0.5, width / size_x, height / size_y))
    labels = [*first.get_yticklabels(), *first.get_xticklabels()]
    original = [label.get_text() for label in labels]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        for label, text in zip(labels, original, strict=True):
            # A viewer may have a font for a missing character; reserve the width of an em for it.
            label.set_text("".join("—" if c in texts.missing else c for c in text))
        figure.draw_without_rendering()
        inner = first.get_window_extent()
        outer = [label.get_window_extent() for label in labels if label.get_text()]
        for label, text in zip(labels, original, strict=True):
            label.set_text(text)
    left = max(inner.x0 - min(box.x0 for box in outer), 0) / figure.dpi
    # Slanted labels of the last columns may extend beyond the right edge of the panel.
    right = max(max(box.x1 for box in outer) - inner.x1, 0) / figure.dpi
    above = max(max(box.y1 for box in outer) - inner.y1, 0) / figure.dpi
    return left * _ROUNDING + 0.04, right * _ROUNDING, above * _ROUNDING + 0.04


def _title_width(figure: Figure, texts: _Texts) -> float:
    widest = 0.0
    for text, size in ((texts.title, 11), (texts.note, 7)):
        if text:
            drawn = figure.text(0, 0, text, fontsize=size, fontfamily=texts.families)
            drawn.set_parse_math(False)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"Glyph \d+")
                box = drawn.get_window_extent()
            widest = max(widest, box.width / figure.dpi)
            drawn.remove()
    return widest * _ROUNDING
