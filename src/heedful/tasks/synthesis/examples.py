"""Texts with recordings of them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heedful.basics.limits import MOST_POSITIONS
from heedful.data.readers.sounds import MOST_SECONDS, read_clips
from heedful.data.sound_features import SoundFeatures
from heedful.tasks.column_spec import ExampleFiles
from heedful.tasks.sound_input import Heard

MOST_CHARACTERS = 1 << 20
"""Of a text."""


class Said(BaseModel):
    """A text to speak."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MOST_CHARACTERS, description="Any number of sentences.")]


class Recording(Heard):
    """A text with a recording of it."""

    text: str


class SpeechFeatures(SoundFeatures):
    """The features that are predicted: log-mel bands, from which a sound can be made."""

    kind: Literal["log-mel"] = "log-mel"
    window: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Seconds of a window; at least two steps."""
    step: Annotated[float, Field(gt=0, le=1)] = 0.0125
    """Seconds from one frame to the next."""
    deltas: Literal[0] = 0
    normalize: Literal["none"] = "none"

    @model_validator(mode="after")
    def _overlap(self) -> "SpeechFeatures":
        _, hop, width = self.sizes
        if width < 2 * hop:
            raise ValueError(
                f"window = {self.window:g} must be at least two steps of {self.step:g} seconds, so "
                "that a sound can be made from the features"
            )
        return self


class SpeechFiles(ExampleFiles):
    """Tables with the path of a sound and its text in each row."""

    example = Recording
    sound: str = "path"
    """Column of the path."""
    text: str = "text"
    """Column of the text."""
    sounds: str = ""
    """Folder that the paths are relative to; by default, the table's."""
    features: SpeechFeatures = SpeechFeatures()
    floor: float = Field(1e-4, gt=0)
    """The least energy of a band; what is quieter counts as silence."""
    longest: float = Field(15.0, gt=0, le=MOST_SECONDS)
    """Seconds. Longer recordings are not trained on; no sentence is spoken longer."""
    lower_case: bool = True
    """Whether texts are read in lower case."""
    language: str = "en"
    """Code of the language (ISO 639), whose rules find the ends of sentences."""
    minimum_count: int = Field(1, ge=1)
    """How often a character must occur in the training texts to be in the vocabulary."""
    vocabulary_size: int = Field(1_000, ge=10, le=MOST_POSITIONS)
    """Most characters of the vocabulary."""

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Recording]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.sounds.read_clips`."""
        for path in files:
            clips = read_clips(
                path, sound=self.sound, text=self.text, folder=self.sounds, encoding=encoding
            )
            for clip in clips:
                yield Recording(sound=clip.uri, text=clip.text).named(clip.where)
