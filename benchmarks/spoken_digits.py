"""Word error rates of recognisers of joined digits, by length, and errors of the times of words.

    python benchmarks/spoken_digits.py FOLDER runs/content runs/location [--plot lengths.svg]
                                       [--ctc-weight 0]
    python benchmarks/spoken_digits.py FOLDER "location-aware=runs/location-1,runs/location-2"

The runs of a system are its seeds. Its figures are their mean, with the least and the greatest
between brackets; those of one run have a 95 % interval. ``NAME@0=RUNS`` sets the weight of CTC in
the search for this system. ``NAME@window=RUNS`` lets its attention read 0.75 seconds on either side
of the median of the weights before (Chorowski et al. 2015, section 2.3), in the search only.

FOLDER is that of ``speech_data.py digits``. Recordings are not cut into parts, however long they
are: the lengths are up to ten times those of the training (Chorowski et al. 2015, section 4.3). The
time of a word is right if its middle is inside the word; measured where the text is right.
"""

import argparse
import csv
import json
import sys
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import heedful
from heedful.attention.normalizers import Softmax, Windowed
from heedful.attention.recurrent import RecurrentAttention
from heedful.basics.files import write_json
from heedful.tasks.sound_input import heard_in
from heedful.tasks.transcription.errors import error_figures
from reporting import table

TABLES = ("single", "test", "long-10", "long-20", "long-30", "long-50")
_LONGEST = 120.0
"""Seconds; no recording is longer."""
_WINDOW = 19
"""Positions of 40 ms on either side: 0.75 seconds, as the paper's 75 frames of 10 ms."""


def rows_of(folder: Path, name: str) -> list[tuple[str, str]]:
    """Paths and texts of a table."""
    with (folder / f"{name}.tsv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    return [(str(folder / row["path"]), row["text"]) for row in found]


def measure(run: Path, folder: Path, search: str) -> dict[str, Any]:
    """Word error rates of a run, and the share of right times."""
    reader: Any = heedful.load(run)
    if search == "window":
        set_window(reader.model)
    elif search:
        reader.options = reader.options.model_copy(update={"ctc_weight": float(search)})
    reader.known = {**reader.known, "longest_part": _LONGEST}
    found: dict[str, Any] = {}
    for name in TABLES:
        rows = rows_of(folder, name)
        results = reader.predict([heard_in(path) for path, _ in rows])
        figures = error_figures([one.text for one in results], [text for _, text in rows])
        own = figures["word error"]
        found[name] = [own.value, own.low, own.high]
        times = folder / f"{name}.times.json"
        if name == "test" and any(one.words for one in results) and times.exists():
            found["times"] = _right_times(results, json.loads(times.read_text("utf-8")))
        print(f"{run}, {name}: {own.value:.1f} %", file=sys.stderr, flush=True)
    return found


def set_window(model: Any) -> None:
    """Restrict the attention of a model with location-aware scores to a window."""
    found = [one for one in model.modules() if isinstance(one, RecurrentAttention)]
    if not found or not all(isinstance(one.normalize, Softmax) for one in found):
        sys.exit("a window is for location-aware attention with a softmax")
    for one in found:
        one.normalize = Windowed(_WINDOW).eval()


def measured(run: Path, folder: Path, search: str) -> dict[str, Any]:
    """What :func:`measure` found, which is kept in the run's folder; measured if it is not."""
    name = f"spoken-digits-{folder.resolve().name}{search and f'-{search}'}.json"
    kept = run / name
    if not kept.exists():
        write_json(kept, measure(run, folder, search))
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _right_times(results: list[Any], expected: list[Any]) -> float:
    """The share of words, in per cent, whose middle is inside the word."""
    inside, count = 0, 0
    for one, words in zip(results, expected, strict=True):
        if one.text != " ".join(word for word, *_ in words):
            continue
        for word, (_, start, end) in zip(one.words, words, strict=True):
            inside += start <= (word.start + word.end) / 2 <= end
            count += 1
    return 100 * inside / max(1, count)


class System(NamedTuple):
    """What one row and one curve show."""

    name: str
    runs: list[Path]
    search: str
    """A weight of CTC, ``window``, or nothing: the run's own search."""


def system_of(given: str, search: str) -> System:
    """Read ``RUN`` or ``NAME=RUN,RUN`` or ``NAME@SEARCH=RUN,RUN``."""
    name, equal, runs = given.partition("=")
    if not equal:
        return System(given, [Path(given)], search)
    name, _, own = name.partition("@")
    return System(name, [Path(run) for run in runs.split(",")], own or search)


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a system: mean, least and greatest of its runs."""
    if len(seeds) == 1:
        return seeds[0]
    found: dict[str, Any] = {}
    for name in TABLES:
        values = [own[name][0] for own in seeds]
        found[name] = [fmean(values), min(values), max(values)]
    if all("times" in own for own in seeds):
        found["times"] = fmean(own["times"] for own in seeds)
    return found


def plot(found: dict[str, Any], path: Path) -> None:
    """Word error rates over the number of digits; bands are from the least to the greatest."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    places = {"single": 1, "test": 5, **{f"long-{n}": n for n in (10, 20, 30, 50)}}
    digits = list(places.values())
    for (system, own), marker in zip(found.items(), cycle("osD^vPX")):
        mean, low, high = ([own[name][part] for name in places] for part in range(3))
        (line,) = axes.plot(digits, mean, marker=marker, markersize=4, label=system)
        axes.fill_between(digits, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.axvspan(1, 5, color="0.92", zorder=0)
    axes.set(xlabel="digits of an utterance (grey: as in training)", ylabel="word error, %")
    axes.set(xscale="log", yscale="log", xticks=digits, yticks=[5, 10, 20, 50, 100, 200, 500])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("systems", nargs="+", metavar="RUN or NAME=RUN,RUN")
    parser.add_argument("--plot", type=Path, help="a .svg, .png or .pdf file")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--ctc-weight", default="", help="of the search; default: that of the run")
    given = parser.parse_args()
    found = {}
    for one in given.systems:
        system = system_of(one, given.ctc_weight)
        seeds = [measured(run, given.folder, system.search) for run in system.runs]
        found[system.name] = summary(seeds)
    if given.plot is not None:
        plot(found, given.plot)
    if given.json:
        print(json.dumps(found))
        return
    lines = [
        [name, *(f"{own[of][0]:.1f} [{own[of][1]:.1f}, {own[of][2]:.1f}]" for of in TABLES),
         f"{own['times']:.1f} %" if "times" in own else "–"]
        for name, own in found.items()
    ]  # fmt: skip
    print(table(["word error, %", *TABLES, "right times"], lines))


if __name__ == "__main__":
    main()
