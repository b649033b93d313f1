"""The recipe of question answering with spans."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from heedful.data import python_rows
from heedful.data.examples import SpanQuestion
from heedful.data.readers.labelled import LabelledFormat
from heedful.data.readers.questions import Misplaced, QuestionColumns, read_questions
from heedful.models.bert import BertSettings
from heedful.tasks.texts.data import ExampleData
from heedful.tasks.texts.heads import HeadSettings
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.training_settings import TextTrainingSettings, choices

_QUESTION = 0.1
"""Share of a question in the tokens of a row: about 13 of 130 in SQuAD."""


class SpanData(ExampleData):
    """Questions whose answers are parts of texts: SQuAD's JSON files, or tables."""

    counts_overlap: ClassVar[bool] = True
    format: LabelledFormat | None = None
    """That of tables; default: from the file name. SQuAD's JSON is found by its content."""
    context: str = "context"
    """The column of the text, by name or number from 1. The columns are for tables."""
    question: str = "question"
    answer: str = "answer"
    """The column of the answer; empty if the text has none."""
    start: str | None = None
    """The column with the index of the answer's first character, from 0; without it, the answer is
    where it occurs first."""
    misplaced: Misplaced = "error"
    """What to do with a question whose answer is not in the text at its place: ``error`` or
    ``skip``."""

    @model_validator(mode="after")
    def _a_format_has_its_columns(self) -> "SpanData":
        if self.format == "label-text":
            raise ValueError("format = 'label-text' has no questions; use tsv, csv or jsonl")
        return self

    def read_files(self, files: Sequence[str]) -> Iterator[SpanQuestion]:
        return read_questions(
            files,
            columns=QuestionColumns(self.context, self.question, self.answer, self.start),
            format=self.format,
            encoding=self.encoding,
            misplaced=self.misplaced,
        )

    def share_of_first(self) -> float:
        return _QUESTION

    def stored(self, value: Any) -> SpanQuestion:
        return stored(value)

    def example_of(self, row: Any) -> list[Any]:
        """A row with the columns; ``misplaced`` is for files only."""
        names = [self.question, self.context, self.answer, *([self.start] if self.start else [])]
        question, context, answer, *start = python_rows.values(row, names)
        question = python_rows.filled(question, self.question)
        context = python_rows.filled(context, self.context)
        answer = "" if answer is None else python_rows.text(answer, self.answer)
        if not answer.strip():
            return [question, context, [], ""]
        place = context.find(answer)
        if start:
            given = python_rows.number(start[0], "start")
            if given != int(given):
                raise python_rows.RowError(f"'start' is {given}, not a whole number")
            place = int(given)
        if place < 0 or not context.startswith(answer, place):
            raise python_rows.RowError(f"the answer '{answer[:40]}' is not in the text")
        return [question, context, [[answer, place]], ""]


def stored(value: Any) -> SpanQuestion:
    """The question for a JSON value as which it was written."""
    question, context, answers, name = value
    return SpanQuestion(question, context, tuple((text, start) for text, start in answers), name)


class SpanTraining(TextTrainingSettings):
    """As all, chosen by F1."""

    choose_by: Literal["loss", "exact_match", "f1"] = "f1"


class SpanHead(HeadSettings):
    """Finds the answer in a text."""

    task: Literal["answer-spans"] = "answer-spans"
    data: SpanData
    overlap: int = Field(64, ge=0)
    longest_answer: int = Field(30, ge=1)

    def figures(self) -> tuple[str, ...]:
        return choices(SpanTraining)

    def check_fit(self, recipe: EncoderRecipe, name: str) -> None:
        """Every encoder with states of tokens fits; the head is built only for these."""


class SpanRecipe(EncoderRecipe):
    """The first and the last token of the answer to a question, in a text."""

    task: Literal["answer-spans"] = "answer-spans"
    data: SpanData
    overlap: int = Field(64, ge=0)
    """Least number of tokens that two neighbouring windows over a long text share."""
    longest_answer: int = Field(30, ge=1)
    """Maximum tokens of an answer that is given."""
    training: SpanTraining = SpanTraining()

    @model_validator(mode="before")
    @classmethod
    def _rows_fit_the_default_model(cls, given: Any) -> Any:
        if isinstance(given, dict) and "model" not in given:
            return {**given, "model": BertSettings.model_validate({"size": "tiny"})}
        return given

    def heads(self) -> Mapping[str, Any]:
        return {
            "answer-spans": SpanHead(
                data=self.data, overlap=self.overlap, longest_answer=self.longest_answer
            )
        }
