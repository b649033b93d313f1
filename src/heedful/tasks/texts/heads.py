"""The heads of encoders of texts: their settings, as recipes with several heads have them.

A task that is a head has a class of settings here or in its own folder, which
:meth:`~heedful.tasks.texts.spec.HeadSpec.head_type` returns.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from heedful.basics.variants import Variant
from heedful.models import EncoderSettings, registered
from heedful.models.registry import kind_of
from heedful.tasks.spec import specs
from heedful.tasks.texts.data import (
    DocumentData,
    ExampleData,
    LabelledData,
    RatedData,
    TaggedData,
)
from heedful.tasks.texts.masking_settings import MaskingSettings
from heedful.tasks.texts.training_settings import (
    ClassificationTraining,
    MaskedTraining,
    RegressionTraining,
    TaggingTraining,
    choices,
)


class HeadSettings(Variant):
    """Base of the settings of heads: a literal ``task`` with its default, ``data``, and more."""

    chosen_by = "task"
    reads_whole_texts: ClassVar[bool] = False
    """Whether it predicts something of a whole text or pair, which ``training.penalty`` needs."""
    has_classes: ClassVar[bool] = False
    """Whether it predicts classes whose probabilities two models, or two passes, can share:
    ``training.teacher`` and ``training.consistency``."""
    smooths_labels: ClassVar[bool] = False
    """Whether ``training.label_smoothing`` is for it."""
    has_output_layer: ClassVar[bool] = False
    """Whether it has an output layer for labels, whose weights ``head_max_norm`` limits."""
    if TYPE_CHECKING:

        @property
        def task(self) -> str: ...

        @property
        def data(self) -> ExampleData: ...

    weight: float = Field(1.0, gt=0)
    """λ of its loss in multi-task training."""

    @classmethod
    def variants(cls) -> "list[type[HeadSettings]]":
        """For this class: those of all registered tasks; for each of them: none."""
        if cls is not HeadSettings:
            return []
        return [kind for spec in specs() if (kind := spec.head_type()) is not None]

    def figures(self) -> tuple[str, ...]:
        """Figures that checkpoints can be chosen by."""
        raise NotImplementedError

    def check_fit(self, recipe: Any, name: str) -> None:
        """Raise ValueError if the model or other settings of a recipe do not fit the head.

        Args:
            recipe: the :class:`~heedful.tasks.texts.recipe.EncoderRecipe`.
            name: the name of the head in it.
        """
        if recipe.model.needs_pairs:
            raise ValueError(f"{_kind(recipe)} reads pairs of texts only: choose another model")

    @property
    def paper_labels(self) -> int:
        """Number of labels for sizes on paper, for which no data are read."""
        return 2

    def has_layers_of(self, other: "HeadSettings") -> bool:
        """Whether the head has the parameters of another, if it has the same labels."""
        return self.task == other.task

    def further_layers(self) -> Mapping[str, str]:
        """Layers in addition to the head's own, by what follows its name in theirs → their kind."""
        return {}


class LabelledHead(HeadSettings):
    """Base of heads that predict something of whole texts, or pairs of texts."""

    reads_whole_texts = True
    has_output_layer = True

    def check_fit(self, recipe: Any, name: str) -> None:
        texts: list[str] = getattr(self.data, "text", [])
        if recipe.model.needs_pairs and len(texts) == 1:
            raise ValueError(
                f"{_kind(recipe)} reads pairs of texts only: set {recipe.table_of(name)}.text to "
                "both columns, or choose another model"
            )


class ClassificationHead(LabelledHead):
    """A label for each text, or pair of texts."""

    has_classes = True
    smooths_labels = True
    task: Literal["classification"] = "classification"
    data: LabelledData

    def figures(self) -> tuple[str, ...]:
        return choices(ClassificationTraining)


class RegressionHead(LabelledHead):
    """A number for each text, or pair of texts."""

    task: Literal["regression"] = "regression"
    data: RatedData

    def figures(self) -> tuple[str, ...]:
        return choices(RegressionTraining)


class TaggingHead(HeadSettings):
    """A tag for each word."""

    has_classes = True
    smooths_labels = True
    has_output_layer = True
    task: Literal["tagging"] = "tagging"
    data: TaggedData
    crf: bool = False
    """Predict all tags of a sentence together, by a conditional random field."""

    def figures(self) -> tuple[str, ...]:
        return choices(TaggingTraining)

    def check_fit(self, recipe: Any, name: str) -> None:
        if recipe.model.needs_pairs:
            raise ValueError(f"{_kind(recipe)} has no word vectors for tagging")
        training = recipe.training
        if self.crf and (training.label_smoothing or training.compares_outputs):
            raise ValueError(
                "crf = true scores whole sentences: leave out training.label_smoothing, "
                "training.teacher and training.consistency, which are for single tags"
            )

    def has_layers_of(self, other: HeadSettings) -> bool:
        return super().has_layers_of(other) and self.crf == getattr(other, "crf", False)


class MaskedHead(HeadSettings):
    """Predicts masked tokens, and how two segments are related."""

    has_classes = True
    task: Literal["masked"] = "masked"
    data: DocumentData
    masking: MaskingSettings = MaskingSettings()

    def figures(self) -> tuple[str, ...]:
        others = {"next_accuracy", "order_accuracy"} - {f"{self.masking.of_pairs}_accuracy"}
        return tuple(each for each in choices(MaskedTraining) if each not in others)

    def check_fit(self, recipe: Any, name: str) -> None:
        if not recipe.model.fills_masks:
            kinds = [kind_of(each) for each in registered(EncoderSettings) if each.fills_masks]
            named = " or ".join(f"'{kind}'" for kind in kinds)
            raise ValueError(f"masked tokens need model.kind = {named}")
        require_mask(recipe, "masked tokens need")

    def further_layers(self) -> Mapping[str, str]:
        pairs = self.masking.of_pairs
        return {} if pairs is None else {"_next": pairs}


def require_mask(recipe: Any, what_needs: str) -> None:
    """Raise ValueError unless the vocabulary of a recipe has a mask."""
    if not recipe.tokeniser.mask:
        raise ValueError(f"{what_needs} tokeniser.mask = true")


def _kind(recipe: Any) -> str:
    """The model of a recipe that needs pairs, for messages."""
    model: Any = recipe.model
    own = "' with pairs = 'apart" if "pairs" in type(model).model_fields else ""
    return f"model.kind = '{model.kind}{own}'"
