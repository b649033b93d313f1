"""Plots that studies share, in the colours of all other figures."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heedful.viewing.figures import new_figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The palette for all types of colour vision of Okabe and Ito (2008)."""
STYLES = ("-", "--", ":", "-.")

Line = tuple[Sequence[float], Sequence[float]]
"""Places on the horizontal and on the vertical axis."""


def panels(columns: int, width: float = 4.2, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure of some panels beside each other."""
    figure = new_figure(width * columns, height)
    figure.set_layout_engine("constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def draw_lines(axes: Axes, lines: Mapping[str, Line], *, marked: bool = True) -> None:
    """Lines with a legend below them; the order of the names sets colours and styles."""
    for place, (name, (xs, ys)) in enumerate(lines.items()):
        axes.plot(
            xs,
            ys,
            label=name,
            marker="o" if marked else None,
            markersize=3.5,
            linewidth=1.5,
            color=COLOURS[place % len(COLOURS)],
            linestyle=STYLES[place // len(COLOURS) % len(STYLES)],
        )
    columns = 4 if len(lines) > 4 else 2
    below = (0.5, -0.2)
    axes.legend(frameon=False, fontsize=8, ncols=columns, loc="upper center", bbox_to_anchor=below)
    finish(axes)


def draw_matrix(
    axes: Axes,
    rows: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    low: float = 0.0,
    high: float = 1.0,
    numbers: bool = True,
) -> None:
    """A matrix with a number in each cell; white is ``low``, dark blue is ``high``."""
    axes.imshow(rows, cmap="Blues", vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(len(column_names)), column_names, fontsize=8)
    axes.set_yticks(range(len(row_names)), row_names, fontsize=8)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    middle = (low + high) / 2
    for y, row in enumerate(rows if numbers else []):
        for x, value in enumerate(row):
            colour = "white" if value > middle else "#1f2328"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)


def finish(axes: Axes) -> None:
    """Light grid lines behind the plot, and no frame above and on the right."""
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
