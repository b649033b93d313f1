"""Measures how the cost of translation grows with batch, beam, source length and vocabulary.

    python benchmarks/cost_growth.py [--sizes tiny base] [--figure docs/images/cost-growth.svg]

Sentences per second of heedful's search in float32, with random weights, 16 forced target tokens
and random sources. One of the four parameters varies at a time; the first line of the report lists
the others. Values are medians of three rounds over all points. A point is a cliff if an operation
costs 1.5 times as much as at the previous point.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from matplotlib.ticker import LogLocator

import limits
from heedful.viewing.figures import new_figure, save_figure
from heedful_worker import Searcher
from reporting import machine, said, table
from sizes import SIZES
from turns import transformer

CLIFF = 1.5


class Case(NamedTuple):
    """The parameters of a point."""

    batch: int = 64
    beam: int = 1
    source: int = 14
    vocabulary: int = 8000


AXES: dict[str, list[int]] = {
    "batch": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    "beam": [1, 2, 4, 5, 8, 12, 16],
    "source": [8, 16, 32, 64, 128, 256, 512, 1024, 2000],
    "vocabulary": [4000, 8000, 16000, 32000, 64000],
}
TITLES = {
    "batch": "sentences in a batch",
    "beam": "beam",
    "source": "source tokens",
    "vocabulary": "vocabulary",
}
LONG_BATCH = 8
"""Batch size for the axis of source lengths."""


def cases(axis: str, values: list[int]) -> list[Case]:
    """The points of an axis."""
    usual = Case(batch=LONG_BATCH) if axis == "source" else Case()
    return [usual._replace(**{axis: value}) for value in values]


def searcher(size: str, vocabulary: int, length: int, longest: int, threads: int) -> Searcher:
    """Build a model of a size."""
    model = transformer(size) | {"max_length": max(longest, length) + 2}
    work = {"model": model, "vocabulary": vocabulary, "length": length}
    return Searcher(work, "float32", threads)


def rate(search: Searcher, case: Case) -> float:
    """Sentences per second for one batch."""
    draw = random.Random(1)
    symbols = range(4, case.vocabulary)
    batch = [draw.choices(symbols, k=case.source) for _ in range(case.batch)]
    began = time.perf_counter()
    outputs = search(batch, case.beam)
    seconds = time.perf_counter() - began
    if {len(output) for output in outputs} != {search.length} or len(outputs) != case.batch:
        raise RuntimeError(f"{case}: an output is missing or has the wrong length")
    return case.batch / seconds


def measure(options: argparse.Namespace, axes: dict[str, list[int]]) -> dict[str, Any]:
    """Measure all points of all axes, round by round."""
    known, sizes = limits.limits(options.threads), {}
    points = [(axis, case) for axis, values in axes.items() for case in cases(axis, values)]
    longest = max(case.source for _, case in points)
    for size in options.sizes:
        rates: dict[tuple[str, Case], list[float]] = {point: [] for point in points}
        for vocabulary in sorted({case.vocabulary for _, case in points}):
            search = searcher(size, vocabulary, options.length, longest, options.threads)
            mine = [point for point in points if point[1].vocabulary == vocabulary]
            for repetition in range(-1, options.repetitions):
                for point in mine:
                    found = rate(search, point[1])
                    if repetition >= 0:
                        rates[point].append(found)
            print(f"{size}, vocabulary {vocabulary:,}", file=sys.stderr, flush=True)
        sizes[size] = {axis: _axis(size, axis, rates, options.length) for axis in axes}
    return {
        "unit": "sentences/s",
        "machine": machine(options.threads),
        "limits": limits.highest(known, limits.limits(options.threads)),
        "length": options.length,
        "usual": Case()._asdict(),
        "sizes": sizes,
    }


def _axis(
    size: str, axis: str, rates: dict[tuple[str, Case], list[float]], length: int
) -> list[dict[str, Any]]:
    """The points of an axis, with the cost of an operation relative to the previous point."""
    found: list[dict[str, Any]] = []
    for (name, case), own in rates.items():
        if name != axis:
            continue
        work = SIZES[size].translating(case.source + 1, length, case.beam, case.vocabulary)
        speed = median(own)
        cost = 1 / (speed * work)
        more = cost / found[-1]["cost"] if found else 1.0
        value = getattr(case, axis)
        found.append({"value": value, "speed": speed, "all": own, "cost": cost, "more": more})
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the four axes."""
    figure = new_figure(7.5, 5.5)
    figure.set_layout_engine("constrained")
    axes = list(next(iter(found["sizes"].values())))
    for axes_of, axis in zip(figure.subplots(2, 2).flat, axes, strict=False):
        for size, own in found["sizes"].items():
            values, speeds = zip(*((one["value"], one["speed"]) for one in own[axis]), strict=True)
            axes_of.plot(values, speeds, marker="o", markersize=3.5, label=size)
        axes_of.set_xscale("log", base=2)
        axes_of.set_yscale("log")
        axes_of.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes_of.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes_of.set_xticks(values, [f"{value:,}" for value in values], rotation=45)
        axes_of.minorticks_off()
        axes_of.set_xlabel(TITLES[axis])
        axes_of.set_ylabel("sentences/s")
        axes_of.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False)
    save_figure(figure, path)


def report(found: dict[str, Any]) -> str:
    """A table for each axis, and the cliffs."""
    usual = ", ".join(f"{TITLES[axis]} {value:,}" for axis, value in found["usual"].items())
    parts = ["## How cost grows", "", f"Defaults: {usual}; {LONG_BATCH} sentences in a batch"]
    parts[-1] += f" for the axis of source lengths. {found['length']} target tokens, float32."
    cliffs = []
    for axis in next(iter(found["sizes"].values())):
        rows, titles = [], [TITLES[axis]]
        for size, own in found["sizes"].items():
            titles.append(f"{size}, sentences/s")
            cliffs += [
                f"{size}, {TITLES[axis]} {one['value']:,}: {one['more']:.1f}×"
                for one in own[axis]
                if one["more"] > CLIFF
            ]
        for points in zip(*(own[axis] for own in found["sizes"].values()), strict=True):
            rows.append([f"{points[0]['value']:,}", *(f"{one['speed']:,.1f}" for one in points)])
        parts += ["", table(titles, rows)]
    said_of_cliffs = "; ".join(cliffs) or "none"
    parts += [
        "",
        f"Cliffs (an operation costs more than {CLIFF}× as much as at the previous point):",
    ]
    return "\n".join(
        [*parts, f"{said_of_cliffs}.", "", limits.said(found["limits"]), said(found["machine"])]
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["tiny", "base"])
    for axis, values in AXES.items():
        parser.add_argument(f"--{axis}", nargs="+", type=int, default=values, metavar="N")
    for name, value in {"repetitions": 3, "threads": 2, "length": 16}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--figure", type=Path, help="file for the figure (.svg, .png, .pdf)")
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, draw, print."""
    options = parse()
    axes = {axis: getattr(options, axis) for axis in AXES}
    found = measure(options, axes)  # models created in inference mode would not be fused
    if options.figure:
        draw(found, options.figure)
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
