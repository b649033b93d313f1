"""Named sizes, which set the defaults of a recipe's sizes."""

from collections.abc import Mapping
from typing import Any

from heedful.basics.limits import MOST_WIDTH

HEAD_WIDTH = 64
"""Width of a head in BERT and GPT, whatever the size (Turc et al. 2019, section 4.1)."""

Sizes = Mapping[str, Mapping[str, Any]]


def fill_from_size(given: Any, sizes: Sizes, smallest: str) -> Any:
    """Add the sizes that follow from ``size``, or ``hidden_size``, to a table of settings.

    If ``hidden_size`` differs from the named size, ``ffn_size`` is 4 · hidden_size and a head is 64
    wide by default.

    Args:
        given: a table; other values are returned unchanged.
        sizes: the values of each size: layers, hidden_size, ffn_size, heads, and others.
        smallest: the default size if neither a size nor layers are given.

    Raises:
        ValueError: a size is named, all of its values are given, and one contradicts it.

    Example:
        >>> sizes = {"tiny": {"layers": 2, "hidden_size": 128, "ffn_size": 512, "heads": 2}}
        >>> fill_from_size({"size": "tiny", "hidden_size": 256}, sizes, "tiny")
        {'layers': 2, 'hidden_size': 256, 'ffn_size': 1024, 'heads': 4, 'size': None}
    """
    if not isinstance(given, dict):
        return given
    size = given.get("size") or (smallest if "layers" not in given else None)
    numbers = dict(sizes.get(size, {})) if isinstance(size, str) else {}
    named = dict(numbers)
    dim = given.get("hidden_size", numbers.get("hidden_size"))
    if isinstance(dim, int) and 0 < dim <= MOST_WIDTH and dim != numbers.get("hidden_size"):
        numbers |= {"hidden_size": dim, "ffn_size": 4 * dim, "heads": _heads(dim)}
    filled = {**numbers, **given}
    if named:
        filled["size"] = size if _agrees(size, named, given, filled) else None
    return filled


def _heads(dim: int) -> int:
    """The largest divisor of ``hidden_size`` whose heads are at least 64 wide; at least 1."""
    return max(n for n in range(1, max(1, dim // HEAD_WIDTH) + 1) if dim % n == 0)


def _agrees(
    size: object, named: Mapping[str, Any], given: Mapping[str, Any], filled: Mapping[str, Any]
) -> bool:
    other = [key for key, number in named.items() if filled[key] != number]
    if other and named.keys() <= given.keys() and given.get("size"):
        raise ValueError(
            f"size '{size}' and {other[0]} = {given[other[0]]} contradict each other; leave one "
            "of them out"
        )
    return not other
