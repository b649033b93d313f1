"""How encoders and language models are trained: the table ``[training]`` of each task."""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from heedful.runs.settings import LoopSettings, TeacherSettings


class TextTrainingSettings(LoopSettings):
    """How encoders and language models are trained."""

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    penalty: float = Field(0.0, ge=0)
    """Weight of the penalty ``‖AAᵀ − I‖²`` on each example's hops (structured self-attention)."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Ratio of the learning rate of each layer to that of the layer above."""
    unfreeze_every: int | None = Field(None, ge=1)
    """Train only the head at first, and unfreeze one more layer, from the top, every N steps."""
    schedule: Literal[
        "inverse_square_root", "linear", "cosine", "constant", "slanted_triangular"
    ] = "linear"
    betas: tuple[float, float] = (0.9, 0.999)
    shuffle_window: int | None = Field(None, ge=1)
    """Examples that are shuffled together, of whole shards in random order; default: all. Tokens
    for language models, sentences for masked and permuted tokens."""
    consistency: float = Field(0.0, ge=0)
    """Weight α of the divergence of two passes with different dropout (R-Drop); 0 for one pass."""
    teacher: TeacherSettings | None = None
    """The run to distil."""

    @model_validator(mode="after")
    def _one_comparison(self) -> Self:
        if self.consistency and self.teacher is not None:
            raise ValueError(
                "training.consistency and training.teacher both compare outputs; leave one out"
            )
        return self

    @property
    def compares_outputs(self) -> bool:
        """Whether the loss compares two outputs for a batch."""
        return bool(self.consistency) or self.teacher is not None

    def layer_rates(self) -> tuple[float, int]:
        return self.layer_decay, self.unfreeze_every or 0


class ClassificationTraining(TextTrainingSettings):
    """As all, chosen by accuracy."""

    choose_by: Literal["loss", "accuracy", "macro_f1", "matthews"] = "accuracy"


class RegressionTraining(TextTrainingSettings):
    """As all, chosen by Pearson's correlation."""

    choose_by: Literal["loss", "pearson", "spearman"] = "pearson"


class TaggingTraining(TextTrainingSettings):
    """As all, chosen by accuracy."""

    choose_by: Literal["loss", "accuracy", "macro_f1", "span_f1"] = "accuracy"


class MaskedTraining(TextTrainingSettings):
    """As all, chosen by loss."""

    choose_by: Literal["loss", "masked_accuracy", "next_accuracy", "order_accuracy"] = "loss"


class SeveralTraining(TextTrainingSettings):
    """As all, chosen by the mean of the tasks' accuracies, or by a figure of one of them."""

    choose_by: str = "mean"


class LanguageTraining(TextTrainingSettings):
    """As all, chosen by loss."""

    choose_by: Literal["loss"] = "loss"
    schedule: Literal[
        "inverse_square_root", "linear", "cosine", "constant", "slanted_triangular"
    ] = "cosine"


def choices(training: type[TextTrainingSettings]) -> tuple[str, ...]:
    """The figures that checkpoints can be chosen by."""
    return tuple(map(str, get_args(training.model_fields["choose_by"].annotation)))
