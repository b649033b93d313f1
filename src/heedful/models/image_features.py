"""What a captioner attends to: the cells of an image, or the frames of a clip.

Shapes: A images or clips, F frames, H rows, W columns, C channels, K cells or frames, D width.
"""

import torch
from torch import Tensor, nn

from heedful.models.images import ImageShape, centred, check_patches, in_patches
from heedful.models.residual_settings import ResidualSettings

FRAMES = "frames"
"""The axis of the frames of a clip."""


class ImageFeatures(nn.Module):
    """Features of the cells of an image by a residual network, or patches of pixels; or a vector
    for each frame of a clip.

    The vector of a frame is a linear function of the features of all its cells, and of its two
    neighbours: a convolution of width 3 over the frames stands for the three-dimensional
    convolutions of Yao et al. 2015, "Describing Videos by Exploiting Temporal Structure", section
    3.1.

    Args:
        encoder: sizes and options of the residual network.
        shape: of all images.
        patch_size: side of the patches of pixels; 0 for the residual network.

    Raises:
        ValueError: the images cannot be cut into such patches, or patches are asked for of clips.

    Example:
        >>> shape = ImageShape(32, 32, 3, frames=4)
        >>> features = ImageFeatures(ResidualSettings(widths=[4, 8], blocks=1), shape)
        >>> clips = torch.zeros(2, 4 * 32, 32, 3, dtype=torch.uint8)
        >>> features(clips, torch.float32).shape, features.axis
        (torch.Size([2, 4, 8]), 'frames')
    """

    def __init__(self, encoder: ResidualSettings, shape: ImageShape, patch_size: int = 0) -> None:
        super().__init__()
        self.shape, self.patch_size = shape, patch_size
        self.network = None if patch_size else encoder.build_network(shape.channels)
        self.gated = encoder.channel_attention != "none" and shape.frames == 1
        self.of_frame: nn.Linear | None = None
        self.around: nn.Conv1d | None = None
        sizes = (shape.rows, shape.columns)
        if self.network is None:
            if shape.frames > 1:
                raise ValueError("the frames of a clip are read by a network: set patch_size = 0")
            grid, self.width = check_patches(shape, patch_size), patch_size**2 * shape.channels
        else:
            grid, self.width = self.network.grid(*sizes), self.network.dim
        self.count, self.axis, self.grids = grid[0] * grid[1], "image", {"image": grid}
        if shape.frames > 1:
            self.of_frame = nn.Linear(self.count * self.width, self.width)
            self.around = nn.Conv1d(self.width, self.width, 3, padding=1)
            self.count, self.axis, self.grids = shape.frames, FRAMES, {}
        elif self.network is not None and self.gated:
            self.grids = {**self.network.grids(sizes), "image": grid}

    def forward(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        """``[A, F · H, W, C] -> [A, K, D]``; the frames of a clip are below each other."""
        rows = len(images)
        images = images.reshape(-1, self.shape.rows, *images.shape[2:])
        values = centred(images, dtype)
        if self.network is None:
            return in_patches(values, self.patch_size)
        maps = self.network(values.permute(0, 3, 1, 2))
        if self.of_frame is None or self.around is None:
            cells: Tensor = maps.flatten(2).transpose(1, 2)
            return cells
        vectors = self.of_frame(maps.flatten(1)).reshape(rows, self.shape.frames, -1)
        read: Tensor = vectors + self.around(vectors.transpose(1, 2)).relu().transpose(1, 2)
        return read

    def gates(self, name: str) -> dict[str, tuple[str, str]]:
        """Module → axes of the attention in the network.

        Args:
            name: the name of these features in the model.
        """
        if self.network is None or not self.gated:
            return {}
        return self.network.gates((self.shape.rows, self.shape.columns), f"{name}.network")
