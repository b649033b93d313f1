"""Parts of models that synthesise speech: pre-net, convolutions over time, post-net.

Shapes: B rows, T frames, S steps, M bands, C channels, P width of the pre-net.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from heedful.layers.dropout import Dropout
from heedful.layers.listening import without_padding

_PRIME = 1_000_003


class Prenet(nn.Module):
    """Two ReLU layers with dropout, through which a decoder reads its own last frame.

        x ← drop(relu(W x + b)), twice

    The dropout is a bottleneck: without it, a decoder copies its input and does not learn to
    attend. If ``always``, it is also on in inference, as in the paper. Its masks then depend on a
    seed and on the step, but not on the row, so that a text sounds the same alone and beside
    others.

    Args:
        bands: width of a frame M.
        width: P.
        dropout: share of the values that are set to 0.
        always: whether dropout is on in inference.

    Source: Wang et al. 2017, "Tacotron: Towards End-to-End Speech Synthesis", section 3.2; Shen et
    al. 2018, "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram Predictions",
    section 2.2.

    Example:
        >>> prenet = Prenet(40, 8, dropout=0.5, always=True).eval()
        >>> frames = torch.ones(2, 3, 40)
        >>> torch.equal(prenet(frames, seed=1)[:, 2:], prenet(frames[:, 2:], seed=1, first=2))
        True
    """

    def __init__(self, bands: int, width: int, *, dropout: float, always: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(bands, width), nn.Linear(width, width)])
        self.width, self.share, self.always = width, dropout, always
        self.drop = Dropout(dropout)

    def forward(self, frames: Tensor, *, seed: int, first: int = 0) -> Tensor:
        """``[B, S, P]`` of ``frames [B, S, M]``.

        Args:
            frames: the input of each step.
            seed: of the masks in inference.
            first: the number of the first step.
        """
        found = frames
        masks = self._masks(seed, first, frames.shape[1]) if self._draws else None
        for place, layer in enumerate(self.layers):
            found = torch.relu(layer(found))
            found = self.drop(found) if masks is None else found * masks[place].to(found)
        return found

    @property
    def _draws(self) -> bool:
        return self.always and not self.training and self.share > 0

    def _masks(self, seed: int, first: int, count: int) -> Tensor:
        """``[2, S, P]``: 0 or 1 / (1 − share)."""
        generator = torch.Generator()
        drawn = []
        for step in range(first, first + count):
            generator.manual_seed(seed * _PRIME + step)
            drawn.append(torch.rand(2, self.width, generator=generator))
        return (torch.stack(drawn, 1) >= self.share).float() / (1 - self.share)


class TimeConvolutions(nn.Module):
    """Convolutions over time with an activation and dropout; each has as many outputs as inputs.

        x ← drop(f(norm(K ∗ x)))

    The papers normalize over the batch; here each position is normalized over its channels (Ba et
    al. 2016), so that a row depends neither on its neighbours nor on padding. Positions after the
    end of a row are 0 before each convolution.

    Args:
        sizes: channels of the input and of each convolution.
        width: positions that a filter sees; odd.
        activation: ``relu`` or ``tanh``.
        dropout: after each activation.
        linear_end: whether the last convolution is linear, without normalization and activation.

    Example:
        >>> layer = TimeConvolutions([4, 6, 4], 5, activation="tanh", dropout=0.0)
        >>> layer(torch.zeros(2, 7, 4), torch.tensor([7, 3])).shape
        torch.Size([2, 7, 4])
    """

    def __init__(
        self,
        sizes: list[int],
        width: int,
        *,
        activation: str,
        dropout: float,
        linear_end: bool = False,
    ) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, width, padding=width // 2) for before, after in pairs
        )
        normalized = pairs[:-1] if linear_end else pairs
        self.norms = nn.ModuleList(nn.LayerNorm(after) for _, after in normalized)
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[activation]
        self.drop = Dropout(dropout)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """``[B, T, sizes[-1]]`` of ``vectors [B, T, sizes[0]]``, of which ``lengths [B]`` count."""
        found = vectors
        for place, convolution in enumerate(self.convolutions):
            found = without_padding(found, lengths, 1)
            found = convolution(found.transpose(1, 2)).transpose(1, 2)
            if place < len(self.norms):
                found = self.drop(self.activation(self.norms[place](found)))
        return without_padding(found, lengths, 1)


def postnet(
    bands: int, *, layers: int, channels: int, width: int = 5, dropout: float
) -> TimeConvolutions | None:
    """The convolutions whose output is added to the frames of a decoder; None without layers.

    Source: Shen et al. 2018, section 2.2: five layers of 512 filters of width 5, tanh on all but
    the last.
    """
    if not layers:
        return None
    sizes = [bands, *[channels] * (layers - 1), bands]
    return TimeConvolutions(sizes, width, activation="tanh", dropout=dropout, linear_end=True)
