"""Word error rates of recognisers of joined digits, by length, and errors of the times of words.

    python benchmarks/spoken_digits.py FOLDER runs/content runs/location [--plot lengths.svg]
                                       [--ctc-weight 0]

FOLDER is that of ``speech_data.py digits``. Recordings are not cut into parts, however long they
are: the lengths are up to ten times those of the training (Chorowski et al. 2015, section 4.3). The
time of a word is right if its middle is inside the word; measured where the text is right.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import heedful
from heedful.basics.files import write_json
from heedful.tasks.sound_input import heard_in
from heedful.tasks.transcription.errors import error_figures
from reporting import table

TABLES = ("single", "test", "long-10", "long-20", "long-30", "long-50")
_LONGEST = 120.0
"""Seconds; no recording is longer."""


def rows_of(folder: Path, name: str) -> list[tuple[str, str]]:
    """Paths and texts of a table."""
    with (folder / f"{name}.tsv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    return [(str(folder / row["path"]), row["text"]) for row in found]


def measure(run: Path, folder: Path, ctc_weight: float | None) -> dict[str, Any]:
    """Word error rates of a run, and the share of right times."""
    reader: Any = heedful.load(run)
    if ctc_weight is not None:
        reader.options = reader.options.model_copy(update={"ctc_weight": ctc_weight})
    reader.known = {**reader.known, "longest": _LONGEST}
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


def measured(run: Path, folder: Path, ctc_weight: float | None) -> dict[str, Any]:
    """What :func:`measure` found, which is kept in the run's folder; measured if it is not."""
    search = "" if ctc_weight is None else f"-{ctc_weight}"
    kept = run / f"spoken-digits-{folder.resolve().name}{search}.json"
    if not kept.exists():
        write_json(kept, measure(run, folder, ctc_weight))
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


def plot(found: dict[str, Any], path: Path) -> None:
    """Word error rates over the number of digits."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    places = {"single": 1, "test": 5, **{f"long-{n}": n for n in (10, 20, 30, 50)}}
    for run, own in found.items():
        axes.plot(list(places.values()), [own[name][0] for name in places], marker="o", label=run)
    axes.axvspan(1, 5, color="0.92")
    axes.set(xlabel="digits (grey: as in training)", ylabel="word error, %", ylim=(0, None))
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path, help="a .svg, .png or .pdf file")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--ctc-weight", type=float, help="of the search; default: that of the run")
    given = parser.parse_args()
    found = {str(run): measured(run, given.folder, given.ctc_weight) for run in given.runs}
    if given.plot is not None:
        plot(found, given.plot)
    if given.json:
        print(json.dumps(found))
        return
    lines = [
        [run, *(f"{own[name][0]:.1f} [{own[name][1]:.1f}, {own[name][2]:.1f}]" for name in TABLES),
         f"{own['times']:.1f} %" if "times" in own else "–"]
        for run, own in found.items()
    ]  # fmt: skip
    print(table(["word error, %", *TABLES, "right times"], lines))


if __name__ == "__main__":
    main()
