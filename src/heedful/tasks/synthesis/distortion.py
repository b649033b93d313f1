"""Mel-cepstral distortion: how far a spoken text is from a recording of it, in decibels.

    MCD = 10 / ln 10 · mean over the path of √(2 Σ_{m=1}^{13} (c_m − c'_m)²)

c_m = 1/M Σ_k X_k cos(π m (k + ½) / M) are the cepstral coefficients of X, the logarithms of the
magnitudes of M mel bands. The frames of both sounds are paired by dynamic time warping, because
their tempo differs. Figures of other programs, with other cepstra, are not comparable.

Kubichek 1993, "Mel-Cepstral Distance Measure for Objective Speech Quality Assessment"; Sakoe, Chiba
1978, "Dynamic Programming Algorithm Optimization for Spoken Word Recognition".
Shapes: T and U frames, M bands.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.sound_features import cepstrum

_COEFFICIENTS = 13


def mel_cepstral_distortion(first: Tensor, second: Tensor) -> float:
    """The distortion in decibels of log-mel features ``[T, M]`` and ``[U, M]``.

    Args:
        first: natural logarithms of energies.
        second: as ``first``.
    """
    bands = first.shape[1]
    # The transform is orthonormal: its values are √(2 M) c_m; and energies are squares.
    one, other = (
        cepstrum(own.double() / 2, min(bands, _COEFFICIENTS + 1))[:, 1:] for own in (first, second)
    )
    # Without a product of matrices, which loses digits, and without all T · U · 13 differences.
    away = torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
    distances = (away / math.sqrt(bands)).numpy()
    path = warping_path(distances)
    return float(10 / math.log(10) * np.mean([distances[place] for place in path]))


def warping_path(distances: NDArray[Any]) -> list[tuple[int, int]]:
    """The pairs of frames with the least sum of ``distances [T, U]``, from both beginnings to both
    ends; each step moves on by one frame in one of the sounds, or in both.

    Example:
        >>> warping_path(np.array([[0, 9, 9], [9, 0, 0.0]]))
        [(0, 0), (1, 1), (1, 2)]
    """
    rows, columns = distances.shape
    total = np.empty((rows, columns))
    total[0] = np.cumsum(distances[0])
    for row in range(1, rows):
        above = total[row - 1]
        best = np.minimum(above, np.concatenate([[np.inf], above[:-1]]))
        # total_j = d_j + min(best_j, total_{j−1}), by sums of d from the first column on.
        sums = np.cumsum(distances[row])
        total[row] = sums + np.minimum.accumulate(best - sums + distances[row])
    row, column = rows - 1, columns - 1
    path = [(row, column)]
    while row or column:
        before = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
        row, column = min(
            (place for place in before if min(place) >= 0), key=lambda place: total[place]
        )
        path.append((row, column))
    return path[::-1]
