"""The recipe of summaries."""

from typing import Literal

from pydantic import Field, SerializeAsAny, model_validator

from heedful.basics.limits import MOST_POSITIONS
from heedful.decoding import SearchOptions
from heedful.models import PairSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.summary.examples import SummaryFiles


class SummarySearch(SearchOptions):
    """The search of ``heedful summarise``, of validation and of the evaluation."""

    beam: int = Field(4, ge=1, le=100)
    block_ngrams: int = Field(0, ge=0, le=MOST_POSITIONS)
    """No sequence of so many words occurs twice in a summary; 0 for no such rule."""


class SummaryTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "rouge1", "rouge2", "rougeL"] = "loss"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    coverage: float = Field(0.0, ge=0)
    """λ, the weight of the coverage loss."""
    validation_examples: int = Field(200, ge=0)
    """Number of validation texts that are summarised for ROUGE, the first ones; 0 for none."""
    samples: int = Field(3, ge=0)
    """Number of summaries that are printed at each validation."""


class SummaryRecipe(Recipe):
    """All settings of a run."""

    task: Literal["summary"] = "summary"
    data: SummaryFiles
    model: SerializeAsAny[PairSettings] = Field(
        default_factory=lambda: PairSettings.model_validate({"kind": "pointer-generator"})
    )
    training: SummaryTraining = SummaryTraining()
    decoding: SummarySearch = SummarySearch()

    @model_validator(mode="after")
    def _parts_fit(self) -> "SummaryRecipe":
        model, room = self.model, self.model.max_length - 1
        if not model.generates or model.learns_by_reward:
            raise ValueError(f"model.kind = '{model.kind}' with these settings writes no summaries")
        if getattr(model, "copy_source", False) == "only":
            raise ValueError(
                "model.copy_source = 'only' writes no words but the source's; use true"
            )
        for name in ("longest_source", "longest_summary"):
            longest = getattr(self.data, name)
            if longest is not None and longest > room:
                raise ValueError(
                    f"data.{name} = {longest} must be less than model.max_length "
                    f"{model.max_length}; raise model.max_length, or lower data.{name}"
                )
        if self.training.choose_by != "loss" and not self.training.validation_examples:
            raise ValueError(
                f"choose_by = '{self.training.choose_by}' needs validation_examples above 0"
            )
        return self
