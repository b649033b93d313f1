"""The base class of models that describe images.

Shapes: A images, H rows, W columns, C channels, B captions, K cells, T target tokens.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.models.images import ImageShape
from heedful.models.pairs import PairModel


class Scenes(NamedTuple):
    """Images, and which of them each caption describes."""

    images: Tensor
    """Bytes ``[A, H, W, C]``; the frames of clips are below each other."""
    owners: Tensor | None = None
    """The image of each caption, integers ``[B]``; None for one caption each."""

    def of_captions(self, part: Tensor) -> Tensor:
        """``[B, ..]`` from ``part [A, ..]``."""
        return part if self.owners is None else part.index_select(0, self.owners)


class CaptionModel(PairModel):
    """Base of models that describe images; their sources are :class:`Scenes`.

    A search starts with one row per image, and ``owners`` is None.
    """

    grids: Mapping[str, tuple[int, int]] = {}
    """The axes of its attention that are images: name → rows and columns of cells."""
    shape: ImageShape
    """The shape of all images."""

    def states(self, source: Any, target_in: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, given ``target_in [B, T]``."""
        raise NotImplementedError

    def start(self, source: Any) -> Any:
        """The state of decoding before the first step, one row per image."""
        raise NotImplementedError

    def sample(self, rows: int, length: int) -> Any:
        """Grey images, to measure the speed of :meth:`start` and :meth:`step`."""
        high, wide, channels, frames = self.shape
        return Scenes(torch.full((rows, frames * high, wide, channels), 128, dtype=torch.uint8))
