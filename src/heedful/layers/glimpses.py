"""Reading a part of an image at a chosen place.

Shapes: B images, H rows, W columns, C channels, N rows and columns of a glimpse, S scales.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.watching import Watchable


class Retina(Watchable):
    """Square windows around a place, each twice as wide as the one before, all with N × N values.

    The values of a window are means of its pixels; pixels beyond the image are 0. Only the pixels
    of the windows are read, so that the cost does not depend on the size of the image, unless the
    :meth:`sums` of a small image are cheaper. Watched, its weights are those of the pixels in the
    mean of a window, a head for each scale.

    Args:
        size: N.
        scales: number of windows S.

    Source: Mnih, Heess, Graves, Kavukcuoglu 2014, "Recurrent Models of Visual Attention", section
    3.1.

    Example:
        >>> images = torch.arange(16.0).view(1, 4, 4, 1)
        >>> Retina(2, 2)(images, torch.zeros(1, 2)).flatten(1)
        tensor([[ 5.0000,  6.0000,  9.0000, 10.0000,  2.5000,  4.5000, 10.5000, 12.5000]])
    """

    def __init__(self, size: int, scales: int) -> None:
        super().__init__()
        self.size, self.scales = size, scales

    def sums(self, images: Tensor, glimpses: int) -> Tensor | None:
        """Of each pixel, the sum of all pixels above it and to its left (an integral image).

        A mean of any number of pixels is then computed from four sums (Crow 1984, "Summed-area
        tables for texture mapping").

        Args:
            images: ``[B, H, W, C]``.
            glimpses: how many glimpses will be read.

        Returns:
            ``[B, H + 1, W + 1, C]``, exact, or None if the glimpses have fewer pixels than the
            image, if pixels are no integers from 0 to 255, or if sums may exceed int32.
        """
        pixels = images.shape[1] * images.shape[2]
        read = glimpses * self.size**2 * sum(4**scale for scale in range(self.scales))
        if images.dtype != torch.uint8 or pixels > read or pixels * 255 >= 2**31:
            return None
        total = images.cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
        return F.pad(total, (0, 0, 1, 0, 1, 0))

    def forward(self, images: Tensor, places: Tensor, sums: Tensor | None = None) -> Tensor:
        """Glimpses ``[B, S, N, N, C]``, in the type of ``places``.

        Args:
            images: ``[B, H, W, C]``.
            places: rows and columns from −1 (the first one) to 1 (the last one), ``[B, 2]``.
            sums: the result of :meth:`sums` for the images, with which the glimpses are the same.
        """
        shape = images.shape[1:3]
        if self.watched_at_all:
            boxes = [self._window(places, shape, 2**scale) for scale in range(self.scales)]
            self.show_whole(_means(boxes, shape, places.dtype))
        if sums is not None:
            return self._of_sums(sums, places)
        found = []
        for scale in range(self.scales):
            factor = 2**scale
            rows, columns = self._window(places, shape, factor)
            window = read_window(images, rows, columns).to(places.dtype).permute(0, 3, 1, 2)
            found.append(F.avg_pool2d(window, factor).permute(0, 2, 3, 1))
        return torch.stack(found, 1)

    def _of_sums(self, sums: Tensor, places: Tensor) -> Tensor:
        height, width = sums.shape[1] - 1, sums.shape[2] - 1
        factors = 2 ** torch.arange(self.scales, device=places.device)
        edges = factors[:, None] * torch.arange(self.size + 1, device=places.device)  # [S, N + 1]
        first = self._first(places, (height, width), self.size * factors)  # [B, S, 2]
        y = (first[:, :, :1] + edges).clamp(0, height)[:, :, :, None]
        x = (first[:, :, 1:] + edges).clamp(0, width)[:, :, None]
        which = torch.arange(len(sums), device=sums.device)[:, None, None, None]
        corners = sums[which, y, x]
        strips = corners[:, :, 1:] - corners[:, :, :-1]
        totals = strips[:, :, :, 1:] - strips[:, :, :, :-1]
        return totals.to(places.dtype) / (factors**2)[:, None, None, None]

    def _window(self, places: Tensor, shape: Sequence[int], factor: int) -> tuple[Tensor, Tensor]:
        """The rows and columns of a window ``[B, N · factor]``, some of them beyond the image."""
        along = torch.arange(self.size * factor, device=places.device)
        widths = torch.tensor([self.size * factor], device=places.device)
        first = self._first(places, shape, widths)[:, 0]
        return first[:, :1] + along, first[:, 1:] + along

    def _first(self, places: Tensor, shape: Sequence[int], widths: Tensor) -> Tensor:
        """The first row and column ``[B, S, 2]`` of windows with ``widths [S]``."""
        middle = (places + 1) / 2 * places.new_tensor(list(shape))
        return (middle.unsqueeze(1) - widths[:, None] / 2).round().long()


def read_window(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels ``[B, R, T, C]`` at ``rows [B, R]`` and ``columns [B, T]``; 0 beyond the image."""
    height, width = images.shape[1:3]
    inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    which = torch.arange(len(images), device=images.device)[:, None, None]
    y, x = rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None]
    both = inside[0][:, :, None] & inside[1][:, None]
    return images[which, y, x] * both.unsqueeze(-1)


