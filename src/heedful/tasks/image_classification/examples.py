"""Images with and without labels."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from heedful.data.readers.images import Colours, Form, encoded, read_images
from heedful.inference.media import MOST_PIXELS
from heedful.tasks.column_spec import ExampleFiles

MOST_CHARACTERS = 1 << 25
"""Of the data URI of an image."""
Side = Annotated[int, Field(ge=1, le=MOST_PIXELS)]


class Seen(BaseModel):
    """An image."""

    model_config = ConfigDict(extra="forbid")

    image: Annotated[
        str,
        Field(
            max_length=MOST_CHARACTERS,
            description="A data URI: data:image/png;base64, or data:image/jpeg;base64, and so on.",
            json_schema_extra={"contentMediaType": "image/*"},
        ),
    ]


class Named(Seen):
    """An image with its label."""

    label: Annotated[str, Field(min_length=1)]


class ImageFiles(ExampleFiles):
    """Folders with a folder for each label, tables, or IDX files."""

    example = Named
    size: tuple[Side, Side] = (28, 28)
    """Rows and columns of all images."""
    colours: Colours = "grey"
    image: str = "image"
    """Column with the path of an image, in a table."""
    label: str = "label"
    """Column of the label, in a table."""

    @property
    def form(self) -> Form:
        """The form of all images."""
        return Form(*self.size, self.colours)

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Named]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.images.read_images`."""
        names = {"image": self.image, "label": self.label}
        for path in files:
            for found in read_images(path, self.form, encoding=encoding, **names):
                yield Named(image=encoded(found.pixels), label=found.label)
