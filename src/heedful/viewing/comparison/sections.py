"""The sections of the report: titles, explanations and tables, for every format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.evaluation.attention_statistics import COVERED
from heedful.evaluation.outcome import ReportTable
from heedful.training.report import duration

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A table with its title and an explanation; the first column holds names."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    picture: str | None = None
    """The name of the picture above the table."""
    is_text: bool = False
    """Whether the cells are texts and not numbers."""

    def table(self) -> ReportTable:
        """The table for a terminal."""
        return ReportTable(self.title, self.header, self.rows)


def sections_of(report: Values) -> list[Section]:
    """All sections that a report has results for, the main table first."""
    made = (
        main_table(report),
        _validation(report),
        _against(report),
        _lengths(report),
        _costs(report),
        _attention(report),
        *_sentences(report),
        _left_out(report),
    )
    return [section for section in made if section is not None and section.rows]


def about(report: Values) -> list[tuple[str, str]]:
    """What was compared and how: names and values."""
    return [
        ("recipe", f"{report['recipe']} ({report['task']})"),
        ("budget of each training", str(report["budget"])),
        ("seeds", ", ".join(map(str, report["seeds"]))),
        ("baseline", str(report["baseline"])),
        *(
            [("scored on", ", ".join(report["test_data"]))]
            if report["test_data"] is not None
            else []
        ),
        ("checkpoints chosen by", f"{report['compared_by']} on the validation data"),
        (
            "made with",
            f"heedful {report['version']}, PyTorch {report['machine']['torch']}, "
            f"{report['machine']['processor']}",
        ),
    ]


def number(value: float | None, digits: int = 4) -> str:
    """A number with significant digits; empty for None.

    Example:
        >>> number(31.249), number(0.5), number(1234.5), number(None)
        ('31.25', '0.5000', '1,234', '')
    """
    if value is None:
        return ""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def _interval(figure: Values) -> str:
    if figure["low"] is None:
        return ""
    return f" [{number(figure['low'])}, {number(figure['high'])}]"


def _between(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return number(value)
    return f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


def _minutes(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{number(abs(value), 3)}"


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def operations_unit(report: Values) -> tuple[str, float]:
    """The unit of floating-point operations that fits the largest number, and its size."""
    most = max((variant["cost"]["operations"] for variant in done(report)), default=0.0)
    units = {"PFLOP": 1e15, "TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6}
    return next(((name, size) for name, size in units.items() if most >= size), ("FLOP", 1.0))


def done(report: Values) -> list[Values]:
    """The variants with at least one complete training."""
    return [variant for variant in report["variants"] if variant["runs"]]


def main_table(report: Values) -> Section | None:
    """Each variant with its figures, the difference to the baseline, and its cost."""
    variants = done(report)
    if not variants:
        return None
    is_tested = all(variant["test"] for variant in variants)
    part = "test" if is_tested else "validation"
    by = report["compared_by"]
    names = list(variants[0][part])
    names = names[:3] if is_tested else [by, *(n for n in ("loss",) if n in names and n != by)]
    first = names[0]
    unit, size = operations_unit(report)
    rows = []
    for variant in variants:
        compared = [one for one in variant["against_baseline"] if one["figure"] == first]
        is_baseline = variant["name"] == report["baseline"]
        rows.append(
            (
                variant["name"],
                *(_cell(variant[part].get(name)) for name in names),
                *([_difference(compared, is_baseline)] if is_tested else []),
                f"{variant['parameters']:,}",
                f"{variant['cost']['steps']:,.0f}",
                _minutes(variant["cost"]["minutes"]),
                number(variant["cost"]["operations"] / size, 3),
            )
        )
    units = {name: variants[0][part][name].get("unit", "") for name in names}
    header = (
        "variant",
        *(f"{name} ({units[name]})" if units[name] else name for name in names),
        *([f"Δ {first} (p)"] if is_tested else []),
        *("parameters", "steps", "minutes", unit),
    )
    return Section("Results", _about_intervals(report, variants, part, first), header, rows)


def _about_intervals(report: Values, variants: Sequence[Values], part: str, first: str) -> str:
    over = variants[0][part][first]["interval"]
    count = len(report["seeds"])
    why = (
        "The recipe has no test set"
        if not report["is_tested"]
        else "The test set is used when all trainings have ended"
    )
    where = (
        f"Scores on {', '.join(report['test_data'] or ['the test set'])}, which each run was "
        "scored on once."
        if part == "test"
        else f"{why}: figures of the chosen checkpoints on the validation data."
    )
    intervals = {
        "seeds": f"Means over {count} seeds; in brackets, 95 % t intervals over seeds.",
        "examples": "One seed; in brackets, 95 % bootstrap intervals over the test examples.",
        None: "One seed.",
    }[over]
    tests = (
        " p is the larger p-value of the two paired tests over examples." if part == "test" else ""
    )
    return f"{where} {intervals}{tests}"


def _cell(figure: Values | None) -> str:
    return "" if figure is None else f"{number(figure['value'])}{_interval(figure)}"


def _difference(compared: Sequence[Values], is_baseline: bool) -> str:
    if is_baseline or not compared:
        return "baseline" if is_baseline else ""
    found = compared[0]
    values = [found[name] for name in ("bootstrap_p", "randomisation_p")]
    tested = [value for value in values if value is not None]
    return _signed(found["difference"]) + (f" ({_p(max(tested))})" if tested else "")


def _validation(report: Values) -> Section | None:
    variants = [variant for variant in done(report) if variant["validation"]]
    if not variants:
        return None
    names = list(variants[0]["validation"])
    rows = [
        (variant["name"], *(_cell(variant["validation"].get(name)) for name in names))
        for variant in variants
    ]
    note = f"Figures of the chosen checkpoints; training chose them by {report['compared_by']}."
    return Section("Validation", note, ("variant", *names), rows, "curves")


def _against(report: Values) -> Section | None:
    rows = []
    for variant in done(report):
        for place, one in enumerate(variant["against_baseline"]):
            rows.append(
                (
                    "" if place else variant["name"],
                    one["figure"],
                    f"{_signed(one['difference'])}{_interval(one)}",
                    *(_p(one[name]) for name in ("seeds_p", "bootstrap_p", "randomisation_p")),
                )
            )
    note = (
        f"Difference to {report['baseline']} on the test set. The t test pairs runs of the same "
        "seed. Bootstrap and randomisation pair the outputs for the same example, with those of "
        "all seeds together. p-values are not corrected for the number of variants."
    )
    header = ("variant", "figure", "difference", "p (t, seeds)", "p (bootstrap)", "p (random.)")
    return Section("Paired tests", note, header, rows)


def bucket_name(bucket: Values) -> str:
    """For example ``6–10`` or ``61+``."""
    if bucket["longest"] is None:
        return f"{bucket['shortest']}+"
    return f"{bucket['shortest']}–{bucket['longest']}"


def _lengths(report: Values) -> Section | None:
    variants = [variant for variant in done(report) if variant.get("by_length")]
    if not variants or not variants[0]["by_length"][0]["figures"]:
        return None
    buckets = variants[0]["by_length"]
    first = next(iter(buckets[0]["figures"]))
    rows = []
    for variant in variants:
        known = {bucket_name(one): one["figures"].get(first) for one in variant["by_length"]}
        intervals = {bucket_name(one): one["intervals"].get(first) for one in variant["by_length"]}
        cells = [
            _between(known.get(bucket_name(one)), intervals.get(bucket_name(one)))
            for one in buckets
        ]
        rows.append((variant["name"], *cells))
    header = ("variant", *(f"{bucket_name(one)} ({one['count']})" for one in buckets))
    note = (
        f"{first} by the length of the input in {buckets[0]['unit']} (number of examples); in "
        "brackets, 95 % bootstrap intervals over the examples, with the outputs of all seeds."
    )
    return Section("By length", note, header, rows, "lengths")


def _costs(report: Values) -> Section | None:
    rows = []
    unit, size = operations_unit(report)
    level = None
    for variant in done(report):
        found = variant.get("cost_to_baseline_loss")
        if found is None:
            continue
        level, spent = found["loss"], found["spent"]
        cells = ("not reached",) * 3
        if spent is not None:
            sign = "≤ " if spent["at_most"] else ""
            cells = (
                f"{sign}{spent['steps']:,.0f}",
                f"{sign}{_minutes(spent['minutes'])}",
                f"{sign}{number(spent['operations'] / size, 3)}",
            )
        per_second = number(variant["cost"]["tokens_per_second"])
        rows.append((variant["name"], *cells, per_second))
    if level is None:
        return None
    note = (
        f"Training until the validation loss first reached {number(level)}, the final one of "
        f"{report['baseline']}; means over seeds, interpolated linearly between validations. ≤: "
        "the first validation was already below it. Minutes are comparable only if no other "
        "program ran and trainings ran one at a time."
    )
    header = ("variant", "steps", "minutes", unit, "rate (units/s)")
    return Section("Cost to an equal loss", note, header, rows)


_ATTENTION = {
    "entropy": "entropy",
    "relative_entropy": "of its greatest",
    "sharpness": "largest weight",
    "agreement": "head agreement",
    "covered": "covered",
    "coverage_error": "mean |Σ − 1|",
}


def _attention(report: Values) -> Section | None:
    rows = []
    for variant in done(report):
        for place, one in enumerate(variant.get("attention") or []):
            name = "" if place else variant["name"]
            figures = [number(one.get(key), 3) for key in _ATTENTION]
            rows.append((name, one["module"], str(one["heads"]), *figures))
    note = (
        "Means over heads and seeds, while the references are read. Entropy in nats; agreement: "
        "the overlap of the weights of two heads, 1 if they are equal; covered: source tokens "
        f"with a total weight of at least {COVERED:g}."
    )
    return Section("Attention", note, ("variant", "module", "heads", *_ATTENTION.values()), rows)


def _sentences(report: Values) -> Iterator[Section]:
    rows: list[tuple[str, ...]] = []
    for one in report["sentences"]:
        rows.append(("input", one["input"]))
        rows.append(("reference", one["reference"]))
        rows += [(name, text) for name, text in one["outputs"].items()]
        rows.append(("", ""))
    note = "Outputs of the first seed, for inputs for which most variants differ."
    yield Section("Side by side", note, ("", "text"), rows[:-1], is_text=True)


def _left_out(report: Values) -> Section | None:
    rows = [(one["name"], f"invalid: {one['reason']}") for one in report["refused"]]
    rows += [
        (f"{one['variant']}, seed {one['seed']}", f"failed: {one['error']}")
        for one in report["failed"]
    ]
    rows += [
        (f"{one['variant']}, seed {one['seed']}", "not finished") for one in report["unfinished"]
    ]
    left = report["seconds_left"]
    note = "" if left is None else f"Estimated time left: {duration(left)}."
    return Section("Not in the tables", note, ("variant", "reason"), rows, is_text=True)
