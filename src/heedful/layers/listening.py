"""Encoders of sounds that shorten them in time: pyramidal recurrent layers, convolutions.

Shapes: B sounds, T frames, F features, S positions, H width of a direction.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.kernels.recurrent_cell import Cell
from heedful.layers.dropout import Dropout
from heedful.layers.recurrent import Hidden, RecurrentEncoder


class Subsampling(nn.Module):
    """Convolutions of 3 × 3 over time and features, each of which halves both; then a linear map.

    The frames after the end of a sound are 0 before each convolution, so that a sound has the same
    positions alone and beside longer ones.

    Args:
        features: F.
        channels: of each convolution.
        width: of the output D.
        count: number of convolutions.

    Source: Dong, Xu, Xu 2018, "Speech-Transformer: A No-Recurrence Sequence-to-Sequence Model for
    Speech Recognition", section 3.2.

    Example:
        >>> layer = Subsampling(40, channels=8, width=16, count=2)
        >>> found, lengths = layer(torch.zeros(2, 21, 40), torch.tensor([21, 9]))
        >>> found.shape, lengths
        (torch.Size([2, 6, 16]), tensor([6, 3]))
    """

    def __init__(self, features: int, *, channels: int, width: int, count: int) -> None:
        super().__init__()
        sizes = [1, *[channels] * count]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1)
            for before, after in itertools.pairwise(sizes)
        )
        for _ in range(count):
            features = halved(features)
        self.project = nn.Linear(channels * features, width)

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors ``[B, S, D]`` and their number for each sound, of ``frames [B, T, F]``."""
        maps = frames.unsqueeze(1)  # [B, 1, T, F]
        for convolution in self.convolutions:
            maps = torch.relu(convolution(without_padding(maps, lengths, 2)))
            lengths = (lengths + 1) // 2
        vectors: Tensor = self.project(maps.transpose(1, 2).flatten(2))
        return vectors, lengths


def halved(size: int) -> int:
    """Half of a size, rounded up."""
    return (size + 1) // 2


def without_padding(tensor: Tensor, lengths: Tensor, dim: int) -> Tensor:
    """The tensor with 0 from ``lengths [B]`` on in a dimension; the first one is B."""
    places = torch.arange(tensor.shape[dim], device=tensor.device)
    there = places < lengths[:, None]  # [B, S]
    shape = [len(lengths), *[1] * (tensor.ndim - 1)]
    shape[dim] = tensor.shape[dim]
    return tensor * there.view(shape).to(tensor.dtype)


class PyramidalEncoder(nn.Module):
    """Recurrent layers in both directions; the upper ones read two positions of the layer below
    as one, and so halve the time:

        h_i^j = BLSTM(h_{i−1}^j, [h_{2i}^{j−1}, h_{2i+1}^{j−1}])

    A sound with an odd number of positions is continued by a position of 0.

    Args:
        cell: of all layers.
        width: of the input.
        hidden: H.
        layers: number of layers.
        pyramid: how many of them, the upper ones, halve the time; fewer than ``layers``.
        dropout: between layers.

    Source: Chan et al. 2016, "Listen, Attend and Spell", section 3.1, equation 5.

    Example:
        >>> encoder = PyramidalEncoder("lstm", 40, 8, layers=3, pyramid=2, dropout=0.0)
        >>> found, lengths, _ = encoder(torch.zeros(2, 21, 40), torch.tensor([21, 9]))
        >>> found.shape, lengths
        (torch.Size([2, 6, 16]), tensor([6, 3]))
    """

    def __init__(
        self, cell: Cell, width: int, hidden: int, *, layers: int, pyramid: int, dropout: float
    ) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.drop = Dropout(dropout)
        first = RecurrentEncoder(
            cell, width, hidden, layers - pyramid, bidirectional=True, dropout=dropout
        )
        upper = [
            RecurrentEncoder(cell, 4 * hidden, hidden, 1, bidirectional=True, dropout=0.0)
            for _ in range(pyramid)
        ]
        self.networks = nn.ModuleList([first, *upper])

    def forward(self, vectors: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Hidden]:
        """Annotations ``[B, S, 2 · H]``, their number for each sound, and the top layer's state.

        Args:
            vectors: ``[B, T, width]``.
            lengths: positions of each sound ``[B]``, each at least 1.
        """
        final: Hidden = ()
        for place, network in enumerate(self.networks):
            if place:
                vectors = F.pad(self.drop(vectors), (0, 0, 0, vectors.shape[1] % 2))
                vectors = vectors.unflatten(1, (-1, 2)).flatten(2)
                lengths = (lengths + 1) // 2
            vectors, final = network(vectors, lengths)
        return vectors, lengths, final[-1:]
