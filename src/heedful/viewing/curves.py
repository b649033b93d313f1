"""Training curves from a run's ``metrics.jsonl``: the loss and the metric at each step."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from heedful.basics.bounded_reading import require_regular
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.viewing.figures import new_figure

# Blue and orange of a palette for all types of colour vision (Okabe and Ito, 2008).
_TRAINING, _VALIDATION = "#0072b2", "#d55e00"
_LOWER_IS_BETTER = ("loss", "perplexity", "ter", "aer")
_METRICS = ("bleu", "chrf", "accuracy", "ter", "aer", "perplexity")
_SMOOTHED_OVER = 30


@dataclass(frozen=True)
class Series:
    """Finite numbers and their steps."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]], name: str) -> "Series":
        """The values of ``name`` in the records that have it."""
        found = [
            (int(record["step"]), float(record[name]))
            for record in records
            if isinstance(record.get(name), int | float) and math.isfinite(record[name])
        ]
        return cls([step for step, _ in found], [value for _, value in found])


@dataclass(frozen=True)
class Records:
    """The records of a training, in the order of the file."""

    training: list[dict[str, Any]]
    validation: list[dict[str, Any]]

    def metric(self) -> str | None:
        """The validation metric to plot: the first of `_METRICS` that was recorded."""
        there = {name.lower(): name for record in self.validation for name in record}
        return next((there[name] for name in _METRICS if name in there), None)


def read_records(path: Path) -> Records:
    """Read JSON lines. An incomplete last line, of a killed run, is skipped with a notice.

    Raises:
        UserError: the file is missing or has no record, or a line before the last is invalid.
    """
    try:
        require_regular(path)
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot read {path}: {reason}; give the folder of a run") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; is it the metrics file of a run?") from error
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                notice(f"{path}: skipped the last line, which is incomplete")
                continue
            raise UserError(f"{path}, line {number}: not a JSON record ({error})") from error
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    training = [record for record in records if record.get("kind") == "train"]
    validation = [record for record in records if record.get("kind") == "validation"]
    if not training and not validation:
        raise UserError(f"{path} has no records yet; train for some steps first")
    return Records(training, validation)


def curve_figure(records: Records, title: str = "", chosen: int | None = None) -> Figure:
    """Plot the loss and, below it, the validation metric if there is one.

    Args:
        records: the result of :func:`read_records`.
        title: the title; it is not interpreted as mathematics.
        chosen: the step of the checkpoint that the run uses, which is marked; the best if None.
    """
    metric = records.metric()
    rows = 2 if metric else 1
    figure = new_figure(7.0, 2.2 + 2.4 * (rows - 1) + 0.9)
    figure.set_layout_engine("constrained")
    panels: list[Axes] = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    _draw_loss(panels[0], records)
    if metric:
        _draw_metric(panels[1], Series.of(records.validation, metric), metric, chosen)
    for axes in panels:
        axes.grid(color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.02)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xlabel("step")
    if title:
        panels[0].set_title(title, loc="left", fontsize=11, parse_math=False)
    return figure


def _draw_loss(axes: Axes, records: Records) -> None:
    training = Series.of(records.training, "loss")
    validation = Series.of(records.validation, "loss")
    if training.steps:
        smooth = len(training.steps) > 2 * _SMOOTHED_OVER
        axes.plot(
            training.steps,
            training.values,
            color=_TRAINING,
            alpha=0.3 if smooth else 1.0,
            linewidth=0.8 if smooth else 1.4,
            label=None if smooth else "training",
        )
        if smooth:
            axes.plot(
                training.steps,
                smoothed(training.values, _SMOOTHED_OVER),
                color=_TRAINING,
                linewidth=1.4,
                label=f"training (mean of {_SMOOTHED_OVER})",
            )
    if validation.steps:
        axes.plot(
            validation.steps,
            validation.values,
            color=_VALIDATION,
            marker="o",
            markersize=3.5,
            linewidth=1.2,
            label="validation",
        )
    # The loss of the first steps is so large that the rest of a linear plot would look flat.
    values = training.values + validation.values
    if values and min(values) > 0 and max(values) > 8 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("loss")
    if axes.lines:
        axes.legend(frameon=False, fontsize=9)


def _draw_metric(axes: Axes, series: Series, name: str, chosen: int | None) -> None:
    axes.plot(
        series.steps, series.values, color=_VALIDATION, marker="o", markersize=3.5, linewidth=1.2
    )
    shown = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "aer": "AER"}.get(name.lower(), name)
    axes.set_ylabel(f"{shown} (validation)")
    axes.margins(y=0.18)
    if not series.values:
        return
    lower = name.lower() in _LOWER_IS_BETTER
    best = min(series.values) if lower else max(series.values)
    step, word = series.steps[series.values.index(best)], "best"
    if chosen in series.steps:
        word, step, best = "chosen", chosen, series.values[series.steps.index(chosen)]
    late = step > (series.steps[0] + series.steps[-1]) / 2
    axes.annotate(
        f"{word} {best:.2f} at step {step:,}",
        (step, best),
        xytext=(0, -12 if lower else 7),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=9,
        parse_math=False,
    )
    axes.plot([step], [best], marker="o", markersize=7, fillstyle="none", color="black")


def smoothed(values: Sequence[float], over: int) -> NDArray[np.float64]:
    """The moving mean over each value and ``over // 2`` values on each side (fewer at the ends).

    Example:
        >>> smoothed([1.0, 3.0, 5.0, 7.0], 2).tolist()
        [2.0, 3.0, 5.0, 6.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
    places = np.arange(len(values))
    # The window is symmetric; otherwise a falling curve would be shifted.
    reach = np.minimum(over // 2, len(values))
    starts = np.maximum(places - reach, 0)
    ends = np.minimum(places + reach + 1, len(values))
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
