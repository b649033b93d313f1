"""Images with captions."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from heedful.basics.limits import MOST_FACTS, MOST_POSITIONS
from heedful.data.readers.images import Colours, Form, read_captioned
from heedful.tasks.image_input import Seen, Side, SizedImages


class Described(Seen):
    """An image with its captions."""

    captions: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


class CaptionFiles(SizedImages):
    """Tables with the path of an image and a caption in each row."""

    example = Described
    size: tuple[Side, Side] = (96, 96)
    """Rows and columns of all images."""
    colours: Colours = "rgb"
    frames: int = Field(1, ge=1, le=MOST_FACTS)
    """Frames of a clip; 1 for single images."""
    caption: str = "caption"
    """Column of the caption."""
    images: str = ""
    """Folder that the paths are relative to; by default, the table's."""
    encoder_weights: str | None = None
    """A safetensors file with the weights of a residual network in torchvision's layout, which
    ``model.encoder`` starts from."""
    lower_case: bool = False
    """Whether captions are read and written in lower case."""
    split: Literal["punctuation", "spaces"] = "punctuation"
    """Whether words are found at white space and around punctuation, or at white space only."""
    minimum_count: int = Field(2, ge=1)
    """How often a word must occur in the training captions to be in the vocabulary."""
    vocabulary_size: int = Field(20_000, ge=10, le=MOST_POSITIONS)
    """Most words of the vocabulary."""

    @property
    def form(self) -> Form:
        return super().form._replace(frames=self.frames)

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Described]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.images.read_captioned`."""
        names = {"image": self.image, "caption": self.caption, "folder": self.images}
        for path in files:
            for found in read_captioned(path, encoding=encoding, **names):
                own = Described(image=found.uri, captions=found.captions)
                yield own.named(found.where)
