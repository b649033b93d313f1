"""The recipe of denoising pre-training."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.settings import Settings
from heedful.data import python_rows
from heedful.data.denoising import NoiseKind
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import read_documents
from heedful.data.readers.folders import FilesOf, text_files
from heedful.data.readers.plain import DocumentRule
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe, TrainingSettings

_LONGER = 3
"""Maximum number of tokens by which a source or a target is longer than its text, END included."""
_SHARES = {"spans": 0.15, "infilling": 0.3}
_OF_PAIRS = (
    "source",
    "target",
    "reversed",
    "links",
    "protect",
    "filters",
    "keep_memory",
    "keep_near_duplicates",
)


class NoiseSettings(Settings):
    """What is removed from texts."""

    kind: NoiseKind = "spans"
    """``spans`` are replaced by numbered sentinels, and the target lists them (T5); ``infilling``
    replaces each by the same mask, and the target is the text (BART)."""
    share: float | None = Field(None, gt=0, lt=1)
    """Share of removed tokens; by default, as in the papers, 0.15 for spans, 0.3 for infilling."""
    mean_length: float = Field(3.0, ge=1, le=100)
    """Mean length of removed spans, in tokens."""
    permute_sentences: bool | None = None
    """Whether lines are in random order; by default for infilling only."""

    @property
    def removed(self) -> float:
        """The share of removed tokens."""
        return _SHARES[self.kind] if self.share is None else self.share

    @property
    def permutes(self) -> bool:
        """Whether sentences are permuted."""
        return (
            self.kind == "infilling" if self.permute_sentences is None else self.permute_sentences
        )


class DenoisingData(DataSettings):
    """The files of plain text, and how they are read."""

    train: list[str] = Field(min_length=1)
    """Files of plain text."""
    validation: list[str] = Field(default_factory=list)
    test: list[str] = Field(default_factory=list)
    documents: DocumentRule = "blank-lines"
    """What separates documents: blank lines, WikiText's titles, line ends, or files (``whole``)."""
    sentences: str | None = None
    """The language whose rules are used to split lines into sentences, which can be permuted."""
    max_tokens: int = Field(256, ge=4, le=MOST_POSITIONS)
    """Maximum tokens of a training text: consecutive lines of a document, as many as fit."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        usual = {name: field.get_default() for name, field in DataSettings.model_fields.items()}
        for name in _OF_PAIRS:
            if getattr(self, name) != usual[name]:
                raise ValueError(f"data.{name} is for pairs of texts; denoising reads plain text")
        return self

    @property
    def files_of(self) -> FilesOf:
        """Returns the files of a folder, a pattern or a URL."""
        return text_files

    def read(self, files: Sequence[str]) -> Iterator[list[str]]:
        """The lines of each document.

        Raises:
            UserError: a file is missing or broken.
        """
        if are_rows(files):
            return (str(text).split("\n") for text in read_rows(files))
        return read_documents(
            files, document=self.documents, sentences=self.sentences, encoding=self.encoding
        )

    def example_of(self, row: Any) -> Any:
        """The text of a row: the row itself or its column ``text``; a row is a whole document."""
        if not isinstance(row, str):
            (row,) = python_rows.values(row, ["text"])
        return python_rows.text(row, "text")


class DenoisingTraining(TrainingSettings):
    """How the model is trained."""

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    choose_by: Literal["loss", "bleu", "chrf"] = "loss"


class DenoisingRecipe(PairRecipe):
    """All settings of denoising pre-training.

    Raffel et al. 2020, section 3.1.4; Lewis et al. 2020, section 2.2.
    """

    prepared_by = PairRecipe.prepared_by | {"noise"}
    task: Literal["denoising"] = "denoising"
    data: DenoisingData
    noise: NoiseSettings = NoiseSettings()
    training: DenoisingTraining = DenoisingTraining()

    @model_validator(mode="after")
    def _noise_fits(self) -> Self:
        if not self.tokeniser.joint:
            raise ValueError("denoising has one language: set tokeniser.joint = true")
        if self.training.subword_setting is not None:
            raise ValueError(
                f"training.{self.training.subword_setting} is for pairs of texts; leave it out"
            )
        if self.data.max_tokens > self.model.max_length - _LONGER:
            raise ValueError(
                f"data.max_tokens {self.data.max_tokens} must be at most model.max_length "
                f"{self.model.max_length} less {_LONGER}, because targets can be longer than texts"
            )
        return self