def _means(
    boxes: Sequence[tuple[Tensor, Tensor]], shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """The weight of each pixel in the mean of a window, ``[B, S, 1, H · W]``."""
    found = []
    for rows, columns in boxes:
        marks = []
        for places, size in zip((rows, columns), shape, strict=True):
            inside = (places >= 0) & (places < size)
            own = torch.zeros(len(places), size, dtype=dtype, device=places.device)
            marks.append(own.scatter_add_(1, places.clamp(0, size - 1), inside.to(dtype)))
        area = rows.shape[1] * columns.shape[1]
        found.append((marks[0].unsqueeze(2) * marks[1].unsqueeze(1)).flatten(1) / area)
    return torch.stack(found, 1).unsqueeze(2)


class GaussianRead(Watchable):
    """A grid of N × N Gaussian filters over an image, which passes gradients to its parameters;
    i = 0 … N − 1:

        γ F_Y x F_Xᵀ     F_X[i, a] ∝ exp(−(a − μ_i)² / 2σ²)     μ_i = g_X + (i − N/2 + ½) δ

    Watched, its weights are the products of the mean filters of rows and columns.

    Args:
        size: N.

    Source: Gregor, Danihelka, Graves, Rezende, Wierstra 2015, "DRAW: A Recurrent Neural Network For
    Image Generation", section 3.2, equations 19 to 27.

    Example:
        >>> GaussianRead(3)(torch.ones(2, 8, 6, 1), torch.zeros(2, 5)).shape
        torch.Size([2, 1, 3, 3, 1])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, images: Tensor, parameters: Tensor) -> Tensor:
        """Glimpses ``[B, 1, N, N, C]``, in the type of the parameters.

        Args:
            images: ``[B, H, W, C]``.
            parameters: g̃_Y, g̃_X, log σ², log δ̃ and log γ, ``[B, 5]``.
        """
        height, width = images.shape[1:3]
        centre_y, centre_x, variance, stride, intensity = parameters.unbind(1)
        spread = variance.exp().clamp(min=1e-8)
        step = (max(height, width) - 1) / max(1, self.size - 1) * stride.exp()
        by_row = self._filters((height + 1) / 2 * (centre_y + 1) - 1, step, spread, height)
        by_column = self._filters((width + 1) / 2 * (centre_x + 1) - 1, step, spread, width)
        if self.watched_at_all:
            own = by_row.mean(1).unsqueeze(2) * by_column.mean(1).unsqueeze(1)
            self.show_whole(own.flatten(1)[:, None, None])
        values = images.to(parameters.dtype)
        read = torch.einsum("bnh,bhwc,bmw->bnmc", by_row, values, by_column)
        return (intensity.exp()[:, None, None, None] * read).unsqueeze(1)

    def _filters(self, centre: Tensor, step: Tensor, spread: Tensor, size: int) -> Tensor:
        """``[B, N, size]``; each filter adds up to 1."""
        numbers = torch.arange(self.size, device=centre.device) - self.size / 2 + 0.5
        means = centre[:, None] + numbers * step[:, None]
        places = torch.arange(size, device=centre.device)
        distances = (places - means.unsqueeze(2)).square()
        return torch.softmax(-distances / (2 * spread[:, None, None]), 2)
