"""Tasks whose inputs are images."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heedful.tasks.column_spec import ColumnSpec

if TYPE_CHECKING:
    from heedful.models import ImageShape
    from heedful.tasks.image_input import Seen


class ImageSpec(ColumnSpec):
    """Base of tasks with an image as input; ``known["form"]`` is the form of all images."""

    media_fields = frozenset({"image"})
    batch_unit = "values"

    def input_type(self) -> "type[Seen]":
        from heedful.tasks.image_input import Seen

        return Seen

    def read_argument(self, text: str) -> str:
        """A JSON object as it is; the path of a file as an object with its contents."""
        from heedful.tasks.image_input import read_image_argument

        return read_image_argument(text)

    def kept(self, example: Any, known: Mapping[str, Any]) -> Any:
        """An example whose image has the run's size."""
        return example.small(known["form"])

    def shape_of(self, known: Mapping[str, Any]) -> "ImageShape":
        """The shape of all images."""
        from heedful.data.readers.images import Form
        from heedful.models import ImageShape

        form = Form(*known["form"])
        return ImageShape(form.rows, form.columns, form.channels, form.frames)
