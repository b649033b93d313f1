"""Links between tokens as bands, whose width and opacity are the weight: the page's first picture.

Letters: `Q` queries, `K` keys.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.viewing.figures import new_figure, set_missing_characters
from heedful.viewing.fonts import font_families
from heedful.viewing.heatmap import FULL, NEGATIVE, Weights, checked_weights
from heedful.viewing.labels import shorten, token_labels

_FONT = 12.0
_WIDEST, _WIDEST_GAP = 11.0, 0.5
_BAND, _LINE = 1.9, 0.235
_MARGIN, _TITLE, _NOTE = 0.15, 0.34, 0.24
_THICK, _THIN = 9.0, 0.6
_POINTS = 72.0
Place = tuple[float, float]


class _Scene(NamedTuple):
    """Where tokens and links are, in inches from the lower left corner."""

    width: float
    height: float
    queries: list[Place]
    keys: list[Place]
    layout: str
    """``rows``: keys above queries; ``arcs``: one line; ``columns``: keys left of queries."""
    reach: float = 0.0
    """The height of the longest arc."""


def links_figure(
    weights: Weights,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    *,
    own: bool = False,
    least: float = 0.01,
) -> Figure:
    """Bands from keys to queries.

    Keys are above queries; texts that are too wide for this are two columns. If queries and keys
    are the same tokens, they are one line with arcs: above it to earlier tokens, below to later
    ones.

    Args:
        weights: `[Q, K]`, the weight of each key for each query.
        queries: the tokens that read (of a translation: the output).
        keys: the tokens that are read (of a translation: the source).
        title: the title; it is not interpreted as mathematics.
        own: whether queries and keys are the same tokens.
        least: links below this share of the largest weight, or of 1 if that is larger, are hidden
            and counted.

    Raises:
        UserError: the shape does not match the numbers of tokens, or a weight is not finite.
    """
    matrix = checked_weights(weights, 2)
    if matrix.shape != (len(queries), len(keys)) or not matrix.size:
        raise UserError(
            f"weights of shape {list(matrix.shape)} do not belong to {len(queries)} queries and "
            f"{len(keys)} keys"
        )
    rows, columns = token_labels(queries), token_labels(keys)
    shown = shorten(title.replace("\n", " "), 120)
    families, missing = font_families([*rows, *columns, shown])
    style: dict[str, Any] = {"fontfamily": [*families, "sans-serif"], "parse_math": False}
    figure = new_figure(_WIDEST, _WIDEST)
    widths = [_widths(figure, labels, style) for labels in (rows, columns)]
    scale = max(float(np.abs(matrix).max()), 1.0 if float(matrix.sum(1).max()) <= 1.001 else 1e-6)
    drawn = np.abs(matrix) >= least * scale
    hidden = int((~drawn).sum())
    own = own and rows == columns
    scene = _place(widths[0], widths[1], own, later=bool(np.triu(drawn, 1).any()))
    note = f"{hidden:,} of {matrix.size:,} links below {least * scale:.2g} are hidden"
    above, below = (_TITLE if shown else 0.0), (_NOTE if hidden else 0.0)
    smallest = _widths(figure, [shown, note if hidden else ""], style)[0]
    size = max(scene.width, smallest) + 2 * _MARGIN, scene.height + above + below + 2 * _MARGIN
    figure.set_size_inches(*size)
    shift = (size[0] - scene.width) / 2, _MARGIN + below
    axes = figure.add_axes((0, 0, 1, 1), label="links")
    axes.set_axis_off()
    axes.set_xlim(-shift[0], size[0] - shift[0])
    axes.set_ylim(-shift[1], size[1] - shift[1])
    for patch in _links(matrix, scene, least, scale):
        axes.add_patch(patch)
    _write(axes, rows, scene.queries, scene.layout, "left", style)
    if not own:
        _write(axes, columns, scene.keys, scene.layout, "right", style)
    if shown:
        y = 1 - _MARGIN / size[1]
        figure.text(0.5, y, shown, fontsize=11, va="top", ha="center", **style)
    if hidden:
        y = _MARGIN / size[1]
        figure.text(0.5, y, note, fontsize=7.5, va="bottom", ha="center", color="#606060", **style)
    set_missing_characters(figure, missing)
    return figure


def _widths(figure: Figure, labels: Sequence[str], style: dict[str, Any]) -> list[float]:
    """The widths of texts in inches."""
    found = []
    for label in labels:
        drawn = figure.text(0, 0, label, fontsize=_FONT, **style)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph \d+")
            found.append(drawn.get_window_extent().width / figure.dpi * 1.05)
        drawn.remove()
    return found


def _place(queries: list[float], keys: list[float], own: bool, later: bool) -> _Scene:
    """The places of tokens of these widths: the middle, or the inner end in columns.

    ``later``: whether there are arcs below the line.
    """
    gap = 0.17
    wide = max(sum(one) + gap * len(one) for one in (queries, keys))
    if wide > _WIDEST:
        return _columns(queries, keys)

    def line(widths: list[float], y: float) -> list[Place]:
        room = min((wide - sum(widths)) / len(widths), _WIDEST_GAP)
        at = (wide - sum(widths) - room * len(widths)) / 2
        places = []
        for width in widths:
            places.append((at + (room + width) / 2, y))
            at += room + width
        return places

    if own:
        reach = 0.35 + 0.085 * wide
        below = reach if later else 0.0
        places = line(queries, below + _LINE)
        return _Scene(wide, below + reach + 2 * _LINE, places, places, "arcs", reach)
    tall = 2 * _LINE + _BAND
    return _Scene(wide, tall, line(queries, _LINE / 2), line(keys, tall - _LINE / 2), "rows")


def _columns(queries: list[float], keys: list[float]) -> _Scene:
    left, right, band = max(keys), max(queries), 1.6 * _BAND
    count = max(len(queries), len(keys))

    def column(widths: list[float], x: float) -> list[Place]:
        first = count - (count - len(widths)) / 2 - 0.5
        return [(x, (first - place) * _LINE) for place in range(len(widths))]

    return _Scene(
        left + band + right,
        count * _LINE,
        column(queries, left + band),
        column(keys, left),
        "columns",
    )


def _links(
    matrix: NDArray[np.float64], scene: _Scene, least: float, scale: float
) -> list[PathPatch]:
    """Weak links first, so that strong ones are on top."""
    patches = []
    flat = np.abs(matrix).ravel()
    for place in np.argsort(flat, kind="stable"):
        share = float(flat[place]) / scale
        if share < least:
            continue
        query, key = divmod(int(place), matrix.shape[1])
        colour = FULL if matrix[query, key] >= 0 else NEGATIVE
        patches.append(
            PathPatch(
                Path(_curve(scene, query, key), [Path.MOVETO, *[Path.CURVE4] * 3]),
                fill=False,
                edgecolor=[part / 255 for part in colour],
                linewidth=max(_THIN, share * _THICK),
                alpha=0.1 + 0.78 * share**0.7,
                capstyle="butt",
            )
        )
    return patches


def _curve(scene: _Scene, query: int, key: int) -> list[Place]:
    (x0, y0), (x1, y1) = scene.keys[key], scene.queries[query]
    half = _LINE / 2
    if scene.layout == "columns":
        x0, x1 = x0 + 0.06, x1 - 0.06
        middle = (x0 + x1) / 2
        return [(x0, y0), (middle, y0), (middle, y1), (x1, y1)]
    if scene.layout == "rows":
        y0, y1 = y0 - half, y1 + half
        middle = (y0 + y1) / 2
        return [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]
    side = -1 if key > query else 1
    if key == query:
        x0, x1 = x0 - 0.09, x1 + 0.09
    edge = y0 + side * half
    # A cubic curve reaches three quarters of the height of its control points.
    longest = max(scene.width, 1e-6)
    height = 0.16 + (scene.reach - 0.16) * (abs(x1 - x0) / longest) ** 0.75
    top = edge + side * height / 0.75
    return [(x0, edge), (x0, top), (x1, top), (x1, edge)]


def _write(
    axes: Any, labels: list[str], places: list[Place], layout: str, side: str, style: dict[str, Any]
) -> None:
    align = side if layout == "columns" else "center"
    for label, (x, y) in zip(labels, places, strict=True):
        axes.text(x, y, label, fontsize=_FONT, ha=align, va="center_baseline", **style)
