"""Classifies images, and shows which parts of them were attended to.

Shapes: B images, N classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.data.image_batches import images_of
from heedful.inference import Axis, Media, Trace
from heedful.inference.tracing import Decision, Described
from heedful.models import ImageModel
from heedful.tasks.column_predictor import ColumnPredictor
from heedful.tasks.image_input import Seen

_SHOWN = 5
_PLACES, _VECTOR = "places", "class vector"


class ImageLabel(NamedTuple):
    """The label of an image."""

    label: str
    log_probability: float
    """Natural logarithm of its probability."""
    others: list[tuple[str, float]]
    """The most probable labels with their log-probabilities, the first one included."""

    def __str__(self) -> str:
        return self.label

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        others = [{"label": label, "log_probability": own} for label, own in self.others]
        return {"label": self.label, "log_probability": self.log_probability, "labels": others}


class ImageClassifier(ColumnPredictor[ImageModel, Seen, ImageLabel]):
    """Classifies images with a trained model.

    Attributes:
        temperature: the logits are divided by it, which changes probabilities but no label.
    """

    temperature: float = 1.0

    def answer(self, inputs: Sequence[Seen]) -> list[ImageLabel]:
        """One label for each of some images."""
        logits: Tensor = self.model(images_of(self.batch(inputs)))
        scores = (logits.float() / self.temperature).log_softmax(1)
        best = scores.topk(min(_SHOWN, len(self.known["labels"])), 1)
        return [
            ImageLabel(names[0], values[0], list(zip(names, values, strict=True)))
            for names, values in (
                ([self.known["labels"][one] for one in places], values)
                for places, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
        ]

    def trace(self, seen: Seen, relevance: bool = True) -> Trace:
        """What the model attends to in an image.

        Args:
            seen: the image.
            relevance: whether to add relevance maps.
        """
        pixels = seen.pixels(self.known["form"])
        own = torch.from_numpy(pixels.copy())
        shown = Media.small_picture(own[..., 0] if own.shape[-1] == 1 else own)
        grids = self.model.grids.items()
        axes = {name: Axis("image", extent=grid, media=shown) for name, grid in grids}
        [found] = self.predict([seen])
        place = self.known["labels"].index(found.label)

        def decide() -> Decision:
            logits = self.model.single_pass(images_of(self.batch([seen]))).float()
            scores = (logits / self.temperature).log_softmax(1)
            return Decision([found.label], scores[:, place])

        made = self.traced(Described(found.label, axes), decide, relevance=relevance)
        return _over_image(made, axes)


def _over_image(trace: Trace, known: Mapping[str, Axis]) -> Trace:
    """A trace in which a learned vector that reads the patches has a row, and no column.

    The axis "places" has the patches and, last, the vector.
    """
    if not any(one.key_axis == _PLACES for one in trace.maps):
        return trace
    maps = [
        replace(one, weights=one.weights[..., -1:, :-1], query_axis=_VECTOR, key_axis="image")
        if one.key_axis == _PLACES
        else one
        for one in trace.maps
    ]
    axes = {name: axis for name, axis in trace.axes.items() if name != _PLACES}
    own = {"image": known["image"], _VECTOR: Axis("labels", [_VECTOR])}
    return replace(trace, axes={**own, **axes}, maps=maps)
