"""Calibration of taggers.

Shapes: W words, C tags.
"""

from collections.abc import Callable, Sequence

import torch

from heedful.data.examples import Tagged, tagged_only
from heedful.evaluation.calibration import Calibration, measure_calibration
from heedful.inference.tagger import Tagger, Tagging


def calibration_of(found: Sequence[Tagging], examples: Sequence[Tagged]) -> Calibration:
    """The calibration of the tags of words; words without gold tag are left out."""
    confidences, right = [], []
    for own, example in zip(found, examples, strict=True):
        confidences += tagged_only(example, own.probabilities)
        tags = tagged_only(example, own.tags)
        right += [one == other for one, other in zip(tags, example.labels, strict=True)]
    return measure_calibration(confidences, right)


def surprise_of(tagger: Tagger, examples: Sequence[Tagged]) -> Callable[[float], float]:
    """The mean cross-entropy (nats) of the tags of words, as a function of the temperature.

    With a conditional random field, it is that of the marginals of each word.
    """
    logits = [own.double() for own in tagger.logits([example.words for example in examples])]
    words, gold = [], []
    for example in examples:
        words.append([place for place, tag in enumerate(example.tags) if tag])
        gold.append([tagger.tags.index(tag) for tag in example.labels])

    def surprise(temperature: float) -> float:
        with torch.inference_mode():
            found = tagger.at(temperature).log_probabilities(logits)
        total = sum(
            float(own[places, tags].sum())
            for own, places, tags in zip(found, words, gold, strict=True)
        )
        return -total / max(1, sum(map(len, gold)))

    return surprise
