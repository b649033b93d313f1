"""Models that classify images on paper."""

import torch
from torch import Tensor

from heedful.models import ImageModel, build_image_model
from heedful.tasks.image_classification.recipe import ImageRecipe
from heedful.tasks.image_sketch import (
    black_images,
    described,
    images_of_batch,
    noun_of,
    shape_of,
)
from heedful.tasks.sketch import Sketch

_CLASSES = 10
"""Labels, which are in the data."""


def sketch_image_model(recipe: ImageRecipe) -> Sketch:
    """The model of a recipe, with ten classes.

    Raises:
        ValueError: the settings do not fit.
    """
    form, training = recipe.data.form, recipe.training

    def build() -> ImageModel:
        return build_image_model(recipe.model, shape_of(form), _CLASSES)

    def loss(model: ImageModel, rows: int, _: int) -> Tensor:
        labels = torch.zeros(rows, dtype=torch.long)
        return model.losses(black_images(rows, form), labels, training.label_smoothing).total

    return Sketch(
        build,
        loss,
        vocabulary=0,
        length=None,
        row=described(form),
        unit=noun_of(form),
        of_rows=True,
        rows_of_batch=lambda _: images_of_batch(form, training.batch_tokens),
    )
