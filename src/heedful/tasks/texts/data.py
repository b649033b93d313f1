"""Where the examples of recipes for single texts are: files, columns, and what is held out."""

from typing import Any

from pydantic import Field, field_validator, model_validator

from heedful.data.readers.labelled import LabelledFormat, Unlabelled
from heedful.data.readers.plain import DocumentRule
from heedful.runs.settings import FileSettings


class LabelledData(FileSettings):
    """Texts, or pairs of texts, each with a label."""

    text: list[str] = Field(default_factory=lambda: ["text"], min_length=1, max_length=2)
    """The columns of the text, or of both texts, by name or number from 1."""
    label: str = "label"
    """The column of the label, by name or number from 1."""
    format: LabelledFormat | None = None
    """Known by the file's name unless given; ``label-text`` has label, space and text a line."""
    unlabelled: Unlabelled = "error"
    """What is done about rows without a label: ``error``, or ``skip``."""

    @field_validator("text", mode="before")
    @classmethod
    def _one_column_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _columns_are_the_formats(self) -> "LabelledData":
        if self.format == "label-text" and len(self.text) > 1:
            raise ValueError("format = 'label-text' has one text a line: name one column of text")
        return self


class TaggedData(FileSettings):
    """Sentences of words, each with a tag."""

    column: str = "upos"
    """The column of CoNLL-U that has the tags."""


class DocumentData(FileSettings):
    """Documents of plain text."""

    documents: DocumentRule = "blank-lines"
    """What parts documents: blank lines, WikiText's titles, line ends, or files (``whole``)."""
    sentences: str | None = None
    """For pairs of segments: the language by whose rules lines are cut into sentences."""
