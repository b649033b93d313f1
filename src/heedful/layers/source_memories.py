"""The keys and values of a decoder's attention to the sources, and the source of each search row.

Shapes: B sources, N rows of a search, M selected rows, H heads, S source tokens, D width.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.masks import padding
from heedful.attention.step_memory import StepMemory
from heedful.kernels.cached_attention import JoinedSteps, PackedSteps, Steps, StepsInC

_HELD = 2
"""The maximum number of stored tokens for each token that is read; above it, unused ones are
dropped."""

Group = list[Steps]
"""Sources that were added together, with each layer's keys and values."""


class SourceMemories:
    """Each layer's keys and values of the sources, and the source of each row.

    Sources that join later form a new group, so that existing ones are not copied until most of the
    stored tokens are unused.

    Args:
        memories: for each layer, ``[B, H, S, D]``.
        lengths: lengths of the sources, integers ``[B]``.
        in_place: whether to read them in place; only on the CPU.
    """

    _told: tuple[list[StepMemory], list[StepsInC]] | None = None
    """The argument for C, and the tensors that it refers to."""

    def __init__(
        self, memories: Sequence[Memory], lengths: Tensor, *, in_place: bool = False
    ) -> None:
        self._memories, self._lengths = list(memories), lengths.long().contiguous()
        self._rows = torch.arange(len(lengths), device=lengths.device)
        self._groups: list[Group] = []
        if in_place:
            self._keep([[Steps() for _ in memories]], torch.zeros_like(self._rows))
            for steps, memory in zip(self._groups[0], memories, strict=True):
                steps.append(*memory)

    @classmethod
    def packed(cls, steps: Sequence[Steps], first: Tensor, lengths: Tensor) -> Self:
        """A group from the steps ``[T]`` of each layer; a source begins at token ``first [B]``."""
        made = cls.__new__(cls)
        made._memories = []
        made._rows, made._lengths = first, lengths.long().contiguous()
        made._keep([list(steps)], torch.zeros_like(first))
        return made

    def _keep(self, groups: list[Group], numbers: Tensor) -> None:
        """Set the groups, and the group of each row ``[N]``."""
        self._groups, self._numbers = groups, numbers
        self._steps, self._firsts = groups[0], None
        if len(groups) > 1:
            self._steps = [JoinedSteps(layer) for layer in zip(*groups, strict=True)]
            longest = torch.tensor([group[0].length for group in groups])
            self._firsts = (longest.cumsum(0) - longest)[numbers]

    def read(self) -> Iterator[tuple[Memory | StepMemory, Tensor | None]]:
        """Each layer's memory, and the mask ``[N, 1, 1, S]`` unless the memory contains it."""
        if self._groups:
            yield from ((memory, None) for memory in self.in_place())
            return
        key = self._memories[0].key
        mask = padding(self._lengths).dense((len(key), 1, 1, key.shape[-2]), key.device)
        for memory in self._memories:
            yield memory, mask

    def in_place(self) -> list[StepMemory]:
        """Each layer's memory, to be read in place.

        Raises:
            RuntimeError: these memories are not read in place.
        """
        if not self._groups:
            raise RuntimeError("these memories are not read in place")
        index = self._rows.unsqueeze(1)
        return [
            StepMemory(steps, index.expand(-1, steps.length), self._lengths, self._firsts)
            for steps in self._steps
        ]

    def in_c(self) -> list[StepsInC]:
        """The arguments for C for each layer's memory, valid as long as this object exists.

        Raises:
            RuntimeError: these memories are not read in place.
        """
        if self._told is None:
            memories = self.in_place()
            self._told = memories, [memory.in_c() for memory in memories]
        return self._told[1]

    def select(self, rows: Tensor) -> Self:
        """The memories of ``rows [M]``. Nothing is copied if each row reads its own source or if
        the memories are read in place."""
        chosen = type(self).__new__(type(self))
        chosen._memories, chosen._groups = self._memories, self._groups
        chosen._rows = self._rows.index_select(0, rows)
        chosen._lengths = self._lengths.index_select(0, rows)
        if self._groups:
            chosen._steps, chosen._numbers = self._steps, self._numbers.index_select(0, rows)
            chosen._firsts = None if self._firsts is None else self._firsts.index_select(0, rows)
        elif not torch.equal(chosen._rows, self._rows):
            chosen._memories = [
                Memory(memory.key.index_select(0, rows), memory.value.index_select(0, rows))
                for memory in self._memories
            ]
        return chosen

    @property
    def can_join(self) -> bool:
        """Whether other sources can join: the memories are read in place."""
        return bool(self._groups)

    def join(self, other: Self) -> Self:
        """Append the rows and sources of others.

        Groups that no row reads any more are dropped, and unused sources if there are many.
        """
        chosen = type(self).__new__(type(self))
        chosen._memories = []
        chosen._rows = torch.cat([self._rows, other._rows])
        chosen._lengths = torch.cat([self._lengths, other._lengths])
        groups = [*self._groups, *other._groups]
        numbers = torch.cat([self._numbers, other._numbers + len(self._groups)])
        read, numbers = numbers.unique(return_inverse=True)
        groups = [groups[number] for number in read.tolist()]
        chosen._keep(groups, numbers)
        chosen._tidy()
        return chosen

    def _tidy(self) -> None:
        """Drop the sources that no row reads, if there are many."""
        of_layer = [group[0].parts[0][0] for group in self._groups]  # [R, p, G, D]
        held = torch.tensor([len(key) * key.shape[1] for key in of_layer])
        before = held.cumsum(0) - held
        each = torch.tensor([key.shape[1] for key in of_layer])
        # The first token of each row's source, for concatenated sources.
        begins = before[self._numbers] + self._rows * each[self._numbers]
        sources, reading = begins.unique(return_inverse=True)
        lengths = torch.zeros_like(sources).scatter_(0, reading, self._lengths)
        ends = lengths.cumsum(0)
        if int(held.sum()) <= _HELD * int(ends[-1]):
            return
        starts = ends - lengths
        tokens = torch.arange(int(ends[-1])) + (sources - starts).repeat_interleave(lengths)
        edges = torch.searchsorted(tokens, torch.cat([before, held.sum()[None]])).tolist()
        own = [
            tokens[first:last] - base
            for (first, last), base in zip(pairwise(edges), before, strict=True)
        ]
        longest = int(lengths.max())
        packed: Group = []
        for layer in zip(*self._groups, strict=True):
            parts = [steps.parts[0] for steps in layer]
            key, value = (_moved([part[side] for part in parts], own) for side in range(2))
            packed.append(PackedSteps(key, value, longest))
        self._rows = starts[reading]
        self._keep([packed], torch.zeros_like(reading))


def _moved(parts: Sequence[Tensor], tokens: Sequence[Tensor]) -> Tensor:
    """Copy some tokens ``[m]`` of each of ``parts [R, p, G, D]`` to one tensor ``[M, G, D]``."""
    return torch.cat(
        [part.flatten(0, 1).index_select(0, own) for part, own in zip(parts, tokens, strict=True)]
    )
