"""The recipe of answering questions about stories."""

from typing import Literal

from pydantic import Field, SerializeAsAny

from heedful.models import StorySettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.answer.examples import StoryFiles


class AnswerTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "accuracy"] = "loss"
    supervision: float = Field(0.0, ge=0, le=1000)
    """Weight of the loss of the supporting facts: hop k must read the k-th one."""
    linear_start: int = Field(0, ge=0, le=1_000_000)
    """Number of epochs at the start of training without the normalizer of the attention (Sukhbaatar
    et al. 2015, section 4.1)."""


class AnswerRecipe(Recipe):
    """All settings of a run."""

    task: Literal["answer"] = "answer"
    data: StoryFiles
    model: SerializeAsAny[StorySettings] = Field(
        default_factory=lambda: StorySettings.model_validate({"kind": "memory-network"})
    )
    training: AnswerTraining = AnswerTraining()
