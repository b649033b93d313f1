"""Recipes for single texts: classifiers, taggers, masked and other language models."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator
from torch import nn

from heedful.basics.limits import MOST_POSITIONS
from heedful.data.vocabularies import VocabularySettings
from heedful.models import EncoderSettings, LanguageSettings
from heedful.models.bert import BertSettings
from heedful.runs.settings import (
    FileSettings,
    Recipe,
    VectorSettings,
)
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.data import (
    DocumentData,
    ExampleData,
    LabelledData,
    RatedData,
    TaggedData,
)
from heedful.tasks.texts.heads import (
    ClassificationHead,
    HeadSettings,
    MaskedHead,
    RegressionHead,
    TaggingHead,
)
from heedful.tasks.texts.masking_settings import MaskingSettings
from heedful.tasks.texts.training_settings import (
    ClassificationTraining,
    LanguageTraining,
    MaskedTraining,
    RegressionTraining,
    SeveralTraining,
    TaggingTraining,
    TextTrainingSettings,
)

__all__ = [
    "ClassificationHead",
    "ClassificationRecipe",
    "DocumentData",
    "EncoderRecipe",
    "FileSettings",
    "HeadSettings",
    "LabelledData",
    "LanguageRecipe",
    "MaskedHead",
    "MaskedRecipe",
    "MaskingSettings",
    "RatedData",
    "RegressionHead",
    "RegressionRecipe",
    "SeveralRecipe",
    "TaggedData",
    "TaggingHead",
    "TaggingRecipe",
    "TextRecipe",
    "TextTrainingSettings",
]


_NO_HEADS = nn.ModuleDict()


class TextVectorSettings(VectorSettings):
    """Initial word vectors of the embedding."""

    file: str


class TextRecipe(Recipe):
    """All settings of a run for single texts."""

    tokeniser: VocabularySettings = VocabularySettings()
    vectors: TextVectorSettings | None = None
    training: TextTrainingSettings = TextTrainingSettings()

    def parts(self) -> Mapping[str, Any]:
        """Name → settings of each head, or the recipe itself if it has no heads."""
        raise NotImplementedError

    def sets(self) -> Mapping[str, ExampleData]:
        """Name of each head → its data."""
        return {name: part.data for name, part in self.parts().items()}

    def table_of(self, name: str) -> str:
        """The key of the data table of the head ``name``."""
        return "data"

    def data_tables(self) -> dict[str, FileSettings]:
        return {self.table_of(name): data for name, data in self.sets().items()}


class EncoderRecipe(TextRecipe):
    """An encoder with one head, or several."""

    model: SerializeAsAny[EncoderSettings] = Field(
        default_factory=lambda: BertSettings.model_validate({"size": "tiny"})
    )
    max_tokens: int = Field(128, ge=8, le=MOST_POSITIONS)
    """Maximum tokens of a training row, with BEGIN and ENDs; longer examples are split."""
    head_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout before the output layer of a head."""
    head_max_norm: float | None = Field(None, gt=0)
    """The largest norm of a class's weights in the output layer; larger ones are scaled back."""

    @field_validator("model", mode="before")
    @classmethod
    def _kind_defaults_to_bert(cls, given: Any) -> Any:
        return {"kind": "bert", **given} if isinstance(given, dict) else given

    def heads(self) -> Mapping[str, HeadSettings]:
        """Name → head."""
        raise NotImplementedError

    def parts(self) -> Mapping[str, HeadSettings]:
        return self.heads()

    @model_validator(mode="after")
    def _parts_fit(self) -> "EncoderRecipe":
        if self.max_tokens > self.model.max_length:
            raise ValueError(
                f"max_tokens {self.max_tokens} is more than model.max_length "
                f"{self.model.max_length}"
            )
        if self.model.reads_words and not self.tokeniser.has_characters:
            raise ValueError(
                f"model.kind = '{self.model.kind}' makes words of characters: set tokeniser.kind = "
                "'characters', or 'bytes' with vocabulary_size = 260 (261 with a mask)"
            )
        for name, head in self.heads().items():
            self._fits(name, head)
        self._training_fits()
        return self

    def _fits(self, name: str, head: HeadSettings) -> None:
        """Raise ValueError if the head does not fit the recipe."""
        head.check_fit(self, name)

    def _training_fits(self) -> None:
        heads, training = self.heads().values(), self.training
        if training.penalty and not self.model.has_hops:
            raise ValueError(
                "training.penalty needs structured self-attention: model.pooling = 'structured'"
            )
        if training.penalty and not any(head.reads_whole_texts for head in heads):
            raise ValueError(
                "training.penalty needs a task of whole texts: classification, multi-label or "
                "regression"
            )
        if training.compares_outputs and training.penalty:
            raise ValueError(
                "training.penalty watches one pass; leave it out, or training.teacher and "
                "training.consistency"
            )
        if training.compares_outputs and not all(head.has_classes for head in heads):
            raise ValueError(
                "training.teacher and training.consistency compare the probabilities of classes, "
                "of which a text, word or masked token has one; leave them out"
            )
        if self.vectors is not None and self.model.is_pretrained:
            raise ValueError(
                "[vectors] is for other encoders: a language model has its own embeddings"
            )
        if training.label_smoothing and not any(head.smooths_labels for head in heads):
            raise ValueError("training.label_smoothing is for labels and tags; leave it out")
        if self.head_max_norm is not None and not any(head.has_output_layer for head in heads):
            raise ValueError("head_max_norm is for labels and tags; leave it out")


