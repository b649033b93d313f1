"""Collects finished rows into tables: scores, lengths, cost to reach an equal validation loss."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from heedful.evaluation.significance import compare_systems
from heedful.runs.opening import open_run
from heedful.training.cost import cost_to, loss_curve
from heedful.training.tuning_record import read_tuning
from reporting import machine, said


def collect(rows: Sequence[Any], out: Path, threads: int) -> dict[str, Any]:
    """All figures of the finished rows; ``missing`` has the names of the others."""
    done = [row for row in rows if _is_done(row, out)]
    found = [_row(row, out) for row in done]
    for row in found:
        row["against"] = _against(row, found)
    for table in {row["table"] for row in found}:
        _add_costs([row for row in found if row["table"] == table])
    for row in found:
        del row["curve"], row["outputs"], row["references"]
    missing = [row.name for row in rows if row not in done]
    return {"machine": machine(threads), "rows": found, "missing": missing}


def _is_done(row: Any, out: Path) -> bool:
    found = read_tuning(out / row.key)
    if found is None or found.winner is None:
        return False
    runs = [found.trials[found.winner], *found.further[: row.seeds]]
    scored = all((out / row.key / run.folder / "test.json").exists() for run in runs)
    return scored and len(found.further) >= row.seeds


def _row(row: Any, out: Path) -> dict[str, Any]:
    folder = out / row.key
    found = read_tuning(folder)
    assert found is not None
    assert found.winner is not None
    best = found.trials[found.winner]
    test = _read(folder / best.folder / "test.json")
    run = open_run(folder / best.folder)
    further = [
        {
            "seed": trial.seed,
            "validation": trial.validation,
            "scores": _scores(_read(folder / trial.folder / "test.json")),
        }
        for trial in found.further[: row.seeds]
    ]
    first = {"seed": best.seed, "validation": best.validation, "scores": _scores(test)}
    return {
        **asdict(row),
        "parameters": found.parameters,
        "settings": best.settings,
        "trials": [
            {key: getattr(trial, key) for key in ("settings", "state", "value", "step", "minutes")}
            for trial in found.trials
        ],
        "validation": best.validation,
        "scores": {score["name"]: score for score in test["scores"]},
        "by_length": test["by_length"],
        "attention": test["attention"],
        "seeds_scored": [first, *further],
        "steps": best.step,
        "minutes_trained": best.minutes,
        "operations": best.operations,
        "search_minutes": sum(trial.minutes for trial in found.trials),
        "search_operations": sum(trial.operations for trial in found.trials),
        "curve": loss_curve(run.metrics()),
        "outputs": (folder / best.folder / "test.txt").read_text(encoding="utf-8").splitlines(),
        "references": [pair.target for pair in run.pairs("test")],
    }


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def _scores(test: dict[str, Any]) -> dict[str, float]:
    return {score["name"]: score["value"] for score in test["scores"]}


def _against(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Paired tests of a row against its baseline."""
    other = [each for each in rows if Path(each["recipe"]).stem == row["against"]]
    if not other or other[0] is row:
        return None
    (compared,) = compare_systems(
        other[0]["outputs"], row["outputs"], row["references"], metrics=["bleu"]
    )
    return {
        "name": other[0]["name"],
        "difference": compared.difference,
        "bootstrap_p": compared.bootstrap_p,
        "randomisation_p": compared.randomisation_p,
    }


# Training cost


