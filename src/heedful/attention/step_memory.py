"""What a decoder's steps attend to: keys and values that are read where they are.

Rows of search come from one another: a beam's hypotheses share their beginnings, and all hypotheses
of a source share the source. So nothing is moved when rows are chosen anew: an index says which
row of what is there each of them reads.
Shapes: N rows, G heads of keys and values, T positions, D width of a key's head, E of a value's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention.masks import padding
from heedful.kernels.cached_attention import Steps, StepsInC


class StepMemory(NamedTuple):
    """Positions and the rows that read them; :meth:`gather` is what it means."""

    steps: Steps
    """``T`` positions, each with rows of its own."""
    rows: Tensor
    """Integers ``[N, T]``: which row of a position's step each row reads."""
    lengths: Tensor | None = None
    """Integers ``[N]``: how many of the positions a row may attend to; all unless given."""
    firsts: Tensor | None = None
    """Integers ``[N]``: the first position a row may attend to; that of all unless given."""

    def read(self, query: Tensor, scale: float) -> Tensor:
        """The context ``[N, H, E]`` of ``softmax(scale · q · kᵀ)`` for ``query [N, H, D]``."""
        return self.steps.read(query, self.rows, self.lengths, scale, self.firsts)

    def in_c(self) -> StepsInC:
        """What C is told, which this must outlive."""
        return self.steps.in_c(self.rows, self.lengths, self.firsts)

    def gather(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys ``[N, G, T, D]``, values ``[N, G, T, E]``, and the mask ``[N, 1, 1, T]``, if any."""
        key, value = self.steps.gather(self.rows)
        if self.lengths is None and self.firsts is None:
            return key, value, None
        positions = key.shape[2]
        if self.firsts is None:
            assert self.lengths is not None
            return key, value, padding(self.lengths).dense((len(key), 1, 1, positions), key.device)
        ends = positions if self.lengths is None else (self.firsts + self.lengths).unsqueeze(1)
        places = torch.arange(positions)
        mask = (places >= self.firsts.unsqueeze(1)) & (places < ends)
        return key, value, mask[:, None, None]
