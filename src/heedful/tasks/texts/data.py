"""Where the examples of recipes for single texts are: files, columns, and what is held out."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data import python_rows
from heedful.data.examples import Document, Example, Labelled, Tagged
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.data.readers.labelled import LabelledFormat, Unlabelled
from heedful.data.readers.plain import DocumentRule
from heedful.runs.settings import FileSettings

_MOST_REAL_LABELS = 10
"""Ratings from 0.5 to 5 in half steps are ten classes."""
_MOST_DISTINCT_LABELS = 20
"""Fewer different labels may be classes, of however few examples."""


class ExampleData(FileSettings):
    """Files of examples for single texts."""

    counts_overlap: ClassVar[bool] = True
    """Whether held-out examples are looked for among those of training."""

    def read(self, files: Sequence[str]) -> Iterator[Example]:
        """The examples of files, or of what `heedful.data.python_rows.write_rows` wrote.

        Raises:
            UserError: a file is missing or broken.
        """
        return map(self.stored, read_rows(files)) if are_rows(files) else self.read_files(files)

    def read_files(self, files: Sequence[str]) -> Iterator[Example]:
        """The examples of files."""
        raise NotImplementedError

    def stored(self, value: Any) -> Example:
        """The example that JSON holds as ``value``: what `example_of` made of a row."""
        raise NotImplementedError

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        """Refuse labels that cannot be learnt.

        Args:
            labelled: how many examples have each.
            first: the first example.
            files: where they are from.
        """


class LabelledData(ExampleData):
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

    def read_files(self, files: Sequence[str]) -> Iterator[Labelled]:
        return read_labelled(
            files,
            text=self.text,
            label=self.label,
            encoding=self.encoding,
            format=self.format,
            unlabelled=self.unlabelled,
        )

    def stored(self, value: Any) -> Labelled:
        texts, label = value
        return Labelled(tuple(texts), label)

    def example_of(self, row: Any) -> list[Any]:
        *texts, label = python_rows.values(row, [*self.text, self.label])
        found = [python_rows.filled(own, name) for own, name in zip(texts, self.text, strict=True)]
        return [found, python_rows.label(label, self.label)]

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        alone = first is not None and labelled[first.labels[0]] == 1 and len(labelled) > 2
        if alone and first is not None and self.label.isdigit() and not are_rows(self.train):
            notice(
                f"{self.train[0]}: only its first line is labelled '{first.labels[0]}'; if that "
                "line names the columns, it is learnt as an example: choose them by name, not by "
                "number"
            )
        require_classes(labelled, files)


class TaggedData(ExampleData):
    """Sentences of words, each with a tag."""

    column: str = "upos"
    """The column of CoNLL-U that has the tags."""

    def read_files(self, files: Sequence[str]) -> Iterator[Tagged]:
        return read_tagged(files, column=self.column, encoding=self.encoding)

    def stored(self, value: Any) -> Tagged:
        words, tags = value
        return Tagged(tuple(words), tuple(tags))

    def example_of(self, row: Any) -> list[Any]:
        """Words and tags: two sequences, by name ``words`` (or ``tokens``) and ``column``."""
        keys = list(getattr(row, "keys", tuple)())
        names = ["tokens" if "tokens" in keys and "words" not in keys else "words", self.column]
        words, tags = map(list, python_rows.values(row, names))
        if len(words) != len(tags) or not words:
            raise python_rows.RowError(f"{len(words)} words with {len(tags)} tags")
        return [
            [python_rows.filled(word, names[0]) for word in words],
            [python_rows.label(tag, self.column) for tag in tags],
        ]


class DocumentData(ExampleData):
    """Documents of plain text."""

    counts_overlap: ClassVar[bool] = False

    documents: DocumentRule = "blank-lines"
    """What parts documents: blank lines, WikiText's titles, line ends, or files (``whole``)."""
    sentences: str | None = None
    """For pairs of segments: the language by whose rules lines are cut into sentences."""

    def read_files(self, files: Sequence[str]) -> Iterator[Document]:
        found = read_documents(
            files, document=self.documents, blank_lines=True, encoding=self.encoding
        )
        return (Document("\n".join(lines)) for lines in found)

    def stored(self, value: Any) -> Document:
        return Document(value)

    def example_of(self, row: Any) -> str:
        """A text, or a row whose column ``text`` has it; a row is a whole document."""
        if not isinstance(row, str):
            (row,) = python_rows.values(row, ["text"])
        return python_rows.text(row, "text")


def require_classes(labelled: Counter[str], files: str) -> None:
    """Refuse a column that holds values rather than classes.

    Class numbers (0, 1, 2) and ratings (1 to 5, or in half steps) are classes.

    Raises:
        UserError: there are more than 20 labels and most examples have one of their own, or there
            are more than 10 numeric labels that are not all whole.
    """
    number, many = labelled.total(), len(labelled)
    numeric = all(map(_is_number, labelled))
    whole = numeric and all(float(label).is_integer() for label in labelled)
    if numeric and not whole and many > _MOST_REAL_LABELS:
        raise UserError(
            f"{files}: the labels are {many:,} different real numbers; heedful classifies and has "
            "no regression: choose another label column, or group the numbers into classes"
        )
    if many > _MOST_DISTINCT_LABELS and 2 * many > number:
        raise UserError(
            f"{files}: {many:,} different labels in {number:,} examples are too many to learn "
            "from: choose another label column, or group the values into classes"
        )


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
