"""The recipe of models that answer in a dialogue."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from heedful.basics.json_models import first_problem
from heedful.data.python_rows import RowError, are_rows, read_rows, values
from heedful.data.readers.dialogues import Dialogue, read_dialogues
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe, TrainingSettings

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


class DialogueData(DataSettings):
    """The files of dialogues: JSON lines, or plain text."""

    train: list[str] = Field(min_length=1)
    """Files of dialogues."""
    validation: list[str] = Field(default_factory=list)
    test: list[str] = Field(default_factory=list)
    speaker: str | None = None
    """The speaker whose turns the model learns; by default, who speaks second."""

    @model_validator(mode="after")
    def _has_no_sides(self) -> Self:
        usual = {name: field.get_default() for name, field in DataSettings.model_fields.items()}
        for name in _OF_PAIRS:
            if getattr(self, name) != usual[name]:
                raise ValueError(f"data.{name} is for pairs of texts; leave it out for dialogues")
        return self

    def read(self, files: Sequence[str]) -> Iterator[Dialogue]:
        """The dialogues of files.

        Raises:
            UserError: a file is missing or broken.
        """
        if are_rows(files):
            return (Dialogue.model_validate(row) for row in read_rows(files))
        return read_dialogues(files, self.encoding)

    def example_of(self, row: Any) -> Any:
        """The dialogue of a row, whose column is ``turns``."""
        (turns,) = values(row, ["turns"])
        try:
            return Dialogue.model_validate({"turns": turns}).to_json()
        except ValidationError as error:
            raise RowError(first_problem(error, Dialogue)) from error


class DialogueTraining(TrainingSettings):
    """How the model is trained."""

    choose_by: Literal["loss", "bleu", "chrf"] = "loss"


class DialogueRecipe(PairRecipe):
    """All settings of a run that answers in dialogues."""

    task: Literal["dialogue"] = "dialogue"
    data: DialogueData
    training: DialogueTraining = DialogueTraining()

    @model_validator(mode="after")
    def _one_language(self) -> Self:
        if not self.tokeniser.joint:
            raise ValueError("a dialogue has one language: set tokeniser.joint = true")
        return self