class ClassificationRecipe(EncoderRecipe):
    """A label for each text, or pair of texts."""

    task: Literal["classification"] = "classification"
    data: LabelledData
    training: ClassificationTraining = ClassificationTraining()

    def heads(self) -> Mapping[str, HeadSettings]:
        return {"classification": ClassificationHead(data=self.data)}


class RegressionRecipe(EncoderRecipe):
    """A number for each text, or pair of texts."""

    task: Literal["regression"] = "regression"
    data: RatedData
    training: RegressionTraining = RegressionTraining()

    def heads(self) -> Mapping[str, HeadSettings]:
        return {"regression": RegressionHead(data=self.data)}


class TaggingRecipe(EncoderRecipe):
    """A tag for each word."""

    task: Literal["tagging"] = "tagging"
    data: TaggedData
    crf: bool = False
    """Predict all tags of a sentence together, by a conditional random field."""
    training: TaggingTraining = TaggingTraining()

    def heads(self) -> Mapping[str, HeadSettings]:
        return {"tagging": TaggingHead(data=self.data, crf=self.crf)}


class MaskedRecipe(EncoderRecipe):
    """An encoder's pre-training on plain text."""

    task: Literal["masked"] = "masked"
    data: DocumentData
    masking: MaskingSettings = MaskingSettings()
    windows: Literal["separate", "packed"] = "separate"
    """``separate``: a row has sentences of one document; ``packed``: it has several such texts,
    which do not see one another."""
    training: MaskedTraining = MaskedTraining()

    @model_validator(mode="after")
    def _can_be_packed(self) -> "MaskedRecipe":
        if self.windows == "packed":
            if self.masking.of_pairs:
                raise ValueError(
                    "windows = 'packed' is for rows without pairs; set masking.next_sentence and "
                    "masking.sentence_order to false"
                )
            _require_packing(self.model)
        return self

    def heads(self) -> Mapping[str, HeadSettings]:
        return {"masked": MaskedHead(data=self.data, masking=self.masking)}

    @model_validator(mode="after")
    def _is_chosen_by_a_figure(self) -> "MaskedRecipe":
        pairs = {"next_accuracy": "next_sentence", "order_accuracy": "sentence_order"}
        needed = pairs.get(self.training.choose_by)
        if needed is not None and not getattr(self.masking, needed):
            raise ValueError(
                f"training.choose_by = '{self.training.choose_by}' needs masking.{needed} = true"
            )
        return self


