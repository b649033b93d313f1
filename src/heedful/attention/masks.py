"""Masks: small objects that say which query may attend to which key, true = may attend.

They combine with ``&``, ``|`` and ``~`` and are made dense only where a path needs it.
Shapes: B batch, Q queries, K keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Mask:
    """Base of all masks; a new one writes :meth:`dense`."""

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Booleans that broadcast to scores of ``shape [.., Q, K]``."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it allows")

    def __and__(self, other: "Mask") -> "Mask":
        return _Both(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return _Either(self, other)

    def __invert__(self) -> "Mask":
        return _Not(self)


class _Both(Mask):
    def __init__(self, one: Mask, other: Mask) -> None:
        self.one, self.other = one, other

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        return self.one.dense(shape, device) & self.other.dense(shape, device)


class _Either(Mask):
    def __init__(self, one: Mask, other: Mask) -> None:
        self.one, self.other = one, other

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        return self.one.dense(shape, device) | self.other.dense(shape, device)


class _Not(Mask):
    def __init__(self, one: Mask) -> None:
        self.one = one

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        return ~self.one.dense(shape, device)


class Padding(Mask):
    """See :func:`padding`."""

    def __init__(self, lengths: Tensor) -> None:
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must be integers, not {lengths.dtype}")
        self.lengths = lengths

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        lengths = self.lengths.to(device)
        extra = len(shape) - lengths.dim()
        if extra < 1:
            raise ValueError(
                f"lengths {list(lengths.shape)} do not fit scores {list(shape)}: "
                "they must name leading dimensions only"
            )
        positions = torch.arange(shape[-1], device=device)
        return positions < lengths.reshape(*lengths.shape, *[1] * extra)


class Causal(Mask):
    """See :func:`causal`."""

    def dense(self, shape: Sequence[int], device: torch.device) -> Tensor:
        queries, keys = shape[-2], shape[-1]
        ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
        return ones.tril(keys - queries)


def padding(lengths: Tensor) -> Mask:
    """Only the first ``lengths[b]`` keys of each row of the batch may be attended to.

    Args:
        lengths: integers ``[B]`` (or more leading dimensions of the scores).

    Raises:
        TypeError: the lengths are not integers.

    Example:
        >>> padding(torch.tensor([1, 2])).dense((2, 1, 3), torch.device("cpu")).tolist()
        [[[True, False, False]], [[True, True, False]]]
    """
    return Padding(lengths)


def causal() -> Mask:
    """A query may attend to keys up to its own position, counted from the end.

    The last query sees all keys (bottom-right alignment), so it is right with a cache, where there
    are more keys than queries.

    Example:
        >>> causal().dense((2, 3), torch.device("cpu")).tolist()
        [[True, True, False], [True, True, True]]
    """
    return Causal()


def dense_mask(
    mask: Mask | Tensor | None, shape: Sequence[int], device: torch.device
) -> Tensor | None:
    """``mask`` as booleans that broadcast to ``shape [.., Q, K]``, or None.

    Raises:
        TypeError: a tensor mask is not boolean.
        ValueError: it does not broadcast to the shape.
    """
    if mask is None:
        return None
    allowed = mask.dense(shape, device) if isinstance(mask, Mask) else mask
    if allowed.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (true = may attend), not {allowed.dtype}")
    sizes = list(allowed.shape)
    fits = len(sizes) <= len(shape) and all(
        size in (1, full)
        for size, full in zip(reversed(sizes), reversed(list(shape)), strict=False)
    )
    if not fits:
        raise ValueError(f"mask {sizes} does not broadcast to the scores' shape {list(shape)}")
    return allowed
