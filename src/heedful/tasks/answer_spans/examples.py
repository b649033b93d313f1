"""Questions about texts, as users give them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class AskedOfText(BaseModel):
    """A question and the text that is searched for its answer."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[str, Field(min_length=1)]
    context: Annotated[str, Field(min_length=1, description="The text with the answer.")]
