"""Chooses the checkpoint that a trained run uses."""

from typing import Any

from torch import nn

from heedful.runs.attention_parts import PARTS, parts_of
from heedful.runs.checkpoints import (
    folder_of,
    load_model_tensors,
    mean_weights,
    open_checkpoint,
    save_checkpoint,
    whole_checkpoints,
)
from heedful.training.loop import Loop


def choose(loop: Loop, model: nn.Module) -> dict[str, Any]:
    """Choose the run's checkpoint: the best one, or the average of the last ones if better."""
    settings, progress = loop.settings, loop.progress
    whole = whole_checkpoints(loop.checkpoints)
    found = [point for point in whole if not point.state.get("extra")]
    by = settings.choose_by
    best = progress.best_step if progress.best_step is not None else progress.step
    result: dict[str, Any] = {
        "chosen": folder_of(best),
        "step": progress.step,
        "chosen_by": by if progress.best is not None else None,
        **({"given_up": True} if progress.given_up else {}),
    }
    for point in found:
        if point.step == best:
            result["validation"] = point.state["validation"]
    tried = settings.average_checkpoints > 1 and not progress.given_up
    if tried and len(found) > 1 and progress.best is not None:
        last = found[-settings.average_checkpoints :]
        weights = mean_weights(last)
        load_model_tensors(model, weights, loop.checkpoints)
        with loop.strategy.whole_model():
            validation = loop.task.validate()
            # Validation may store what it chooses, such as thresholds, in buffers.
            stored = {name: one.detach().clone() for name, one in model.named_buffers()}
        weights |= {name: one.to(weights[name]) for name, one in stored.items() if name in weights}
        figures = loop.strategy.agreed(validation).figures
        state = {
            "step": progress.step,
            "best_step": None,
            "validation": figures,
            "progress": {},
            "average_of": [point.step for point in last],
            PARTS: parts_of(model),
        }
        if loop.writes:
            save_checkpoint(loop.checkpoints / "average", weights, {}, state)
        result["average"] = {"of": state["average_of"], "validation": figures}
        loop.strategy.agreed(None)  # sent when rank 0 has saved
        if loop.rank(figures) > progress.best:
            result |= {"chosen": "average", "validation": figures}
        point = open_checkpoint(loop.checkpoints / result["chosen"])
        load_model_tensors(model, point.weights(), point.path)
    return result


def summary(result: dict[str, Any]) -> str:
    """A result in one line."""
    figures = result.get("validation") or {}
    text = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
    return f"{result['chosen']} chosen" + (f" on validation ({text})" if text else "")
