"""What a decoder's attention remembers of the sources, and which source each row of search reads.

Shapes: B sources, N rows of search, M selected rows, H heads, S source tokens, D width.
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
"""Tokens of sources that are held for one that a row reads at most: then the others go."""

Group = list[Steps]
"""Sources that began together: each layer's keys and values of them."""


class SourceMemories:
    """What each layer's attention remembers of the sources, and which source each row reads.

    Sources that join later are a further group beside those that are there: nothing is moved, until
    more is held that nobody reads than is read.

    Args:
        memories: of each layer, ``[B, H, S, D]``.
        lengths: of the sources, integers ``[B]``.
        in_place: whether they are read where they are: on the CPU only.
    """

    _told: tuple[list[StepMemory], list[StepsInC]] | None = None
    """What C is told, and whose numbers it reads."""

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
        """Of steps ``[T]`` of each layer, in which a source's tokens begin at ``first [B]``."""
        made = cls.__new__(cls)
        made._memories = []
        made._rows, made._lengths = first, lengths.long().contiguous()
        made._keep([list(steps)], torch.zeros_like(first))
        return made

    def _keep(self, groups: list[Group], numbers: Tensor) -> None:
        """Take groups, and which of them each row reads ``[N]``."""
        self._groups, self._numbers = groups, numbers
        self._steps, self._firsts = groups[0], None
        if len(groups) > 1:
            self._steps = [JoinedSteps(layer) for layer in zip(*groups, strict=True)]
            longest = torch.tensor([group[0].length for group in groups])
            self._firsts = (longest.cumsum(0) - longest)[numbers]

    def read(self) -> Iterator[tuple[Memory | StepMemory, Tensor | None]]:
        """Each layer's memory, and the mask ``[N, 1, 1, S]`` where it is not in the memory."""
        if self._groups:
            yield from ((memory, None) for memory in self.in_place())
            return
        key = self._memories[0].key
        mask = padding(self._lengths).dense((len(key), 1, 1, key.shape[-2]), key.device)
        for memory in self._memories:
            yield memory, mask

    def in_place(self) -> list[StepMemory]:
        """Each layer's memory where it is.

        Raises:
            RuntimeError: it cannot be read there.
        """
        if not self._groups:
            raise RuntimeError("these memories move what is chosen")
        index = self._rows.unsqueeze(1)
        return [
            StepMemory(steps, index.expand(-1, steps.length), self._lengths, self._firsts)
            for steps in self._steps
        ]

    def in_c(self) -> list[StepsInC]:
        """What C is told of each layer's memory where it is; as long as these memories live.

        Raises:
            RuntimeError: it cannot be read there.
        """
        if self._told is None:
            memories = self.in_place()
            self._told = memories, [memory.in_c() for memory in memories]
        return self._told[1]

    def select(self, rows: Tensor) -> Self:
        """What ``rows [M]`` read: nothing is copied while each still reads its own source, nor
        where steps are read where they are."""
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
        """Whether others may join: where these are read where they are."""
        return bool(self._groups)

    def join(self, other: Self) -> Self:
        """What these rows read, and then what others do.

        Groups that nobody reads any more are forgotten, and sources when they are many.
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
        """Leave out the sources that nobody reads, if they are many."""
        of_layer = [group[0].parts[0][0] for group in self._groups]  # [R, p, G, D]
        held = torch.tensor([len(key) * key.shape[1] for key in of_layer])
        before = held.cumsum(0) - held
        each = torch.tensor([key.shape[1] for key in of_layer])
        # Where each row's source begins, as if all tokens stood one behind the other.
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
    """Some tokens ``[m]`` of each of ``parts [R, p, G, D]``, moved together: ``[M, G, D]``."""
    return torch.cat(
        [part.flatten(0, 1).index_select(0, own) for part, own in zip(parts, tokens, strict=True)]
    )
