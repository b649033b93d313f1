"""The summary of a run."""

import json
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import write_text
from heedful.runs.attention_summary import attention_lines, summarise_attention
from heedful.runs.calibration import read_temperatures
from heedful.runs.model_size import count_parameters
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_named, kind_of
from heedful.runs.run import Run

SCORES = "scores.jsonl"


def summarise_run(path: Path) -> dict[str, Any]:
    """A run's settings, training data and scores, as plain values.

    Raises:
        UserError: the folder is not a run.
    """
    run = open_run(path)
    recipe, facts = run.recipe, run.facts
    checkpoints = run.checkpoints()
    last, model = _last_training(run), kind_of(recipe).outline_model(run)
    return {
        "run": str(path),
        "task": recipe.task,
        "source": facts.get("source"),
        "target": facts.get("target"),
        "model": recipe.model_dump(mode="json", exclude_none=True)["model"],
        "parameters": count_parameters(model),
        "attention": summarise_attention(model),
        "vocabulary": facts.get("vocabulary", {}),
        "data": facts["data"],
        "sets": facts.get("sets", {}),
        "started_from": facts.get("started_from"),
        "imported": facts.get("imported"),
        "made_with": facts["made_with"],
        "step": checkpoints[-1].step if checkpoints else 0,
        "max_steps": recipe.training.max_steps,
        "training": {
            key: last[key]
            for key in ("epoch", "tokens", "seconds", "operations", "loss")
            if isinstance(last.get(key), int | float)
        },
        "finished": run.result is not None,
        "checkpoints": [point.path.name for point in checkpoints],
        "chosen": run.chosen().path.name if checkpoints else None,
        "validation": run.chosen().state["validation"] if checkpoints else {},
        "calibration": {name: vars(own) for name, own in read_temperatures(run).items()},
        "scores": _scores(run),
    }


def describe_run(summary: dict[str, Any]) -> str:
    """The summary as text."""
    model, training = summary["model"], summary["training"]
    shape = ", ".join(
        f"{key} {value}" for key, value in model.items() if key != "kind" and value != {}
    )
    kind = kind_named(summary["task"], summary["run"])
    about = kind.describe(summary)
    lines = [
        about[0],
        ("model", f"{model['kind']}, {summary['parameters']:,} parameters: {shape}"),
        *attention_lines(summary["attention"]),
        *about[1:],
        *_started(summary["started_from"]),
        (
            "trained",
            f"elsewhere; imported from {summary['imported']['folder']}"
            if summary["imported"]
            else f"step {summary['step']:,} of {summary['max_steps']:,}"
            + ("" if summary["finished"] else "; not finished")
            + (
                f"; {training['tokens']:,} {kind.counted} in "
                f"{training['seconds'] / 60:.1f} minutes, "
                f"{training['operations']:.3g} floating-point operations"
                if training.keys() >= {"tokens", "seconds", "operations"}
                else ""
            ),
        ),
        ("used", summary["chosen"] or "no checkpoint yet"),
        (
            "validation",
            ", ".join(f"{k} {v:.3f}" for k, v in summary["validation"].items()) or "none",
        ),
    ]
    lines += [("calibrated", _temperature_line(*own)) for own in summary["calibration"].items()]
    lines += [("scored", _score_line(score)) for score in summary["scores"]]
    return "\n".join(f"{name:<14}{text}" for name, text in lines)


def _temperature_line(head: str, own: dict[str, Any]) -> str:
    return (
        f"{head}: temperature {own['value']:.4g} for {own['checkpoint']}, cross-entropy "
        f"{own['before']:.4f} → {own['after']:.4f} nats on {own['examples']:,} predictions"
    )


def _started(start: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [] if start is None else [("started from", f"{start['run']}, {start['checkpoint']}")]


def _last_training(run: Run) -> dict[str, Any]:
    training = [record for record in run.metrics() if record["kind"] == "train"]
    return training[-1] if training else {}


def record(run: Run, made: dict[str, Any]) -> None:
    """Record scores of the run's own test set; identical ones are recorded once."""
    known = _scores(run)
    if made in known:
        return
    lines = [json.dumps(score, ensure_ascii=False) for score in [*known, made]]
    write_text(run.path / SCORES, "\n".join(lines) + "\n")


def _score_line(made: dict[str, Any]) -> str:
    figures = ", ".join(
        (f"{name} {score['value']:.2f}" if "beam" in made else f"{name} {score['value']:.4g}")
        + ("" if score["low"] is None else f" [{score['low']:.2f}, {score['high']:.2f}]")
        for name, score in made["scores"].items()
    )
    apart = ("checkpoint", "scores", "precision")
    given = {name: own for name, own in made.items() if name not in apart and own is not None}
    settings = [f"{name} {own}" for name, own in given.items()]
    how = ", ".join([made["checkpoint"], *settings, made["precision"]])
    return f"{figures} on the test set ({how})"


def _scores(run: Run) -> list[dict[str, Any]]:
    """The scores that ``heedful evaluate`` has recorded in the run."""
    scores = list(read_json_lines(run.path / SCORES))
    for made in scores:
        try:
            _score_line(made)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{run.path / SCORES}: a line has no scores; the file is damaged: delete it"
            ) from error
    return scores
