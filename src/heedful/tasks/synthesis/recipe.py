"""The recipe of the synthesis of speech."""

from typing import Literal

from pydantic import Field, SerializeAsAny, model_validator

from heedful.basics.settings import Settings
from heedful.models import SynthesisSettings
from heedful.runs.settings import LoopSettings, Recipe
from heedful.tasks.synthesis.examples import SpeechFiles


class SpeakingSettings(Settings):
    """How texts are spoken."""

    seed: int = Field(1, ge=0, lt=2**31)
    """Of the pre-net's dropout and the first phases."""
    iterations: int = Field(60, ge=1, le=10_000)
    """Of Griffin–Lim."""
    momentum: float = Field(0.99, ge=0, lt=2)
    """α of the fast Griffin–Lim algorithm; 0 for the plain one."""
    pause: float = Field(0.2, ge=0, le=10)
    """Seconds of silence between two sentences."""


class SynthesisTraining(LoopSettings):
    """The settings of the training loop."""

    choose_by: Literal["loss", "complete"] = "loss"
    batch_tokens: int = Field(12_000, ge=1)
    """Maximum of recordings × frames of the longest one of a batch."""
    error: Literal["l1", "l2"] = "l1"
    """Absolute or squared difference of frames."""
    stop_weight: float = Field(5.0, gt=0)
    """Weight of the last step in the cross-entropy of the stop, because it is one of many."""
    guided_attention: float = Field(1.0, ge=0)
    """Weight of the loss of attention far from the diagonal; 0 for none."""
    guided_width: float = Field(0.2, gt=0)
    """Its g: how far from the diagonal attention may be, as a share of the text."""
    validation_texts: int = Field(20, ge=0)
    """Number of validation texts that are spoken, to see whether they are complete; 0 for none."""
    samples: int = Field(3, ge=0)
    """Number of them that are printed at each validation."""


class SynthesisRecipe(Recipe):
    """All settings of a run."""

    task: Literal["synthesis"] = "synthesis"
    data: SpeechFiles
    model: SerializeAsAny[SynthesisSettings] = Field(
        default_factory=lambda: SynthesisSettings.model_validate({"kind": "recurrent"})
    )
    training: SynthesisTraining = SynthesisTraining()
    decoding: SpeakingSettings = SpeakingSettings()

    @model_validator(mode="after")
    def _is_measured(self) -> "SynthesisRecipe":
        if self.training.choose_by == "complete" and not self.training.validation_texts:
            raise ValueError("choose_by = 'complete' needs validation_texts above 0")
        return self
