"""Weights of residual networks in torchvision's layout.

    conv1, bn1, layer1.0.conv1, layer1.0.bn1, …, layer1.0.downsample.0 and .1, …, fc

Batch normalization becomes normalization with its stored means and variances.
"""

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

_PARTS = {
    "weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "variance",
}  # fmt: skip
_BLOCK = re.compile(r"layer(\d+)\.(\d+)\.(conv|bn|downsample)\.?(\d+)\.(\w+)")


def from_torchvision(tensors: Mapping[str, Tensor], blocks: Sequence[int]) -> dict[str, Tensor]:
    """The tensors of a :class:`~heedful.layers.residual.ResidualNetwork`, by its names.

    The last layer ``fc`` and the numbers of batches are left out.

    Args:
        tensors: by torchvision's names.
        blocks: the number of blocks of each stage.

    Raises:
        ValueError: a name is not of this layout.

    Example:
        >>> import torch
        >>> names = ["conv1.weight", "bn1.running_mean", "layer2.0.conv2.weight", "fc.bias"]
        >>> [*from_torchvision(dict.fromkeys(names, torch.zeros(1)), (2, 2))]
        ['stem.weight', 'stem_norm.mean', 'blocks.2.convolutions.1.weight']
    """
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("fc.") or name.endswith("num_batches_tracked"):
            continue
        found[_named(name, blocks)] = tensor
    return found


def _named(name: str, blocks: Sequence[int]) -> str:
    first, _, last = name.rpartition(".")
    if first == "conv1":
        return f"stem.{last}"
    if first == "bn1" and last in _PARTS:
        return f"stem_norm.{_PARTS[last]}"
    match = _BLOCK.fullmatch(name)
    if match is None or (match[3] == "bn" and match[5] not in _PARTS):
        raise ValueError(f"'{name}' is not a tensor of a residual network of torchvision")
    stage, number, kind, place = int(match[1]), int(match[2]), match[3], int(match[4])
    block = f"blocks.{sum(blocks[: stage - 1]) + number}"
    if kind == "downsample":
        part = last if place == 0 else _PARTS.get(last, last)
        return f"{block}.shortcut.{place}.{part}"
    if kind == "conv":
        return f"{block}.convolutions.{place - 1}.{last}"
    return f"{block}.norms.{place - 1}.{_PARTS[last]}"