def _add_costs(rows: list[dict[str, Any]]) -> None:
    """The cost to reach the loss that all rows of a table reach, and that of the best attention
    models."""
    bests = sorted(min(point.loss for point in row["curve"]) for row in rows)
    # All reach the worst system's best loss; the median's best loss separates the better ones.
    levels = sorted({bests[-1], bests[len(bests) // 2]}, reverse=True)
    for row in rows:
        row["best_loss"] = min(point.loss for point in row["curve"])
        spent = [cost_to(level, row["curve"]) for level in levels]
        row["cost"] = [
            {"loss": level, "spent": None if one is None else one._asdict()}
            for level, one in zip(levels, spent, strict=True)
        ]


# Markdown


def markdown(found: dict[str, Any]) -> str:
    """The tables, with the machine."""
    parts = [f"Machine: {said(found['machine'])}."]
    for table in dict.fromkeys(row["table"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["table"] == table]
        parts += [
            f"### {rows[0]['title']}",
            _score_table(rows),
            "BLEU by source length in words, 95 % intervals:",
            _length_table(rows),
            "Attention to the source while writing the references, mean over heads:",
            _attention_table(rows),
            "Cost to reach an equal validation loss (nats per token; interpolated linearly):",
            _cost_table(rows),
            "Searches:",
            _search_table(rows),
        ]
    if found["missing"]:
        parts.append(f"Missing: {', '.join(found['missing'])}.")
    return "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _score_table(rows: list[dict[str, Any]]) -> str:
    header = [
        "system",
        "BLEU, 95 % interval",
        "difference to baseline",
        "chrF2",
        "BLEU of all seeds",
    ]
    header += ["BLEU on validation", "parameters", "minutes", "PFLOP"]
    lines = []
    for row in rows:
        bleu, chrf = row["scores"]["BLEU"], row["scores"]["chrF2"]
        seeds = [each["scores"]["BLEU"] for each in row["seeds_scored"]]
        lines.append(
            [
                row["name"],
                f"**{bleu['value']:.2f}** {_interval(bleu)}",
                _difference(row["against"]),
                f"{chrf['value']:.2f}",
                f"{mean(seeds):.2f} ± {stdev(seeds):.2f} ({len(seeds)})" if seeds[1:] else "one",
                f"{row['validation']['bleu']:.2f}",
                f"{row['parameters']:,}",
                f"{row['minutes_trained']:.1f}",
                f"{row['operations'] / 1e15:.3f}",
            ]
        )
    return _table(header, lines)


def _difference(against: dict[str, Any] | None) -> str:
    if against is None:
        return ""
    p = max(against["bootstrap_p"], against["randomisation_p"])
    return f"{against['difference']:+.2f} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


def _interval(score: dict[str, Any]) -> str:
    return f"[{score['low']:.1f}, {score['high']:.1f}]"


def _length_table(rows: list[dict[str, Any]]) -> str:
    buckets = rows[0]["by_length"]
    header = ["system"] + [f"{_words(each)} ({each['count']})" for each in buckets]
    lines = []
    for row in rows:
        scores = {each["name"]: each["scores"][0] for each in row["by_length"]}
        cells = [scores[each["name"]] for each in buckets]
        lines.append([row["name"], *(f"{cell['value']:.1f} {_interval(cell)}" for cell in cells)])
    return _table(header, lines)


def _attention_table(rows: list[dict[str, Any]]) -> str:
    header = ["system", "heads", "entropy", "of its greatest", "largest weight", "source covered"]
    lines = []
    for row in rows:
        heads = [each for each in row["attention"] if each["covered"] is not None]
        if not heads:
            continue

        def average(name: str, heads: list[dict[str, Any]] = heads) -> float:
            return mean(each[name] for each in heads)

        lines.append(
            [
                row["name"],
                str(len(heads)),
                f"{average('entropy'):.2f}",
                f"{100 * average('relative_entropy'):.0f} %",
                f"{average('sharpness'):.2f}",
                f"{100 * average('covered'):.0f} %",
                f"{average('coverage_error'):.2f}",
            ]
        )
    return _table([*header, "mean \\|Σ − 1\\|"], lines)


def _words(bucket: dict[str, Any]) -> str:
    end = "+" if bucket["longest"] is None else f"–{bucket['longest']}"
    return f"{bucket['shortest']}{end}"


def _cost_table(rows: list[dict[str, Any]]) -> str:
    header = ["system", "best loss"]
    for level in rows[0]["cost"]:
        header += [f"minutes to {level['loss']:.3f}", f"PFLOP to {level['loss']:.3f}"]
    lines = []
    for row in rows:
        cells = []
        for level in row["cost"]:
            spent = level["spent"]
            if spent is None:
                cells += ["not reached"] * 2
                continue
            sign = "≤ " if spent["at_most"] else ""
            cells += [f"{sign}{spent['minutes']:.1f}", f"{sign}{spent['operations'] / 1e15:.3f}"]
        lines.append([row["name"], f"{row['best_loss']:.3f}", *cells])
    return _table(header, lines)


def _search_table(rows: list[dict[str, Any]]) -> str:
    header = ["system", "winner's settings", "trials", "minutes of all", "PFLOP of all"]
    lines = []
    for row in rows:
        settings = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
        states = [trial["state"] for trial in row["trials"]]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        spent = [f"{row['search_minutes']:.1f}", f"{row['search_operations'] / 1e15:.3f}"]
        lines.append([row["name"], settings, counts, *spent])
    return _table(header, lines)
