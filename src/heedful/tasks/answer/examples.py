"""Questions about stories, with and without answers."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heedful.basics.json_models import read_object
from heedful.basics.limits import MOST_FACTS
from heedful.tasks.column_spec import ExampleFiles

Text = Annotated[str, Field(min_length=1)]


class Asked(BaseModel):
    """A story and a question about it."""

    model_config = ConfigDict(extra="forbid")

    story: Annotated[
        list[Text],
        Field(min_length=1, max_length=MOST_FACTS, description="The facts, the oldest one first."),
    ]
    question: Text


class Answered(Asked):
    """A question with its answer."""

    answer: Text
    supports: list[Annotated[int, Field(ge=1, strict=True)]] = []
    """The numbers of the facts that the answer follows from, in the order in which they are needed;
    the first fact of the story is 1."""

    @model_validator(mode="after")
    def _supports_exist(self) -> Self:
        for one in self.supports:
            if one > len(self.story):
                raise ValueError(
                    f"the supporting fact {one} does not exist; the story has {len(self.story)}"
                )
        return self


class StoryFiles(ExampleFiles):
    """Files of JSON lines, or of the bAbI tasks."""

    example = Answered
    longer: Literal["refuse", "drop-oldest"] = "refuse"
    """What to do with a story of more facts than ``model.memory``."""

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Answered]:
        """The questions of files; formats and errors are those of
        :func:`~heedful.data.readers.stories.read_stories`."""
        from heedful.data.readers.stories import read_stories

        for path in files:
            for where, found in read_stories(path, encoding):
                yield read_object(Answered, found, where)
