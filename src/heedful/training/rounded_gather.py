"""FSDP2's all-gathers with half of the bytes: weights that products round are sent in bfloat16.

With products in bfloat16, autocast rounds the weight and the input of every linear map and
convolution. Such weights are rounded before they are sent instead of after. Everything else is sent
in float32, and all weights that are received are float32, so that norms, sums and gradients are
computed as without this. A ``MixedPrecisionPolicy`` would round all parameters of a layer, and also
those of validations.
Shapes: N processes, n numbers of a process.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from heedful.basics.errors import UserError

_ROUNDED = (nn.Linear, nn.Conv1d, nn.Conv2d)
"""Modules whose weights only occur in products."""


class _Part(NamedTuple):
    """A parameter in what a process sends."""

    parameter: Any
    """A ``DTensor``."""
    is_rounded: bool

    def size(self, processes: int) -> int:
        """Its numbers in each process; PyTorch pads the rows to a multiple of the processes."""
        rows, *others = self.parameter.shape
        return int(-(-rows // processes) * prod(others))


class RoundedGather:
    """Gathers the parameters of a module, some of them in bfloat16; for ``set_custom_all_gather``.

    Args:
        module: the result of ``fully_shard``.
        ignored: parameters of the module that another one gathers.
    """

    def __init__(self, module: nn.Module, ignored: Iterable[nn.Parameter]) -> None:
        self.parts = list(_parts_of(module, {id(each) for each in ignored}))
        self.is_exact = False
        """Whether to send everything in float32."""
        self._is_checked = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what is gathered."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> None:
        """Gather ``[n]`` of every process as ``[N · n]``.

        Raises:
            UserError: PyTorch gathers parameters in another order than expected.
        """
        if self.is_exact or input_tensor.dtype != torch.float32:
            dist.all_gather_into_tensor(output_tensor, input_tensor, group=group)
            return
        count = group.size()
        sizes = [part.size(count) for part in self.parts]
        if not self._is_checked:
            self._require_order(input_tensor, sizes)
        received = _Messages(self.parts, sizes, count, input_tensor.device)
        # The input is a part of the output.
        sent = _Messages(self.parts, sizes, 1, input_tensor.device)
        sent.write(input_tensor.view(1, -1))
        dist.all_gather_into_tensor(received.content, sent.content, group=group)
        received.read(output_tensor.view(count, -1))

    def _require_order(self, found: Tensor, sizes: Sequence[int]) -> None:
        """Raise UserError unless the tensor has the parameters in the expected order."""
        is_right = len(found) == sum(sizes)
        for part, piece in zip(self.parts, found.split(sizes) if is_right else [], strict=False):
            own = part.parameter.to_local().reshape(-1).to(found.device)
            is_right &= torch.equal(piece[: len(own)], own)
        if not is_right:
            raise UserError(
                "training.gather_precision = 'bfloat16' does not work with PyTorch "
                f"{torch.__version__}; set it to 'float32'"
            )
        self._is_checked = True


class _Messages:
    """What processes send: numbers in float32, then numbers in bfloat16, as bytes.

    Args:
        parts: the parameters in the order in which PyTorch has them.
        sizes: of the parts in each process.
        count: number of messages, one after another.
        device: the device.
    """

    def __init__(
        self, parts: Sequence[_Part], sizes: Sequence[int], count: int, device: torch.device
    ) -> None:
        rounded = sum(size for part, size in zip(parts, sizes, strict=True) if part.is_rounded)
        whole = sum(sizes) - rounded
        length = 4 * (whole + -(-rounded // 2))  # a multiple of 4, so that messages are aligned
        self.content = torch.empty(count * length, dtype=torch.uint8, device=device)
        rows = self.content.view(count, length)
        halves = rows[:, 4 * whole : 4 * whole + 2 * rounded].view(torch.bfloat16)
        floats = rows[:, : 4 * whole].view(torch.float32)
        self.places: list[tuple[slice, Tensor]] = []
        """Of each part: its columns in PyTorch's tensor ``[N, n]``, and the numbers here."""
        start, ends = 0, {True: 0, False: 0}
        for part, size in zip(parts, sizes, strict=True):
            first = ends[part.is_rounded]
            ends[part.is_rounded] += size
            own = (halves if part.is_rounded else floats)[:, first : first + size]
            self.places.append((slice(start, start + size), own))
            start += size

    def write(self, numbers: Tensor) -> None:
        """Fill the messages from ``[N, n]``."""
        for columns, own in self.places:
            own.copy_(numbers[:, columns])

    def read(self, numbers: Tensor) -> None:
        """Write what the messages contain to ``[N, n]``."""
        for columns, own in self.places:
            numbers[:, columns].copy_(own)


def _parts_of(module: nn.Module, seen: set[int]) -> Iterator[_Part]:
    """The parameters that a module gathers, in PyTorch's order: those of submodules first."""
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from _parts_of(child, seen)
    for name, parameter in module.named_parameters(recurse=False):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield _Part(parameter, name == "weight" and type(module) in _ROUNDED)


@contextmanager
def in_float32(gathers: Sequence[RoundedGather]) -> Iterator[None]:
    """A block in which all parameters are sent in float32, for validations."""
    for each in gathers:
        each.is_exact = True
    try:
        yield
    finally:
        for each in gathers:
            each.is_exact = False
