"""Images of models on paper, for all tasks with images."""

from typing import TYPE_CHECKING

import torch

from heedful.models import ImageShape

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.data.readers.images import Form


def shape_of(form: "Form") -> ImageShape:
    """The shape of images of a form."""
    return ImageShape(form.rows, form.columns, form.channels, form.frames)


def noun_of(form: "Form") -> str:
    """What an image of a form is called."""
    return "image" if form.frames == 1 else "clip"


def described(form: "Form") -> str:
    """An image of a form, as text.

    Example:
        >>> from heedful.data.readers.images import Form
        >>> described(Form(28, 28, "grey")), described(Form(48, 64, "rgb", 16))
        ('image of 28 × 28 pixels in grey', 'clip of 16 frames of 48 × 64 pixels in colour')
    """
    frames = "" if form.frames == 1 else f"{form.frames} frames of "
    colours = "grey" if form.channels == 1 else "colour"
    return f"{noun_of(form)} of {frames}{form.rows} × {form.columns} pixels in {colours}"


def images_of_batch(form: "Form", batch_tokens: int) -> int:
    """Images of a training batch, whose values count towards ``batch_tokens``, with one more for
    each image.

    Example:
        >>> from heedful.data.readers.images import Form
        >>> [images_of_batch(Form(28, 28, "grey"), most) for most in (1, 100_479, 100_480)]
        [1, 127, 128]
    """
    values = form.frames * form.rows * form.columns * form.channels
    return max(1, batch_tokens // (values + 1))


def black_images(rows: int, form: "Form") -> "Tensor":
    """Bytes ``[rows, H, W, C]`` on the default device; frames of clips are below each other."""
    size = (rows, form.frames * form.rows, form.columns, form.channels)
    return torch.zeros(size, dtype=torch.uint8)
