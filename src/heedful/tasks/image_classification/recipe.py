"""The recipe of the classification of images."""

from typing import Literal

from pydantic import Field, SerializeAsAny

from heedful.inference.media import MOST_PIXELS
from heedful.models import ImageSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.image_classification.examples import ImageFiles


class ImageTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "accuracy"] = "loss"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    shift: int = Field(0, ge=0, le=MOST_PIXELS)
    """Each training image is moved by up to so many pixels in both directions, at random."""
    flip: bool = False
    """Whether half of the training images, at random, are mirrored from left to right."""


class ImageRecipe(Recipe):
    """All settings of a run."""

    task: Literal["image-classification"] = "image-classification"
    data: ImageFiles
    model: SerializeAsAny[ImageSettings] = Field(
        default_factory=lambda: ImageSettings.model_validate({"kind": "convolutional"})
    )
    training: ImageTraining = ImageTraining()
