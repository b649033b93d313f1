"""Calibration of classifiers of images.

Shapes: N images, C classes.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from heedful.basics.errors import UserError
from heedful.data.batching import StoreBatches
from heedful.data.column_batch import ColumnBatch
from heedful.data.image_batches import images_of
from heedful.evaluation.calibration import Calibration, measure_calibration
from heedful.inference.inference_mode import ready
from heedful.runs.settings import NO_TEST
from heedful.tasks.calibrating import Calibrated, calibrate
from heedful.tasks.column_spec import ColumnSpec
from heedful.tasks.image_classification.predictor import ImageLabel
from heedful.tasks.spec import Opening


def calibration_of(found: Sequence[ImageLabel], gold: Sequence[str]) -> Calibration:
    """The calibration of the labels of images."""
    confidences = [math.exp(one.log_probability) for one in found]
    right = [one.label == label for one, label in zip(found, gold, strict=True)]
    return measure_calibration(confidences, right)


def calibrate_run(spec: ColumnSpec, run: Any, opening: Opening) -> Calibrated:
    """Fit the temperature of a run on its validation images.

    Raises:
        UserError: there are none.
    """
    held_out = spec.stores(run)[1]
    if held_out is None:
        raise UserError(
            f"{run.path} has no validation examples (its recipe has no data.validation), on which "
            "the temperature is fitted"
        )
    predictor = opening.load(run.path)
    found, labels = [], []
    size = run.recipe.training.batch_tokens
    with ready(predictor.model, predictor.device, predictor.precision):
        for batch in StoreBatches(held_out, size, ColumnBatch.of, by=("image",)).once():
            own = batch.to(predictor.device)
            found.append(predictor.model(images_of(own)).double().cpu())
            labels.append(own["label"].values.cpu())
    logits, gold = torch.cat(found), torch.cat(labels)
    known = gold < logits.shape[1]  # other labels do not occur in training

    def surprise(temperature: float) -> float:
        return float(F.cross_entropy(logits[known] / temperature, gold[known]))

    def measure(temperature: float) -> Calibration:
        best = (logits / temperature).softmax(1).max(1)
        return measure_calibration(best.values.tolist(), (best.indices == gold).tolist())

    return calibrate(run, spec.name, opening.checkpoint, measure, surprise)


def calibration_of_run(spec: ColumnSpec, run: Any, opening: Opening) -> Calibration:
    """The calibration of a run on its test images.

    Raises:
        UserError: there are none.
    """
    run.require_unchanged("data/test.jsonl")
    examples = list(run.recipe.data.read_lines([str(run.path / "data" / "test.jsonl")]))
    if not examples:
        raise UserError(f"{run.path} {NO_TEST}")
    inputs = [spec.input_type().model_validate({"image": one.image}) for one in examples]
    return calibration_of(opening.load(run.path).predict(inputs), [one.label for one in examples])
