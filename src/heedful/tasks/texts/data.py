"""Settings for the data of single texts: files, columns and formats."""

import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data import python_rows
from heedful.data.examples import Document, Example, Labelled, Rated, Tagged
from heedful.data.python_rows import are_rows, read_rows
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.data.readers.folders import FilesOf, text_files
from heedful.data.readers.labelled import LabelledFormat, Unlabelled
from heedful.data.readers.plain import DocumentRule
from heedful.data.readers.similar import rating_of
from heedful.data.suites.reading import read_rows as read_official_rows
from heedful.data.suites.tasks import SuiteTask, task_named
from heedful.data.tag_schemes import Scheme, require_scheme
from heedful.runs.settings import FileSettings

_MOST_REAL_LABELS = 10
"""Ratings from 0.5 to 5 in half steps are ten classes."""
_MOST_DISTINCT_LABELS = 20
"""Up to this number, labels are accepted as classes, however few examples there are."""


class ExampleData(FileSettings):
    """Files of examples for single texts."""

    counts_overlap: ClassVar[bool] = True
    """Whether held-out examples that are also in the training data are counted."""

    @property
    def files_of(self) -> FilesOf | None:
        """Returns the files of a folder, a pattern or a URL; None if these cannot be given."""
        return None

    def read(self, files: Sequence[str]) -> Iterator[Example]:
        """The examples of files, or of Python data written by `write_rows`.

        Raises:
            UserError: a file is missing or broken.
        """
        return map(self.stored, read_rows(files)) if are_rows(files) else self.read_files(files)

    def read_files(self, files: Sequence[str]) -> Iterator[Example]:
        """The examples of files."""
        raise NotImplementedError

    def share_of_first(self) -> float | None:
        """For sizes on paper: the first text's usual share of the tokens of a row with two texts.

        None for single texts.
        """
        return None

    def stored(self, value: Any) -> Example:
        """The example for a JSON value that `example_of` returned."""
        raise NotImplementedError

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        """Raise UserError for labels that cannot be trained on.

        Args:
            labelled: label → number of examples.
            first: the first example.
            files: the files, for messages.
        """

    def keep_files(self, files: Sequence[str], folder: Path) -> None:
        """Copy those test files to a run that a later evaluation reads as they are."""


class LabelledData(ExampleData):
    """Texts, or pairs of texts, each with a label."""

    form: ClassVar[Literal["classification", "multi-label", "regression"]] = "classification"
    """What the column ``label`` has: a label, any number of labels, or a number."""

    benchmark: str | None = None
    """The task of a benchmark whose official files are read, such as ``glue/rte``."""
    text: list[str] = Field(default_factory=lambda: ["text"], min_length=1, max_length=2)
    """The columns of the text, or of both texts, by name or number from 1."""
    label: str = "label"
    """The column of the label, by name or number from 1."""
    format: LabelledFormat | None = None
    """Default: from the file name; ``label-text`` has a label, a space and a text per line."""
    unlabelled: Unlabelled = "error"
    """What to do with rows without a label: ``error`` or ``skip``."""

    @field_validator("text", mode="before")
    @classmethod
    def _one_column_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _benchmark_has_files_and_columns(cls, given: Any) -> Any:
        """Fill in what a benchmark's task determines, and refuse other values."""
        if not isinstance(given, dict) or not isinstance(given.get("benchmark"), str):
            return given
        try:
            task = task_named(given["benchmark"])
        except UserError as error:
            raise ValueError(str(error)) from error
        if task.trained_on is not None:
            raise ValueError(f"{task.key} has no training data: train on {task.trained_on}")
        needed = "regression" if task.is_numeric else "classification"
        if needed != cls.form:
            raise ValueError(f'{task.key} needs task = "{needed}"')
        for key, default in (("format", None), ("unlabelled", "error")):
            if given.get(key, default) != default:
                raise ValueError(f"leave out {key}: {task.key} has a format of its own")
        own = {"text": list(task.text), "label": task.label}
        for key, value in own.items():
            if given.get(key, value) != value:
                raise ValueError(f"leave out {key}: {task.key} has columns of its own")
        return {"train": list(task.train), "test": list(task.dev), **given, **own}

    @property
    def official(self) -> SuiteTask | None:
        """The task of the benchmark, if there is one."""
        return None if self.benchmark is None else task_named(self.benchmark)

    @model_validator(mode="after")
    def _columns_are_the_formats(self) -> "LabelledData":
        if self.format == "label-text" and len(self.text) > 1:
            raise ValueError("format = 'label-text' has one text per line: set one column of text")
        return self

    def read_files(self, files: Sequence[str]) -> Iterator[Labelled]:
        if self.official is not None:
            if self.encoding is not None:
                raise UserError(f"the files of {self.benchmark} are UTF-8: leave out the encoding")
            return read_official_rows(files, self.official)
        return read_labelled(
            files,
            text=self.text,
            label=self.label,
            encoding=self.encoding,
            format=self.format,
            unlabelled=self.unlabelled,
            numeric=self.form == "regression",
        )

    def share_of_first(self) -> float | None:
        return 0.5 if len(self.text) == 2 else None

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
                f"{self.train[0]}: only the first line has the label '{first.labels[0]}'; if it is "
                "a header, give the columns by name instead of number, or it is used as an example"
            )
        require_classes(labelled, files)

    def keep_files(self, files: Sequence[str], folder: Path) -> None:
        if self.official is None or are_rows(files):
            return
        for number, file in enumerate(files, start=1):
            own = folder / f"official-{number}"
            own.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, own / Path(file).name)