class SeveralRecipe(EncoderRecipe):
    """Several tasks over one encoder: ``Σ λ_t L_t``."""

    task: Literal["several"] = "several"
    tasks: dict[str, SerializeAsAny[HeadSettings]] = Field(min_length=1)
    temperature: float = Field(1.0, ge=1)
    """τ: tasks are drawn in proportion to their number of examples to the power of 1/τ."""
    training: SeveralTraining = SeveralTraining()

    @field_validator("tasks")
    @classmethod
    def _names_are_plain(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if not name.isidentifier():
                raise ValueError(
                    f"tasks: '{name}' may contain letters, digits and underscores only"
                )
            if hasattr(_NO_HEADS, name):
                raise ValueError(f"tasks: '{name}' is a name that PyTorch reserves; use another")
        for name, head in given.items():
            inner = spec_named(head.task).inner_heads(None)
            for end in (*head.further_layers(), *(f"_{each}" for each in inner)):
                if f"{name}{end}" in given:
                    raise ValueError(f"tasks: '{name}{end}' is the name of a part of '{name}'")
        return given

    def heads(self) -> Mapping[str, HeadSettings]:
        return self.tasks

    def _fits(self, name: str, head: HeadSettings) -> None:
        try:
            super()._fits(name, head)
        except ValueError as error:
            raise ValueError(f"tasks.{name}: {error}") from error

    def table_of(self, name: str) -> str:
        return f"tasks.{name}.data"

    @model_validator(mode="after")
    def _one_task_compares(self) -> "SeveralRecipe":
        if self.training.compares_outputs:
            raise ValueError(
                "training.teacher and training.consistency are for a single task; leave them out"
            )
        return self

    @model_validator(mode="after")
    def _is_chosen_by_a_figure(self) -> "SeveralRecipe":
        known = [
            f"{name}.{figure}"
            for name, head in self.tasks.items()
            if head.data.is_validated
            for figure in head.figures()
        ]
        rising = any(
            head.data.is_validated and set(head.figures()) - spec_named(head.task).falling
            for head in self.tasks.values()
        )
        known = ["mean", *known] if rising else known
        by = self.training.choose_by
        if known and by not in known:
            near = get_close_matches(by, known, n=1, cutoff=0.4)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"training.choose_by = '{by}' is not a validation figure; {hint}")
        return self


def _require_packing(model: EncoderSettings | LanguageSettings) -> None:
    """Raise ValueError unless a model can read several texts in a row."""
    try:
        model.check_packing()
    except ValueError as error:
        raise ValueError(f"windows = 'packed': {error}") from error


class LanguageRecipe(TextRecipe):
    """A language model: each next token of plain text."""

    task: Literal["language-model"] = "language-model"
    data: DocumentData
    model: SerializeAsAny[LanguageSettings]
    context: int = Field(128, ge=2, le=MOST_POSITIONS)
    """Tokens of a training window; also the default of ``model.max_length``."""
    windows: Literal["shifted", "aligned", "packed"] = "shifted"
    """Where training windows begin: elsewhere in every epoch, or at multiples of ``context``; or
    ``packed``: rows of whole documents that do not see one another."""
    samples: int = Field(1, ge=0)
    """Number of texts generated at each validation."""
    training: LanguageTraining = LanguageTraining()

    @model_validator(mode="before")
    @classmethod
    def _model_defaults_to_gpt(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        model, context = given.get("model", {}), given.get("context", 128)
        if isinstance(model, dict):
            own = {"size": "tiny"} if "kind" not in model and "layers" not in model else {}
            model = {"kind": "gpt", **own, "max_length": context, **model}
        return {**given, "model": model}

    def parts(self) -> Mapping[str, "LanguageRecipe"]:
        return {"language-model": self}

    @model_validator(mode="after")
    def _context_fits(self) -> "LanguageRecipe":
        if self.context > self.model.max_length:
            raise ValueError(
                f"context {self.context} is more than model.max_length {self.model.max_length}"
            )
        if self.data.sentences is not None:
            raise ValueError("data.sentences is for masked tokens; a language model reads lines")
        if self.windows == "packed":
            _require_packing(self.model)
        return self
