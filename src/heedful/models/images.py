"""The base class of models that classify images.

Shapes: B images, H rows, W columns, C channels (1 grey, 3 colours), N classes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ImageShape(NamedTuple):
    """The size of all images of a run."""

    rows: int
    columns: int
    channels: int
    frames: int = 1
    """Images of a clip, which are below each other; 1 for single images."""


class ImageLoss(NamedTuple):
    """The loss of a model on some images."""

    total: Tensor
    """To differentiate: a sum over the images."""
    logits: Tensor
    """``[B, N]``"""
    parts: Mapping[str, Tensor]
    """Named sums over the images, detached, among them ``loss``."""


class ImageModel(nn.Module):
    """Base of models that classify images; a subclass implements :meth:`forward`."""

    grids: Mapping[str, tuple[int, int]] = {}
    """The axes of its attention that are images: name → rows and columns of cells."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[B, N]`` of ``images [B, H, W, C]`` of bytes."""
        raise NotImplementedError

    def single_pass(self, images: Tensor) -> Tensor:
        """Logits ``[B, N]`` of one pass, for traces, if :meth:`forward` averages several."""
        logits: Tensor = self(images)
        return logits

    def losses(self, images: Tensor, labels: Tensor, smoothing: float) -> ImageLoss:
        """The training loss: by default, the cross-entropy of the labels.

        Args:
            images: bytes ``[B, H, W, C]``.
            labels: integers ``[B]``.
            smoothing: ε in [0, 1) of the labels.
        """
        logits = self(images).float()
        total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
        return ImageLoss(total, logits, {"loss": total.detach()})

    def attention_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Module → the axes of its queries and keys; those of :attr:`grids` are images."""
        return {}


def centred(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bytes as numbers from −1 to 1.

    Example:
        >>> centred(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([-1.,  1.])
    """
    return images.to(dtype) / 127.5 - 1


def check_patches(shape: ImageShape, size: int) -> tuple[int, int]:
    """Rows and columns of square patches.

    Raises:
        ValueError: the images cannot be cut into such patches.
    """
    if shape.rows % size or shape.columns % size:
        raise ValueError(
            f"images of {shape.rows} × {shape.columns} cannot be cut into patches of {size} × "
            f"{size}; choose a patch_size that divides both, or another data.size"
        )
    return shape.rows // size, shape.columns // size


def in_patches(images: Tensor, size: int) -> Tensor:
    """The values of square patches, row by row, ``[B, H W / size², size² C]``.

    Args:
        images: ``[B, H, W, C]``; H and W are multiples of ``size``.
        size: the side of a patch.

    Example:
        >>> in_patches(torch.arange(8).reshape(1, 2, 4, 1), 2)
        tensor([[[0, 1, 4, 5],
                 [2, 3, 6, 7]]])
    """
    rows, columns, channels = images.shape[1:]
    cut = images.reshape(-1, rows // size, size, columns // size, size, channels)
    return cut.permute(0, 1, 3, 2, 4, 5).reshape(len(images), -1, size * size * channels)
