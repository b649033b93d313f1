"""Shapes of tensors that broadcast."""

import itertools

from torch import Tensor


def leading_sizes(*parts: Tensor) -> tuple[int, ...]:
    """The broadcast leading dimensions of ``[.., L, D]`` tensors, which must be compatible.

    If sizes differ (fewer heads of keys than of queries), those of the first tensor are returned.

    ``torch.broadcast_shapes`` would import SymPy.
    """
    shapes = [part.shape[:-2] for part in parts]
    if all(sizes == shapes[0] for sizes in shapes):
        return tuple(shapes[0])
    each = itertools.zip_longest(*(reversed(sizes) for sizes in shapes), fillvalue=1)
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in each)[::-1]
