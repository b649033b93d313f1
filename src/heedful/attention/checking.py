"""Checks of the arguments that all attention modules take."""

import itertools
from collections.abc import Sequence

from torch import Tensor


def check_inputs(*, grouped: bool = False, **named: Tensor) -> None:
    """Check any of ``query``, ``key`` and ``value``, independently of the score.

    Args:
        grouped: whether the key and value may have fewer heads than the query.
        named: the tensors.

    Raises:
        TypeError: an argument is not a floating-point tensor.
        ValueError: a tensor has fewer than two dimensions, the numbers of keys and values differ,
            or the tensors do not broadcast.
    """
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of floating point, not {tensor.dtype}")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}: expected [.., positions, width]"
            )
    if "key" in named and "value" in named and named["key"].shape[-2] != named["value"].shape[-2]:
        raise ValueError(f"{_shapes(named)}: each key needs one value")
    leading: list[Sequence[int]] = [tensor.shape[:-2] for tensor in named.values()]
    if grouped and heads_of_a_group(*named.values()) > 1:
        leading = [sizes[:-1] for sizes in leading]
    if not _broadcast(leading):
        raise ValueError(f"{_shapes(named)}: leading dimensions differ")


def check_leading(**sizes: Sequence[int]) -> None:
    """Raise ValueError unless leading dimensions broadcast."""
    if not _broadcast(list(sizes.values())):
        shapes = " and ".join(f"{name} {list(size)}" for name, size in sizes.items())
        raise ValueError(f"leading dimensions differ: {shapes}")


def _broadcast(leading: list[Sequence[int]]) -> bool:
    if all(sizes == leading[0] for sizes in leading):
        return True
    each = itertools.zip_longest(*(reversed(sizes) for sizes in leading), fillvalue=1)
    return all(len({*sizes} - {1}) <= 1 for sizes in each)


def _shapes(named: dict[str, Tensor]) -> str:
    return " and ".join(f"{name} {list(tensor.shape)}" for name, tensor in named.items())


def heads_of_a_group(query: Tensor, key: Tensor, *value: Tensor) -> int:
    """How many heads of ``query [.., B, H, Q, D]`` read each head of ``key [.., B, G, K, D]``.

    1 if the numbers of heads are equal, if one of them is 1, or if they are incompatible.
    """
    if any(part.dim() < 4 for part in (query, key, *value)):
        return 1
    heads, groups = query.shape[-3], key.shape[-3]
    if groups < 2 or heads % groups or any(part.shape[-3] != groups for part in value):
        return 1
    return heads // groups


def refuse_positional(module: object, given: tuple[object, ...]) -> None:
    """Raise TypeError for positional arguments after query, key and value.

    In ``nn.MultiheadAttention`` the fourth is ``key_padding_mask``, where true means the opposite.
    """
    if given:
        raise TypeError(
            f"{type(module).__name__} takes query, key and value; pass the mask as a keyword: "
            "mask=allowed, where true = may attend (nn.MultiheadAttention's key_padding_mask is "
            "the opposite: mask=~key_padding_mask[:, None, :])"
        )


def check_dropout(share: float) -> None:
    """Raise ValueError unless ``share`` is in [0, 1)."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"dropout must be in [0, 1), not {share}")


def check_part(name: str, part: object, kind: type) -> None:
    """Raise TypeError unless ``part`` is an instance of ``kind``."""
    if isinstance(part, kind):
        return
    given = repr(part)
    if isinstance(part, type):
        given = f"the class {part.__name__}; create an instance: {part.__name__}(…)"
    raise TypeError(f"{name} must be a {kind.__name__}, not {given}")
