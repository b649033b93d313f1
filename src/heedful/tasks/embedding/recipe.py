"""The recipe of sentence embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.data import python_rows
from heedful.data.examples import Similar
from heedful.data.readers import read_documents
from heedful.data.readers.labelled import LabelledFormat
from heedful.data.readers.plain import DocumentRule
from heedful.data.readers.similar import read_similar
from heedful.models.text_pooling import Pooling
from heedful.tasks.texts.data import ExampleData
from heedful.tasks.texts.heads import HeadSettings
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.training_settings import TextTrainingSettings, choices


class EmbeddingData(ExampleData):
    """Texts of which vectors are learned: a table, or plain text."""

    counts_overlap: ClassVar[bool] = True

    texts: list[str] = Field(default_factory=lambda: ["text"], min_length=1, max_length=3)
    """The column of the text; or the columns of a text, of a similar text, and possibly of a text
    that is not similar to the first. By name or number from 1."""
    rating: str | None = None
    """The column of the rating of two texts, by name or number from 1."""
    range: tuple[float, float] = (0.0, 5.0)
    """The ratings of texts with nothing in common and of texts that mean the same."""
    rated: list[str] = Field(default_factory=list, max_length=3)
    """The columns of two texts and their rating in the files of validation and test, if only these
    have ratings."""
    format: LabelledFormat | None = None
    """Default: from the file name."""
    plain_text: DocumentRule | None = None
    """Read plain text, whose lines are the texts, as documents of this kind."""
    sentences: str | None = None
    """The language whose rules divide the lines of plain text into sentences."""

    @field_validator("texts", mode="before")
    @classmethod
    def _one_column_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        if self.format == "label-text":
            raise ValueError("format = 'label-text' has no similar texts; use tsv, csv or jsonl")
        if self.rating is not None and len(self.texts) != 2:
            raise ValueError("rating is that of two texts: set texts to both columns")
        if self.range[0] >= self.range[1]:
            raise ValueError(f"range: {self.range[0]:g} is not below {self.range[1]:g}")
        if self.rated and len(self.rated) != 3:
            raise ValueError("rated needs three columns: both texts and their rating")
        if self.rated and not (self.validation or self.test):
            raise ValueError("rated is for files of validation or test: name some")
        if self.rated and self.rating is not None:
            raise ValueError(
                "rated is for training data without ratings; leave out rated or rating"
            )
        if self.plain_text is not None and (len(self.texts) > 1 or self.format is not None):
            raise ValueError("plain_text reads lines: leave out texts and format")
        if self.sentences is not None and self.plain_text is None:
            raise ValueError("sentences is for plain text: set plain_text")
        return self

    @property
    def kind(self) -> Literal["single", "similar", "rated"]:
        """What the training examples are."""
        if self.rating is not None:
            return "rated"
        return "single" if len(self.texts) == 1 else "similar"

    @property
    def validated_kind(self) -> Literal["single", "similar", "rated"]:
        """What the validation examples are: those held out of the training data are as these."""
        return self.held_out().kind if self.validation else self.kind

    def held_out(self) -> Self:
        """As these, or tables of rated pairs."""
        if not self.rated:
            return self
        own = {"texts": self.rated[:2], "rating": self.rated[2], "rated": []}
        return self.model_copy(update={**own, "plain_text": None, "sentences": None})

    def read_files(self, files: Sequence[str]) -> Iterator[Similar]:
        if self.plain_text is None:
            found = read_similar(
                files,
                text=self.texts,
                rating=self.rating,
                encoding=self.encoding,
                format=self.format,
            )
            return map(self._checked, found)
        documents = read_documents(
            files, document=self.plain_text, sentences=self.sentences, encoding=self.encoding
        )
        return (Similar((line,)) for lines in documents for line in lines if line.strip())

    def stored(self, value: Any) -> Similar:
        texts, rating = value
        return self._checked(Similar(tuple(texts), rating))

    def example_of(self, row: Any) -> list[Any]:
        names = [*self.texts, *([] if self.rating is None else [self.rating])]
        if isinstance(row, str) and len(names) == 1:
            row = [row]
        found = python_rows.values(row, names)
        texts = [
            python_rows.filled(own, name) for own, name in zip(found, self.texts, strict=False)
        ]
        return [texts, None if self.rating is None else python_rows.number(found[-1], self.rating)]

    def _checked(self, example: Similar) -> Similar:
        lowest, highest = self.range
        if example.rating is not None and not lowest <= example.rating <= highest:
            raise UserError(
                f"the rating {example.rating:g} of '{example.texts[0][:40]}' is outside the range "
                f"{lowest:g} to {highest:g}; correct it, or set data.range"
            )
        return example


class EmbeddingTraining(TextTrainingSettings):
    """As all, chosen by the loss."""

    choose_by: Literal[
        "loss",
        "spearman",
        "pearson",
        "recall_at_1",
        "recall_at_5",
        "recall_at_10",
        "mean_reciprocal_rank",
    ] = "loss"


_FIGURES = {"rated": ("spearman", "pearson"), "similar": ("recall", "mean_reciprocal")}
"""How the names of the figures of each kind of validation examples begin, beside the loss."""


class EmbeddingHead(HeadSettings):
    """Vectors of texts."""

    task: Literal["embedding"] = "embedding"
    data: EmbeddingData
    pooling: Pooling = "mean"
    normalize: bool = True
    contrastive_temperature: float = Field(0.05, gt=0, allow_inf_nan=False)

    def figures(self) -> tuple[str, ...]:
        begin = _FIGURES.get(self.data.validated_kind, ())
        return tuple(one for one in choices(EmbeddingTraining) if one.startswith(("loss", *begin)))

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        super().check_fit(recipe, name)
        if self.data.kind == "single" and getattr(recipe.model, "dropout", None) == 0:
            raise ValueError(
                "single texts are compared with themselves under another dropout: set "
                "model.dropout above 0"
            )
        if self.data.kind != "rated" and recipe.training.batch_tokens < 2 * recipe.max_tokens:
            raise ValueError(
                f"training.batch_tokens {recipe.training.batch_tokens} is less than two texts of "
                f"max_tokens {recipe.max_tokens}, so that a text may have nothing to be compared "
                "with; raise it"
            )


class EmbeddingRecipe(EncoderRecipe):
    """A vector for each text, so that similar texts have similar vectors."""

    task: Literal["embedding"] = "embedding"
    data: EmbeddingData
    pooling: Pooling = "mean"
    """How the encoder's output becomes one vector."""
    normalize: bool = True
    """Whether vectors have the length 1."""
    contrastive_temperature: float = Field(0.05, gt=0, allow_inf_nan=False)
    """τ of the contrastive loss."""
    training: EmbeddingTraining = EmbeddingTraining()

    def heads(self) -> Mapping[str, Any]:
        names = ("data", "pooling", "normalize", "contrastive_temperature")
        return {"embedding": EmbeddingHead(**{name: getattr(self, name) for name in names})}

    @model_validator(mode="after")
    def _has_no_other_outputs(self) -> Self:
        if self.head_max_norm is not None or self.head_dropout != 0.1:
            raise ValueError(
                "an embedding has no output layer: leave out head_dropout and head_max_norm"
            )
        if self.training.unfreeze_every is not None:
            raise ValueError(
                "training.unfreeze_every trains the output layer first, and an embedding has none; "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _is_chosen_by_a_figure(self) -> Self:
        by, known = self.training.choose_by, self.heads()["embedding"].figures()
        if self.data.is_validated and by not in known:
            needed = "rated pairs" if by in ("spearman", "pearson") else "pairs without ratings"
            raise ValueError(
                f"training.choose_by = '{by}' needs {needed} for validation; choose another figure"
            )
        return self
