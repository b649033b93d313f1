"""Images of batches: as one tensor, and changed at random for training.

Shapes: B images, H rows, W columns, C channels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.column_batch import ColumnBatch


def images_of(batch: ColumnBatch) -> Tensor:
    """The column "image" ``[B, H, W, C]``, whose images have one size."""
    column = batch["image"]
    assert column.shapes is not None
    return column.values.reshape(len(column.shapes), *column.shapes[0].tolist())


def varied(images: Tensor, shift: int, flip: bool) -> Tensor:
    """Images ``[B, H, W, C]`` moved and mirrored at random; what moves in is 0.

    Args:
        images: the images.
        shift: the largest distance in pixels, in both directions.
        flip: whether half of the images are mirrored from left to right.
    """
    if flip:
        mirrored = torch.rand(len(images)) < 0.5
        images = torch.where(mirrored.view(-1, 1, 1, 1).to(images.device), images.flip(2), images)
    if not shift:
        return images
    rows, columns = images.shape[1:3]
    wide = F.pad(images, [0, 0, shift, shift, shift, shift])
    starts = torch.randint(2 * shift + 1, (2, len(images), 1)).to(images.device)
    down = (starts[0] + torch.arange(rows, device=images.device))[:, :, None]
    right = (starts[1] + torch.arange(columns, device=images.device))[:, None]
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return wide[which, down, right]
