"""The recipe of the description of images."""

from typing import Literal

from pydantic import Field, SerializeAsAny, model_validator

from heedful.decoding import SearchOptions
from heedful.inference.media import MOST_PIXELS
from heedful.models import CaptionSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.captioning.examples import CaptionFiles
from heedful.training.reinforce import ReinforceSettings


class CaptionTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "bleu"] = "loss"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    shift: int = Field(0, ge=0, le=MOST_PIXELS)
    """Each training image is moved by up to so many pixels in both directions, at random."""
    flip: bool = False
    """Whether half of the training images, at random, are mirrored from left to right."""
    coverage: float = Field(0.0, ge=0)
    """λ, the weight of the loss that asks for equal attention to all cells."""
    reinforce: ReinforceSettings | None = None
    """Settings for attention that learns by reward; their defaults if it does."""
    validation_images: int = Field(500, ge=0)
    """Number of validation images that are described for BLEU; 0 for none."""
    samples: int = Field(3, ge=0)
    """Number of descriptions that are printed at each validation."""


class CaptionRecipe(Recipe):
    """All settings of a run."""

    task: Literal["captioning"] = "captioning"
    data: CaptionFiles
    model: SerializeAsAny[CaptionSettings] = Field(
        default_factory=lambda: CaptionSettings.model_validate({"kind": "recurrent"})
    )
    training: CaptionTraining = CaptionTraining()
    decoding: SearchOptions = SearchOptions(beam=3)
    """The search of ``heedful caption`` and of the evaluation."""

    @model_validator(mode="after")
    def _learns(self) -> "CaptionRecipe":
        if self.training.reinforce is not None and not self.model.learns_by_reward:
            raise ValueError(
                "training.reinforce has an effect only with an attention that learns by reward, "
                "such as attention = 'hard-reinforce'; remove it"
            )
        if self.training.choose_by == "bleu" and not self.training.validation_images:
            raise ValueError("choose_by = 'bleu' needs validation_images above 0")
        return self
