"""Sounds with their texts."""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from heedful.basics.limits import MOST_POSITIONS
from heedful.data.readers.sounds import MOST_SECONDS, read_clips
from heedful.data.sound_features import SoundFeatures
from heedful.tasks.column_spec import ExampleFiles
from heedful.tasks.sound_input import Heard


class Spoken(Heard):
    """A sound with what is said in it."""

    text: str


class SpokenFiles(ExampleFiles):
    """Tables with the path of a sound and its text in each row."""

    example = Spoken
    sound: str = "path"
    """Column of the path."""
    text: str = "text"
    """Column of the text."""
    sounds: str = ""
    """Folder that the paths are relative to; by default, the table's."""
    features: SoundFeatures = SoundFeatures()
    longest: float = Field(30.0, gt=0, le=MOST_SECONDS)
    """Seconds. Longer sounds are not trained on, and are transcribed in parts."""
    trim: float | None = Field(None, ge=0, le=10)
    """Seconds of silence that stay at both ends of a sound; by default, all of it."""
    units: Literal["characters", "words"] = "characters"
    """What is predicted one after the other."""
    lower_case: bool = True
    """Whether texts are read and written in lower case."""
    minimum_count: int = Field(1, ge=1)
    """How often a character or word must occur in the training texts to be in the vocabulary."""
    vocabulary_size: int = Field(20_000, ge=10, le=MOST_POSITIONS)
    """Most characters or words of the vocabulary."""

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Spoken]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.sounds.read_clips`."""
        for path in files:
            clips = read_clips(
                path, sound=self.sound, text=self.text, folder=self.sounds, encoding=encoding
            )
            for clip in clips:
                yield Spoken(sound=clip.uri, text=clip.text).named(clip.where)
