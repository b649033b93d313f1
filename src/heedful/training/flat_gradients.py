"""Gradients of all parameters in one tensor, and their sum in the order of a binary tree.

The sum of V gradients, V a power of two, is that of neighbours first: ``(0 + 1) + (2 + 3)`` for
V = 4. A range of ``V / N`` shards is a node of this tree if N is a power of two, so that processes
and threads add up ranges on their own. The result is the same to the bit, because each addition has
the same two operands wherever it is made.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

_NOTHING = -0.0
"""The gradient of a parameter that was not used: x + (−0) = x for every x, x = −0 included."""
PIECE = 1 << 23
"""Number of gradients that processes exchange at a time: 32 MiB in float32."""

Kind = tuple[torch.device, torch.dtype]


class FlatGradients:
    """The gradients of parameters, in one tensor for each device and type.

    Args:
        parameters: the parameters, which are dense in memory.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.used = [False] * len(parameters)
        """Whether a gradient was added, for each parameter."""
        sizes: dict[Kind, int] = {}
        places: list[tuple[Kind, int]] = []
        for each in parameters:
            kind = each.device, each.dtype
            places.append((kind, sizes.get(kind, 0)))
            sizes[kind] = sizes.get(kind, 0) + each.numel()
        self.tensors = {
            kind: torch.full((size,), _NOTHING, device=kind[0], dtype=kind[1])
            for kind, size in sizes.items()
        }
        # Optimisers expect the strides of the parameter.
        self.views = [
            self.tensors[kind].as_strided(each.size(), each.stride(), first)
            for each, (kind, first) in zip(parameters, places, strict=True)
        ]

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of a batch; None for a parameter that it does not use."""
        for place, (view, gradient) in enumerate(zip(self.views, gradients, strict=True)):
            if gradient is None:
                continue
            if self.used[place]:
                view.add_(gradient)
            else:
                view.copy_(gradient)
                self.used[place] = True

    def merge(self, right: "FlatGradients") -> "FlatGradients":
        """These gradients after adding those of the node to the right in the tree."""
        for kind, own in self.tensors.items():
            own.add_(right.tensors[kind])
        self.used = [one or other for one, other in zip(self.used, right.used, strict=True)]
        return self

    def merge_processes(self, count: int, used: Sequence[Sequence[bool]]) -> None:
        """Add the gradients of ``count`` processes in the order of the tree.

        Every process receives a slice of the gradients of all processes, adds them, and sends the
        sum to all: the same volume as that of an all-reduce.

        Args:
            count: number of processes, a power of two.
            used: whether each parameter has a gradient, in each process.
        """
        self.used = [any(each) for each in zip(*used, strict=True)]
        for own in self.tensors.values():
            for piece in own.split(PIECE):
                _sum_piece(piece, count)

    def store(self) -> None:
        """Make these the gradients of the parameters."""
        for each, view, used in zip(self.parameters, self.views, self.used, strict=True):
            each.grad = view if used else None


def _sum_piece(piece: Tensor, count: int) -> None:
    size = -(-len(piece) // count)
    whole = F.pad(piece, (0, size * count - len(piece))) if len(piece) % count else piece
    received = torch.empty_like(whole)
    dist.all_to_all_single(received, whole)
    slices = list(received.view(count, size))
    while len(slices) > 1:
        pairs = zip(slices[::2], slices[1::2], strict=True)
        slices = [one.add_(other) for one, other in pairs]
    dist.all_gather_into_tensor(whole, slices[0])
    if whole is not piece:
        piece.copy_(whole[: len(piece)])


def tree_of(shards: range, gradients_of: Callable[[int], FlatGradients]) -> FlatGradients:
    """The sum of the gradients of shards in the order of the tree.

    At most ``log2(V) + 2`` gradients are in memory at a time.

    Args:
        shards: the shards of a node: a power of two of them.
        gradients_of: computes the gradients of a shard; called in the order of the shards.
    """
    sums: list[tuple[int, FlatGradients]] = []
    for shard in shards:
        size, gradients = 1, gradients_of(shard)
        while sums and sums[-1][0] == size:
            _, left = sums.pop()
            size, gradients = 2 * size, left.merge(gradients)
        sums.append((size, gradients))
    ((_, found),) = sums
    return found
