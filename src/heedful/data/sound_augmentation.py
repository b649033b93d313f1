"""Changes to features of sounds in training: masks of bands and of time, other voices and speeds.

Shapes: B sounds, T frames, F features.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def masked(
    features: Tensor,
    lengths: Sequence[int],
    *,
    bands: tuple[int, int],
    frames: tuple[int, int],
    most: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """SpecAugment: some bands, and some stretches of time, of each sound become 0.

    Each width is drawn evenly from 0 to the largest one, and then its place. A stretch is at most
    a share of the sound's frames.

    Args:
        features: ``[B, T, F]``, with mean 0, padded.
        lengths: frames of each sound.
        bands: how many masks of bands, and the width of the largest one.
        frames: how many masks of time, and the width of the largest one.
        most: the largest share of a sound's frames in a mask of time.
        generator: draws the masks.

    Source: Park et al. 2019, "SpecAugment: A Simple Data Augmentation Method for Automatic Speech
    Recognition", section 2; the time is not warped.
    """
    batch, longest, width = features.shape
    sizes = torch.tensor(list(lengths), dtype=torch.float32)
    hidden = torch.zeros(batch, longest, width, dtype=torch.bool)
    for (count, largest), limits, axis in (
        (bands, torch.full((batch,), float(width)), 2),
        (frames, sizes, 1),
    ):
        cap = (limits * most).floor() if axis == 1 else limits
        for _ in range(count):
            drawn = torch.rand(2, batch, generator=generator)
            wide = (drawn[0] * (torch.minimum(cap, torch.tensor(float(largest))) + 1)).floor()
            first = (drawn[1] * (limits - wide + 1)).floor()
            places = torch.arange(features.shape[axis])
            inside = (places >= first[:, None]) & (places < (first + wide)[:, None])
            hidden |= inside[:, None, :] if axis == 2 else inside[:, :, None]
    return features.masked_fill(hidden.to(features.device), 0.0)


def warped(
    features: Tensor,
    lengths: Tensor,
    *,
    frequency: float = 0.0,
    time: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Each sound with its bands and its frames stretched by random factors, linearly interpolated.

    Stretching bands is like another length of the vocal tract, stretching time another speed. Each
    factor is drawn evenly from 1 − x to 1 + x. Bands beyond the last one repeat it.

    Args:
        features: ``[B, T, F]``, padded; bands of rising frequency.
        lengths: frames of each sound ``[B]``.
        frequency: x for bands, from 0, below 1.
        time: x for frames.
        generator: draws the factors.

    Returns:
        The features ``[B, T', F]``, padded with 0, and the new lengths.

    Source: Jaitly, Hinton 2013, "Vocal Tract Length Perturbation (VTLP) Improves Speech
    Recognition", section 3 (there, a piecewise linear function of the frequency); Ko et al. 2015,
    "Audio Augmentation for Speech Recognition" (speed).
    """
    batch, longest, width = features.shape
    drawn = 2 * torch.rand(2, batch, generator=generator) - 1
    bands = (1 + frequency * drawn[0]).to(features.device)
    before = lengths.to(features.device).to(features.dtype)
    after = (before * (1 + time * drawn[1]).to(features.device)).round().clamp(min=1)
    count = int(after.max())
    frame = torch.arange(count, device=features.device) + 0.5
    # Positions in the sound, from 0 to T, and in its bands, from 0 to F.
    rows = (frame * (before / after)[:, None]).clamp(max=before[:, None] - 0.5)
    columns = (torch.arange(width, device=features.device) + 0.5) / bands[:, None]
    x = (2 * columns / width - 1)[:, None].expand(-1, count, -1)
    y = (2 * rows / longest - 1)[..., None].expand(-1, -1, width)
    grid = torch.stack([x, y], -1).to(features.dtype)
    found = F.grid_sample(features[:, None], grid, padding_mode="border", align_corners=False)[:, 0]
    there = frame < after[:, None]
    return found * there[..., None], after.to(lengths.dtype).to(lengths.device)
