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

    The vector of a frame is the mean of the features of its cells. The network reads a frame with
    its two neighbours as further channels, so that its first convolution is three-dimensional (Yao
    et al. 2015, "Describing Videos by Exploiting Temporal Structure", section 3.1); beyond the ends
    of the clip, a frame is its own neighbour.

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
        channels = shape.channels * (3 if shape.frames > 1 else 1)
        self.network = None if patch_size else encoder.build_network(channels)
        self.gated = encoder.channel_attention != "none" and shape.frames == 1
        sizes = (shape.rows, shape.columns)
        if self.network is None:
            if shape.frames > 1:
                raise ValueError("the frames of a clip are read by a network: set patch_size = 0")
            grid, self.width = check_patches(shape, patch_size), patch_size**2 * shape.channels
        else:
            grid, self.width = self.network.grid(*sizes), self.network.dim
        self.count, self.axis, self.grids = grid[0] * grid[1], "image", {"image": grid}
        if shape.frames > 1:
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
        if self.axis == FRAMES:
            values = _with_neighbours(values, self.shape.frames)
        maps = self.network(values.permute(0, 3, 1, 2))
        found: Tensor = maps.flatten(2).transpose(1, 2)
        return found.mean(1).reshape(rows, self.shape.frames, -1) if self.axis == FRAMES else found

    def gates(self, name: str) -> dict[str, tuple[str, str]]:
        """Module → axes of the attention in the network.

        Args:
            name: the name of these features in the model.
        """
        if self.network is None or not self.gated:
            return {}
        return self.network.gates((self.shape.rows, self.shape.columns), f"{name}.network")


def _with_neighbours(values: Tensor, frames: int) -> Tensor:
    """``[A · F, H, W, C] -> [A · F, H, W, 3 · C]``: the frame before, the frame, the one after."""
    clips = values.unflatten(0, (-1, frames))
    before = torch.cat([clips[:, :1], clips[:, :-1]], 1)
    after = torch.cat([clips[:, 1:], clips[:, -1:]], 1)
    return torch.cat([before, clips, after], -1).flatten(0, 1)
