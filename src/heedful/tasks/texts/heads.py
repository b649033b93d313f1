"""The heads of encoders of texts, as recipes with several heads have them."""

from typing import Literal

from pydantic import Field

from heedful.basics.settings import Settings
from heedful.tasks.texts.data import DocumentData, LabelledData, RatedData, TaggedData
from heedful.tasks.texts.masking_settings import MaskingSettings
from heedful.tasks.texts.training_settings import (
    ClassificationTraining,
    MaskedTraining,
    RegressionTraining,
    TaggingTraining,
    choices,
)


class ClassificationHead(Settings):
    """A label for each text, or pair of texts."""

    task: Literal["classification"] = "classification"
    data: LabelledData
    weight: float = Field(1.0, gt=0)
    """λ of its loss in multi-task training."""

    def figures(self) -> tuple[str, ...]:
        """Figures that checkpoints can be chosen by."""
        return choices(ClassificationTraining)


class RegressionHead(Settings):
    """A number for each text, or pair of texts."""

    task: Literal["regression"] = "regression"
    data: RatedData
    weight: float = Field(1.0, gt=0)
    """λ of its loss in multi-task training."""

    def figures(self) -> tuple[str, ...]:
        """Figures that checkpoints can be chosen by."""
        return choices(RegressionTraining)


class TaggingHead(Settings):
    """A tag for each word."""

    task: Literal["tagging"] = "tagging"
    data: TaggedData
    weight: float = Field(1.0, gt=0)
    crf: bool = False
    """Predict all tags of a sentence together, by a conditional random field."""

    def figures(self) -> tuple[str, ...]:
        """Figures that checkpoints can be chosen by."""
        return choices(TaggingTraining)


class MaskedHead(Settings):
    """Predicts masked tokens, and how two segments are related."""

    task: Literal["masked"] = "masked"
    data: DocumentData
    weight: float = Field(1.0, gt=0)
    masking: MaskingSettings = MaskingSettings()

    def figures(self) -> tuple[str, ...]:
        """Figures that checkpoints can be chosen by."""
        others = {"next_accuracy", "order_accuracy"} - {f"{self.masking.of_pairs}_accuracy"}
        return tuple(each for each in choices(MaskedTraining) if each not in others)


HeadSettings = ClassificationHead | RegressionHead | TaggingHead | MaskedHead
