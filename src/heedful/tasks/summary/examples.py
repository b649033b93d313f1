"""Texts with and without summaries."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from heedful.basics.json_models import NamedInput
from heedful.basics.limits import MOST_POSITIONS
from heedful.tasks.column_spec import ExampleFiles

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class ToSummarise(NamedInput):
    """A text."""

    model_config = ConfigDict(extra="forbid")

    _where: str = PrivateAttr("the text")

    source: Annotated[Text, Field(description="The text to summarise.")]


class Summarised(ToSummarise):
    """A text with its summaries."""

    targets: Annotated[list[Text], Field(min_length=1)]


class SummaryFiles(ExampleFiles):
    """Files of texts with summaries: JSON lines, TSV or CSV."""

    example = Summarised
    source_column: str = "source"
    """Column, or field of JSON lines, of the text."""
    target_column: str = "target"
    """Column of the summary; in JSON lines, there may be a list of summaries."""
    references: Literal["all", "first"] = "all"
    """Whether all summaries of a text are used, or its first one only."""
    longest_source: int | None = Field(None, ge=1, le=MOST_POSITIONS)
    """Longer texts are cut to so many words, and counted. Unless given, texts that are longer than
    the model reads are left out of training, and refused later."""
    longest_summary: int = Field(100, ge=1, le=MOST_POSITIONS)
    """Longest summary in words; longer ones are left out of training and counted."""
    lower_case: bool = True
    """Whether texts are read and summaries written in lower case."""
    split: Literal["punctuation", "spaces"] = "punctuation"
    """Whether words are found at white space and around punctuation, or at white space only."""
    minimum_count: int = Field(2, ge=1)
    """How often a word must occur in the training data to be in the vocabulary."""
    vocabulary_size: int = Field(20_000, ge=10, le=MOST_POSITIONS)
    """Most words of the vocabulary."""

    def example_of(self, row: Any) -> Any:
        """A row of Python data has a text and a summary, or a list of summaries."""
        from heedful.data.python_rows import RowError, values

        names = [self.source_column, self.target_column]
        source, targets = values(row, names)
        given = [targets] if isinstance(targets, str) else targets
        try:
            made = Summarised(source=source, targets=self._used(given))
        except (ValueError, TypeError) as error:
            raise RowError(
                f"'{names[0]}' must be a text, '{names[1]}' a text or texts; none is empty"
            ) from error
        return made.model_dump(mode="json")

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Summarised]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.summaries.read_summaries`."""
        from heedful.data.python_rows import are_rows
        from heedful.data.readers.summaries import read_summaries

        if are_rows(files):
            yield from self.read_lines(files, encoding)
            return
        names = {"source": self.source_column, "target": self.target_column}
        for path in files:
            for found in read_summaries(path, encoding=encoding, **names):
                made = Summarised(source=found.source, targets=self._used(found.targets))
                yield made.named(found.where)

    def _used(self, targets: list[str]) -> list[str]:
        return targets if self.references == "all" else targets[:1]
