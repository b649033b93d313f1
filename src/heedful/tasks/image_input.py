"""Inputs that are images, for all tasks with images."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from pydantic import ConfigDict, Field, PrivateAttr

from heedful.basics.errors import UserError
from heedful.basics.json_models import NamedInput
from heedful.data.readers.images import (
    Colours,
    Form,
    as_uri,
    decoded,
    encoded,
    image_bytes,
)
from heedful.inference.media import MOST_PIXELS
from heedful.tasks.column_spec import ExampleFiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_CHARACTERS = 1 << 25
"""Of the data URI of an image."""
_AT_ONCE = 64
Side = Annotated[int, Field(ge=1, le=MOST_PIXELS)]

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE…", help="Images; default: their paths, one per line, from standard input."
    ),
]


class Seen(NamedInput):
    """An image."""

    model_config = ConfigDict(extra="forbid")
    _where: str = PrivateAttr("the image")

    image: Annotated[
        str,
        Field(
            max_length=MOST_CHARACTERS,
            description="A data URI: data:image/png;base64, or data:image/jpeg;base64, and so on.",
            json_schema_extra={"contentMediaType": "image/*"},
        ),
    ]

    def pixels(self, form: Sequence[Any]) -> "NDArray[np.uint8]":
        """The image in a form (the fields of :class:`Form`), ``[rows, columns, channels]``.

        Raises:
            UserError: the image cannot be read.
        """
        return decoded(image_bytes(self.image, self._where), Form(*form), self._where)

    def small(self, form: Sequence[Any]) -> Self:
        """The same with its image in a form, as a run keeps it."""
        return self.model_copy(update={"image": encoded(self.pixels(form), Form(*form).frames)})


class SizedImages(ExampleFiles):
    """Files with images, which are all brought into one form."""

    size: tuple[Side, Side] = (28, 28)
    """Rows and columns of all images."""
    colours: Colours = "grey"
    image: str = "image"
    """Column with the path of an image, in a table."""

    @property
    def form(self) -> Form:
        """The form of all images."""
        return Form(*self.size, self.colours)


def seen_in(path: str) -> Seen:
    """The image in a file.

    Raises:
        UserError: the file cannot be read.
    """
    return Seen(image=as_uri(path)).named(path)


def read_image_argument(text: str) -> str:
    """A JSON object as it is; the path of a file as an object with its contents."""
    return text if text.lstrip().startswith("{") else seen_in(text).model_dump_json()


def paths_given(files: list[str] | None, *, traced: bool) -> Iterable[str]:
    """The files of a command line, or the lines of standard input.

    Raises:
        UserError: a trace is asked for, and there is not exactly one.
    """
    from heedful.inference.files import line_windows

    paths: Iterable[str] = files or (
        line.strip() for window in line_windows("-") for line in window
    )
    if traced:
        paths = list(paths)
        if len(paths) != 1:
            raise UserError(f"--trace needs one image; {len(paths):,} are given")
    return paths


def predicted_lines(
    predict: Callable[..., Sequence[Any]], paths: Iterable[str], as_json: bool
) -> Iterator[list[str]]:
    """One line for each path, in the same order; an empty one for an empty path.

    Args:
        predict: :meth:`heedful.tasks.column_predictor.ColumnPredictor.predict`.
        paths: the paths of the images.
        as_json: whether to write JSON objects.
    """
    left = enumerate(paths)
    while some := list(islice(left, _AT_ONCE)):
        keys = [number for number, path in some if path]
        found = iter(predict([seen_in(path) for _, path in some if path], keys=keys))
        yield [_line(path, next(found), as_json) if path else "" for _, path in some]


def _line(path: str, found: Any, as_json: bool) -> str:
    if not as_json:
        return str(found)
    return json.dumps({"image": path, **found.to_json()}, ensure_ascii=False)
