"""The pictures of the report: learning curves, and figures by length."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heedful.viewing.comparison.sections import bucket_name, done, operations_unit
from heedful.viewing.figures import new_figure

Values = Mapping[str, Any]

# The palette for all types of colour vision of Okabe and Ito (2008); then other line styles.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLES = ("-", "--", ":", "-.")


def pictures_of(report: Values) -> dict[str, Figure]:
    """The pictures that a report has data for, by name: ``curves`` and ``lengths``."""
    found = {"curves": _curves(report), "lengths": _lengths(report)}
    return {name: figure for name, figure in found.items() if figure is not None}


def _style(place: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "linestyle": _STYLES[place // len(_COLOURS) % len(_STYLES)],
    }


def _curves(report: Values) -> Figure | None:
    """The loss by step and by operations, and the compared figure by step."""
    variants = [variant for variant in done(report) if variant["curve"]]
    if not variants:
        return None
    unit, size = operations_unit(report)
    by = report["compared_by"]
    panels = [
        ("step", 1.0, "step", "loss", "validation loss"),
        ("operations", size, unit, "loss", "validation loss"),
        ("step", 1.0, "step", "value", f"{by} (validation)"),
    ]
    first = variants[0]["curve"][0]
    there = [
        first[panel[3]] is not None and (panel[3], by) != ("value", "loss") for panel in panels
    ]
    panels = [panel for panel, is_there in zip(panels, there, strict=True) if is_there]
    if not panels:
        return None
    figure = new_figure(4.2 * len(panels), _height(variants, 3.2))
    figure.set_layout_engine("constrained")
    axes: Sequence[Axes] = list(figure.subplots(1, len(panels), squeeze=False)[0])
    for panel, (across, scale, name, key, label) in zip(axes, panels, strict=True):
        for place, variant in enumerate(variants):
            if variant["runs"][1:]:
                for run in variant["runs"]:
                    xs = [point[across] / scale for point in run["curve"]]
                    ys = [point[key] for point in run["curve"]]
                    panel.plot(xs, ys, alpha=0.25, linewidth=0.8, **_style(place))
            xs = [point[across] / scale for point in variant["curve"]]
            ys = [point[key] for point in variant["curve"]]
            panel.plot(xs, ys, marker="o", markersize=2.5, linewidth=1.6, **_style(place))
        panel.set_xlabel(name)
        panel.set_ylabel(label)
        _finish(panel)
    _legend(figure, axes[0], variants)
    return figure


def _lengths(report: Values) -> Figure | None:
    """The first figure by length of the input."""
    variants = [
        variant
        for variant in done(report)
        if variant.get("by_length") and variant["by_length"][0]["figures"]
    ]
    if not variants or len(variants[0]["by_length"]) < 2:
        return None
    buckets = variants[0]["by_length"]
    name = next(iter(buckets[0]["figures"]))
    figure = new_figure(8.4, _height(variants, 3.0))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    names = [bucket_name(bucket) for bucket in buckets]
    for place, variant in enumerate(variants):
        known = {bucket_name(one): one["figures"].get(name) for one in variant["by_length"]}
        there = [each for each in names if known.get(each) is not None]
        xs = [names.index(each) for each in there]
        axes.plot(xs, [known[each] for each in there], marker="o", markersize=4, **_style(place))
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(f"length of the input in {buckets[0]['unit']}")
    axes.set_ylabel(name)
    _finish(axes)
    _legend(figure, axes, variants)
    return figure


def _height(variants: Sequence[Values], least: float) -> float:
    """Inches for the panels and the legend below them."""
    return least + 0.18 * (1 + len(variants) // 2)


def _finish(axes: Axes) -> None:
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.03)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(figure: Figure, axes: Axes, variants: Sequence[Values]) -> None:
    handles = [
        axes.plot([], [], linewidth=1.6, label=variant["name"], **_style(place))[0]
        for place, variant in enumerate(variants)
    ]
    names = [variant["name"].replace("$", r"\$") for variant in variants]
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
