"""Keys and values that decoding steps attend to, read in place.

Rows of a search share data: a beam's hypotheses share prefixes, and all hypotheses of a source
share the source. Nothing is therefore copied when rows are reordered: an index maps each row to
the stored row that it reads.
Shapes: N rows, G heads of keys and values, T positions, D width of a key's head, E of a value's.
"""

from typing import NamedTuple

from torch import Tensor

from heedful.kernels.cached_attention import Steps, StepsInC


class StepMemory(NamedTuple):
    """Positions and the rows that read them; :meth:`gather` is the definition."""

    steps: Steps
    """``T`` positions, each with its own rows."""
    rows: Tensor
    """Integers ``[N, T]``: the stored row that each row reads at each position."""
    lengths: Tensor | None = None
    """Integers ``[N]``: the number of positions that a row may attend to; None for all."""
    firsts: Tensor | None = None
    """Integers ``[N]``: the first position that a row may attend to; None for the very first."""

    def read(
        self, query: Tensor, scale: float, shared: int | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """The context ``[N, H, E]`` of ``softmax(scale · q · kᵀ + bias)`` for ``query [N, H, D]``.

        With ``shared``, the values are the first ``shared`` components of the keys. ``bias`` is
        broadcastable to ``[N, H, T]``.
        """
        return self.steps.read(query, self.rows, self.lengths, scale, self.firsts, shared, bias)

    def in_c(self) -> StepsInC:
        """The arguments of the C kernel; this object must outlive them."""
        return self.steps.in_c(self.rows, self.lengths, self.firsts)

    def gather(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys ``[N, G, T, D]``, values ``[N, G, T, E]``, and the mask ``[N, 1, 1, T]``, if any."""
        key, value = self.steps.gather(self.rows)
        return key, value, self.steps.allowed(self.lengths, self.firsts)
