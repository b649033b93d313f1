"""Calibration of classifiers of texts.

Shapes: N texts, C classes.
"""

from collections.abc import Callable, Sequence

import torch

from heedful.data.examples import Labelled
from heedful.evaluation.calibration import Calibration, measure_calibration
from heedful.inference.classifier import Classification, Classifier
from heedful.tasks.texts.training import read

_LEAST = 1e-300
"""Minimum of probabilities before the logarithm."""


def calibration_of(found: Sequence[Classification], gold: Sequence[str]) -> Calibration:
    """The calibration of classifications; empty texts, which have no label, are left out."""
    pairs = [(own, label) for own, label in zip(found, gold, strict=True) if own.label is not None]
    squares = [
        sum((p - (name == label)) ** 2 for name, p in own.probabilities.items())
        + (label not in own.probabilities)
        for own, label in pairs
    ]
    return measure_calibration(
        [own.probability for own, _ in pairs],
        [own.label == label for own, label in pairs],
        squares=squares,
    )


def surprise_of(classifier: Classifier, examples: Sequence[Labelled]) -> Callable[[float], float]:
    """The mean cross-entropy (nats) of the labels of examples, as a function of the temperature.

    The probabilities of a text's windows are averaged, as in predictions.
    """
    windows = classifier.outputs(
        [classifier.rows(read(example)) for example in examples], lambda logits: logits
    )
    kept = [number for number, own in enumerate(windows) if own]
    logits = torch.stack([one for number in kept for one in windows[number]]).double()
    counts = torch.tensor([len(windows[number]) for number in kept])
    texts = torch.arange(len(kept)).repeat_interleave(counts)
    gold = torch.tensor([classifier.labels.index(examples[number].label) for number in kept])

    def surprise(temperature: float) -> float:
        right = (logits / temperature).softmax(1)[torch.arange(len(texts)), gold[texts]]
        mean = torch.zeros(len(kept), dtype=torch.double).index_add(0, texts, right) / counts
        return -float(mean.clamp(_LEAST, 1.0).log().mean())

    return surprise
