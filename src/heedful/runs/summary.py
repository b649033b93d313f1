"""A run in a few lines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.basics.files import write_text
from heedful.evaluation.metrics import Score
from heedful.runs.kinds import kind_of
from heedful.runs.run import Run, open_run

SCORES = "scores.jsonl"


def summarise_run(path: Path) -> dict[str, Any]:
    """What a run is, was trained on and scored, as plain values.

    Raises:
        UserError: the folder is no run.
    """
    run = open_run(path)
    recipe, facts = run.recipe, run.facts
    checkpoints = run.checkpoints()
    last = _last_training(run)
    return {
        "run": str(path),
        "task": recipe.task,
        "source": facts.get("source"),
        "target": facts.get("target"),
        "model": recipe.model_dump(mode="json", exclude_none=True)["model"],
        "parameters": sum(p.numel() for p in kind_of(recipe).build_model(run).parameters()),
        "vocabulary": facts["vocabulary"],
        "data": facts["data"],
        "started_from": facts.get("started_from"),
        "made_with": facts["made_with"],
        "step": checkpoints[-1].step if checkpoints else 0,
        "max_steps": recipe.training.max_steps,
        "training": {
            key: last[key]
            for key in ("epoch", "tokens", "seconds", "operations", "loss")
            if key in last
        },
        "finished": run.result is not None,
        "checkpoints": [point.path.name for point in checkpoints],
        "chosen": run.chosen().path.name if checkpoints else None,
        "validation": run.chosen().state["validation"] if checkpoints else {},
        "scores": _scores(run),
    }


def describe_run(summary: dict[str, Any]) -> str:
    """The summary for people."""
    data, model, training = summary["data"], summary["model"], summary["training"]
    languages = " to ".join(str(summary[side] or "?") for side in ("source", "target"))
    shape = ", ".join(f"{key} {value}" for key, value in model.items() if key != "kind")
    left_out = ", ".join(f"{count:,} {why}" for why, count in data["left_out"].items())
    vocabulary = summary["vocabulary"]
    lines = [
        ("run", f"{summary['run']} ({summary['task']}, {languages})"),
        ("model", f"{model['kind']}, {summary['parameters']:,} parameters: {shape}"),
        ("vocabulary", f"{vocabulary['source']:,} source, {vocabulary['target']:,} target symbols"),
        (
            "trained on",
            f"{data['train_pairs']:,} pairs" + (f"; left out: {left_out}" if left_out else ""),
        ),
        *_started(summary["started_from"]),
        ("held out", f"{data['validation_pairs']:,} validation, {data['test_pairs']:,} test pairs"),
        (
            "trained",
            f"step {summary['step']:,} of {summary['max_steps']:,}"
            + ("" if summary["finished"] else "; not finished")
            + (
                f"; {training['tokens']:,} tokens in {training['seconds'] / 60:.1f} minutes, "
                f"{training['operations']:.3g} floating-point operations"
                if training
                else ""
            ),
        ),
        ("used", summary["chosen"] or "no checkpoint yet"),
        (
            "validation",
            ", ".join(f"{k} {v:.3f}" for k, v in summary["validation"].items()) or "none",
        ),
    ]
    lines += [("scored", _score_line(score)) for score in summary["scores"]]
    return "\n".join(f"{name:<14}{text}" for name, text in lines)


def _started(start: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [] if start is None else [("started from", f"{start['run']}, {start['checkpoint']}")]


def _last_training(run: Run) -> dict[str, Any]:
    last: dict[str, Any] = {}
    if run.metrics_file.exists():
        for line in run.metrics_file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["kind"] == "train":
                last = record
    return last


def record_scores(path: Path, scores: Sequence[Score], how: dict[str, Any]) -> None:
    """Keep what the run scored on its own test set; equal scorings are kept once.

    Args:
        path: the run's folder.
        scores: of the test set's translations.
        how: the checkpoint, beam and precision that translated.
    """
    run = open_run(path)
    made = {
        **how,
        "scores": {
            score.name: {
                "value": score.value,
                "low": score.low,
                "high": score.high,
                "signature": score.signature,
            }
            for score in scores
        },
    }
    known = _scores(run)
    if made in known:
        return
    lines = [json.dumps(score, ensure_ascii=False) for score in [*known, made]]
    write_text(path / SCORES, "\n".join(lines) + "\n")


def _score_line(made: dict[str, Any]) -> str:
    figures = ", ".join(
        f"{name} {score['value']:.2f}"
        + ("" if score["low"] is None else f" [{score['low']:.2f}, {score['high']:.2f}]")
        for name, score in made["scores"].items()
    )
    how = f"{made['checkpoint']}, beam {made['beam']}, {made['precision']}"
    return f"{figures} on the test set ({how})"


def _scores(run: Run) -> list[dict[str, Any]]:
    """What ``heedful evaluate`` has written into the run."""
    path = run.path / SCORES
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