class RatedData(LabelledData):
    """Texts, or pairs of texts, each with a number in the column ``label``."""

    form = "regression"

    def read_files(self, files: Sequence[str]) -> Iterator[Any]:
        for number, example in enumerate(super().read_files(files), start=1):
            where = f"{', '.join(files)}: example {number:,}"
            yield Rated(example.texts, rating_of(example.label, self.label, where))

    def stored(self, value: Any) -> Any:
        texts, number = value
        return Rated(tuple(texts), number)

    def example_of(self, row: Any) -> list[Any]:
        *texts, value = python_rows.values(row, [*self.text, self.label])
        found = [python_rows.filled(own, name) for own, name in zip(texts, self.text, strict=True)]
        return [found, python_rows.number(value, self.label)]

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        """Nothing to check: there are no classes."""


class TaggedData(ExampleData):
    """Sentences of words, each with a tag."""

    column: str = "upos"
    """The column of CoNLL-U that has the tags."""
    untagged: str | None = Field(None, min_length=1)
    """The tag that stands for no tag: its words are read, but neither trained nor scored."""
    scheme: Scheme | None = None
    """The scheme of tags of spans, which is scored strictly and which ``crf`` follows."""

    def check_labels(self, labelled: Counter[str], first: Example | None, files: str) -> None:
        if self.scheme is not None:
            require_scheme(labelled, self.scheme, files)

    def read(self, files: Sequence[str]) -> Iterator[Tagged]:
        for example in super().read(files):
            assert isinstance(example, Tagged)
            tags = tuple("" if tag == self.untagged else tag for tag in example.tags)
            yield Tagged(example.words, tags)

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
    """What separates documents: blank lines, WikiText's titles, line ends, or files (``whole``)."""
    sentences: str | None = None
    """For pre-training: the language whose rules are used to split lines into sentences."""

    @property
    def files_of(self) -> FilesOf | None:
        return text_files

    def read_files(self, files: Sequence[str]) -> Iterator[Document]:
        found = read_documents(
            files, document=self.documents, blank_lines=True, encoding=self.encoding
        )
        return (Document("\n".join(lines)) for lines in found)

    def stored(self, value: Any) -> Document:
        return Document(value)

    def example_of(self, row: Any) -> str:
        """The text of a row: the row itself or its column ``text``; a row is a whole document."""
        if not isinstance(row, str):
            (row,) = python_rows.values(row, ["text"])
        return python_rows.text(row, "text")


def require_classes(labelled: Counter[str], files: str) -> None:
    """Raise UserError for a label column with values that are not classes.

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
            f"{files}: the labels are {many:,} different real numbers; predict them with "
            'task = "regression" (--task regression), or group the numbers into classes'
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
