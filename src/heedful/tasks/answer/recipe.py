"""The recipe of answering questions about stories."""

from typing import Literal

from pydantic import Field, SerializeAsAny, model_validator

from heedful.models import StorySettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.answer.examples import StoryFiles


class AnswerTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "accuracy"] = "loss"
    batch_rows: int | None = Field(None, ge=1, le=1_000_000)
    """Number of questions of a training batch, drawn from all lengths. By default a batch has
    stories of similar lengths, which are often of the same kind, limited by ``batch_tokens``."""
    supervision: float = Field(0.0, ge=0, le=1000)
    """Weight of the loss of the supporting facts: hop k must read the k-th one."""
    linear_start: int = Field(0, ge=0, le=1_000_000)
    """Number of epochs at the start of training without the normalizer of the attention (Sukhbaatar
    et al. 2015, section 4.1)."""

    @model_validator(mode="after")
    def _rows_or_tokens(self) -> "AnswerTraining":
        if self.batch_rows is not None and self.global_batch_tokens is not None:
            raise ValueError("batch_rows cannot be combined with global_batch_tokens; set one")
        return self


class AnswerRecipe(Recipe):
    """All settings of a run."""

    task: Literal["answer"] = "answer"
    data: StoryFiles
    model: SerializeAsAny[StorySettings] = Field(
        default_factory=lambda: StorySettings.model_validate({"kind": "memory-network"})
    )
    training: AnswerTraining = AnswerTraining()
