"""Images with labels."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from heedful.data.readers.images import read_images
from heedful.tasks.image_input import Seen, SizedImages


class Named(Seen):
    """An image with its label."""

    label: Annotated[str, Field(min_length=1)]


class ImageFiles(SizedImages):
    """Folders with a folder for each label, tables, or IDX files."""

    example = Named
    label: str = "label"
    """Column of the label, in a table."""

    def read(self, files: Sequence[str], encoding: str | None = None) -> Iterator[Named]:
        """The examples of files; formats and errors are those of
        :func:`~heedful.data.readers.images.read_images`."""
        names = {"image": self.image, "label": self.label}
        for path in files:
            for found in read_images(path, encoding=encoding, **names):
                yield Named(image=found.uri, label=found.label).named(found.where)
