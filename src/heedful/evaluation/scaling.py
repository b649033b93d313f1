"""Classical multidimensional scaling: points whose distances are close to given ones.

    B = −½ J D² J,   J = I − 1/n,   X = V √Λ  of the largest eigenvalues

Torgerson 1952, "Multidimensional Scaling: I. Theory and Method". Clark et al. 2019, section 6, maps
heads to two dimensions by multidimensional scaling.
Shapes: N points, d dimensions.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Map(NamedTuple):
    """Points with approximately given distances."""

    points: Tensor
    """``[N, d]``; the mean is 0, the first dimension has the largest variance."""
    stress: float
    """Kruskal's stress 1, ``√(Σ (d − d̂)² / Σ d²)``: 0 if the distances are exact."""


def scaled_to(distances: Tensor, dimensions: int = 2) -> Map:
    """A map of points.

    Args:
        distances: symmetric, ``[N, N]``, with 0 on the diagonal.
        dimensions: d. Dimensions with no positive eigenvalue are 0.

    Example:
        >>> found = scaled_to(torch.tensor([[0.0, 3.0], [3.0, 0.0]]), 1)
        >>> found.points.flatten()
        tensor([ 1.5000, -1.5000], dtype=torch.float64)
    """
    given = distances.double()
    count = len(given)
    centring = torch.eye(count, dtype=torch.float64) - 1 / count
    values, vectors = torch.linalg.eigh(-centring @ given.square() @ centring / 2)
    values, vectors = values.flip(0)[:dimensions], vectors.flip(1)[:, :dimensions]
    # The sign of an eigenvector is arbitrary; the largest entry is made positive.
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    points = vectors * largest.sign() * values.clamp(min=0).sqrt()
    points = torch.nn.functional.pad(points, (0, dimensions - points.shape[1]))
    found = (points.unsqueeze(1) - points.unsqueeze(0)).norm(dim=2)
    error, total = (given - found).square().sum(), given.square().sum()
    return Map(points, float((error / total).sqrt()) if total else 0.0)
