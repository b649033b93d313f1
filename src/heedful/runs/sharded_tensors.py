"""Tensors of which each process holds a part: PyTorch's ``DTensor``, as FSDP2 makes them.

``torch.distributed`` is only imported if there are such tensors.
"""

from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether a process holds only a part of a tensor."""
    return type(tensor).__name__ == "DTensor"


def own_part(whole: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, distributed as ``like`` if that is; without communication."""
    if not is_sharded(like):
        return whole
    from torch.distributed.tensor import distribute_tensor

    whole = whole.to(like.to_local().device)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def copy_whole(target: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into ``target``, of which this process may hold a part."""
    if is_sharded(target):
        target.to_local().copy_(own_part(whole, target).to_local())  # type: ignore[attr-defined]
    else:
        target.copy_(whole)


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor. All processes call this in the same order."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def class_of(module: nn.Module) -> type[nn.Module]:
    """The class of a module, of which FSDP2 derives another one when it shards the module."""
    kinds = type(module).__mro__
    return kinds[2] if kinds[1].__name__ == "FSDPModule" else kinds[0]
