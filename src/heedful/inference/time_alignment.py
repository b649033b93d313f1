"""When the tokens of a text are spoken: the best alignment that never goes back.

Shapes: T tokens, S positions.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_FLOOR = 1e-6
"""The least weight, so that a position without any weight can be passed."""


def monotonic_positions(weights: Tensor, *, strict: bool = False) -> list[int]:
    """A position for each token, none before that of the token before.

    The positions have the largest product of weights.

    Args:
        weights: attention weights or probabilities ``[T, S]``, not negative.
        strict: whether two tokens have two positions; only if there are enough.

    Example:
        >>> import torch
        >>> weights = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.1, 0.4], [0.0, 0.7, 0.3]])
        >>> monotonic_positions(weights)
        [0, 0, 1]
        >>> monotonic_positions(weights, strict=True)
        [0, 1, 2]
    """
    scores: NDArray[np.float64] = np.log(np.maximum(weights.double().cpu().numpy(), _FLOOR))
    count, places = scores.shape
    if not count:
        return []
    shift = int(strict and count <= places)
    came = np.zeros((count, places), np.int64)
    best = scores[0]
    for token in range(1, count):
        reached = np.maximum.accumulate(best)
        where = np.where(best == reached, np.arange(places), 0)
        where = np.maximum.accumulate(where)
        if shift:
            reached = np.concatenate([[-np.inf], reached[:-1]])
            where = np.concatenate([[0], where[:-1]])
        came[token], best = where, scores[token] + reached
    found = [int(best.argmax())]
    for token in range(count - 1, 0, -1):
        found.append(int(came[token, found[-1]]))
    return found[::-1]
