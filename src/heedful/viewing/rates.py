"""A figure of a learning-rate range test: the loss at each rate, and the rate that it suggests."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from heedful.viewing.figures import new_figure

# Blue and orange of a palette for all types of colour vision (Okabe and Ito, 2008).
_LOSS, _SUGGESTED = "#0072b2", "#d55e00"


def rates_figure(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    suggestion: float | None,
) -> Figure:
    """Plot losses over learning rates on a logarithmic scale.

    Args:
        rates: the learning rate of each step.
        losses: the loss of each step.
        smoothed: their moving average.
        suggestion: the rate to mark; None for no mark.
    """
    figure = new_figure(7.0, 3.4)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, color=_LOSS, alpha=0.3, linewidth=0.8)
    axes.plot(rates, smoothed, color=_LOSS, linewidth=1.4, label="loss, smoothed")
    if suggestion is not None:
        axes.axvline(suggestion, color=_SUGGESTED, linewidth=1.2, label=f"{suggestion:.2g}")
    axes.set_xscale("log")
    low, high = float(np.min([*losses, *smoothed])), float(smoothed[0])
    room = max(high - low, 1e-3)
    axes.set_ylim(low - 0.1 * room, high + 0.5 * room)  # a loss that diverges leaves the picture
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure
