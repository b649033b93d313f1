"""Attention of one query per row over keys and values read in place, in C (``cached_attention.c``).

Shapes: N rows, H query heads, G key and value heads, T positions, D key width, E value width, R
rows of a step.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.basics.addresses import readable
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows

_SMALL = 1 << 18  # multiplications; below, one thread is faster
_PLACES = 4  # addresses of keys and values, and their row strides


class StepsInC(ctypes.Structure):
    """``struct steps``: the addresses of the positions, and the rows to read."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_strides", "value_strides")),
        *((name, ctypes.c_void_p) for name in ("index", "lengths", "firsts")),
        *((name, ctypes.c_int64) for name in ("index_row", "index_position", "positions")),
        ("bias", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("bias_row", "bias_head")),
    ]


class HeadsInC(ctypes.Structure):
    """``struct heads``: H, G, D, E and the scale of dot products."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("heads", "groups", "key_width", "value_width")),
        ("scale", ctypes.c_double),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel; None if it is not available, which prints a notice once."""
    return compiled_library(SOURCES / "cached_attention.c", "search runs")


def can_step(like: Tensor) -> bool:
    """Whether steps of such tensors can be read in place: float32 on the CPU, without gradients,
    if a compiler is available."""
    return (
        like.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and readable(like)
        and library() is not None
    )


class Steps:
    """A key–value cache whose positions stay in the tensors of the step that computed them.

    These tensors are never moved or modified. Copies share them. For each row of the search, an
    index gives its row in each step.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor]] = []
        self.length = 0
        self._keep_table(np.empty((_PLACES, 16), np.int64))

    def _keep_table(self, table: NDArray[np.int64]) -> None:
        self._table, self._address = table, table.ctypes.data

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add positions: ``key [R, G, p, D]``, ``value [R, G, p, E]``, float32 on the CPU.

        The output of a projection is stored without a copy. Other memory layouts are copied.
        """
        self.take(*(part.transpose(1, 2).contiguous() for part in (key, value)))

    def take(self, key: Tensor, value: Tensor) -> None:
        """Add positions: contiguous ``key [R, p, G, D]`` and ``value [R, p, G, E]``."""
        _, positions, heads, width = key.shape
        first, end = self.length, self.length + positions
        if end > self._table.shape[1]:
            larger = np.empty((_PLACES, max(end, 2 * self._table.shape[1])), np.int64)
            larger[:, :first] = self._table[:, :first]
            self._keep_table(larger)
        own, others = heads * width, heads * value.shape[3]
        if positions == 1:
            self._table[:, first] = key.data_ptr(), value.data_ptr(), own, others
        else:
            places = np.arange(positions)
            self._table[0, first:end] = key.data_ptr() + 4 * own * places
            self._table[1, first:end] = value.data_ptr() + 4 * others * places
            self._table[2, first:end] = positions * own
            self._table[3, first:end] = positions * others
        self.parts.append((key, value))
        self.length = end

    def copy(self) -> Self:
        """A copy to which positions can be added independently."""
        other = type(self)()
        other.parts, other.length = list(self.parts), self.length
        other._keep_table(self._table.copy())
        return other

    def after(self, count: int, kept: Sequence[Tensor] | None = None) -> Self:
        """A copy without the first ``count`` positions. Each position must have been added alone.

        Args:
            count: the number of positions to drop.
            kept: for each remaining position, the rows ``[R']`` to keep, in order; default: all
                rows, without copying.
        """
        other, parts = type(self)(), self.parts[count:]
        if kept is None:
            other.parts, other.length = parts, self.length - count
            other._keep_table(self._table[:, count:].copy())
            return other
        for (key, value), rows in zip(parts, kept, strict=True):
            other.take(key.index_select(0, rows), value.index_select(0, rows))
        return other

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Contiguous keys ``[N, G, T, D]`` and values ``[N, G, T, E]`` for ``index [N, T]``."""
        found = []
        for side in range(2):
            rows, first = [], 0
            for part in self.parts:
                positions = part[side].shape[1]
                own = index[:, first : first + positions].clamp(max=len(part[side]) - 1)
                rows.append(part[side][own, torch.arange(positions)])
                first += positions
            found.append(torch.cat(rows, dim=1).transpose(1, 2))
        return found[0], found[1]

    def in_c(self, index: Tensor, lengths: Tensor | None, firsts: Tensor | None = None) -> StepsInC:
        """The argument for C. The tensors and this object must outlive it.

        Args:
            index: integers ``[N, T]``: the row to read at each position; may be expanded.
            lengths: contiguous integers ``[N]``: the number of positions to read; None: all from
                the start.
            firsts: contiguous integers ``[N]``: the first position to read; None: 0.
        """
        address, row = self._address, self._table.strides[0]
        return StepsInC(
            *(address, address + row, address + 2 * row, address + 3 * row),
            index.data_ptr(),
            None if lengths is None else lengths.data_ptr(),
            None if firsts is None else firsts.data_ptr(),
            *index.stride(),
            self.length,
        )

    def read(
        self,
        query: Tensor,
        index: Tensor,
        lengths: Tensor | None,
        scale: float,
        firsts: Tensor | None = None,
        shared: int | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The context ``[N, H, E]`` of ``softmax(scale · q · kᵀ + bias)`` for ``query [N, H, D]``.

        :meth:`plain_read` computes the same if :func:`can_step` is false.

        Args:
            query: one query for each row and head.
            index: integers ``[N, T]``: the row to read at each position; may be expanded.
            lengths: integers ``[N]``: the number of positions to read; None: all from the start.
                A row with length 0 gets zeros.
            scale: factor of the dot products.
            firsts: integers ``[N]``: the first position to read; None: 0.
            shared: the first ``shared`` components of the keys are the values, E = ``shared``;
                None: the values are those that were added.
            bias: what is added to the scores, broadcastable to ``[N, H, T]``; None for nothing.

        Raises:
            ValueError: a shape is wrong.
        """
        found = library() if can_step(query) else None
        rows, heads, width = query.shape
        key, value = self.parts[0]
        if index.shape != (rows, self.length) or index.dtype != torch.long:
            raise ValueError(f"index has shape {list(index.shape)}; expected {[rows, self.length]}")
        if width != key.shape[3] or heads % key.shape[2]:
            raise ValueError(f"queries {list(query.shape)} do not match keys {list(key.shape)}")
        if shared is not None and (key.shape[2] != 1 or not 0 < shared <= width):
            raise ValueError(f"{shared} shared components do not match keys {list(key.shape)}")
        if found is None:
            return self.plain_read(query, index, lengths, scale, firsts, shared, bias)
        query = query if query.stride()[1:] == (width, 1) else query.contiguous()
        lengths = None if lengths is None else lengths.contiguous()
        firsts = None if firsts is None else firsts.contiguous()
        wide = value.shape[3] if shared is None else shared
        out = query.new_empty(rows, heads, wide)
        steps = self.in_c(index, lengths, firsts)
        if shared is not None:
            steps.values, steps.value_strides = steps.keys, steps.key_strides
        if bias is not None:
            bias = bias.to(query.dtype).broadcast_to(rows, heads, self.length)
            bias = bias if bias.stride(2) == 1 else bias.contiguous()
            steps.bias, (steps.bias_row, steps.bias_head, _) = bias.data_ptr(), bias.stride()
        given = [
            ctypes.c_void_p(query.data_ptr()),
            ctypes.c_int64(query.stride(0)),
            ctypes.c_void_p(out.data_ptr()),
            ctypes.byref(steps),
            ctypes.byref(HeadsInC(heads, key.shape[2], width, wide, scale)),
        ]
        work = rows * heads * self.length * width
        over_rows(
            found.heedful_cached_attention,
            given,
            rows,
            1 if work < _SMALL else torch.get_num_threads(),
        )
        return out

    def plain_read(
        self,
        query: Tensor,
        index: Tensor,
        lengths: Tensor | None,
        scale: float,
        firsts: Tensor | None = None,
        shared: int | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The plain reference of :meth:`read`, with gradients and for any dtype."""
        key, value = self.gather(index)
        value = value if shared is None else key[..., :shared]
        each = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(each, 1) for part in (key, value))
        scores = scale * (query.unsqueeze(-2) @ key.mT)
        scores = scores if bias is None else scores + bias.unsqueeze(-2)
        allowed = self.allowed(lengths, firsts)
        if allowed is None:
            return (torch.softmax(scores, -1) @ value).squeeze(-2)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1).masked_fill(~allowed, 0.0)
        return (weights @ value).squeeze(-2)

    def allowed(self, lengths: Tensor | None, firsts: Tensor | None = None) -> Tensor | None:
        """A mask ``[N, 1, 1, T]`` of the positions to read; None if all rows read all positions."""
        if lengths is None and firsts is None:
            return None
        places = torch.arange(self.length)
        begins = 0 if firsts is None else firsts.unsqueeze(1)
        ends = self.length if lengths is None else begins + lengths.unsqueeze(1)
        return ((places >= begins) & (places < ends))[:, None, None]


class PackedSteps(Steps):
    """Keys and values of concatenated sequences without padding.

    An index gives the token at which a row's sequence begins, the same for all positions.

    Args:
        key: float32 ``[M, G, D]`` on the CPU for M tokens; only the first dimension can have a
            larger stride.
        value: likewise ``[M, G, E]``.
        longest: the length T of the longest sequence.
    """

    def __init__(self, key: Tensor, value: Tensor, longest: int) -> None:
        super().__init__()
        self.parts, self.length = [(key.unsqueeze(1), value.unsqueeze(1))], longest
        self._keep_table(np.empty((_PLACES, longest), np.int64))
        for place, part in enumerate((key, value)):
            self._table[place] = part.data_ptr() + 4 * part.stride(0) * np.arange(longest)
            self._table[place + 2] = part.stride(0)

    def copy(self) -> Self:
        """Returns itself, because positions are never added."""
        return self

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Steps.gather`; values after the end of a sequence are arbitrary."""
        key, value = (part.squeeze(1) for part in self.parts[0])
        places = (index + torch.arange(self.length)).clamp(max=len(key) - 1)
        return key[places].transpose(1, 2), value[places].transpose(1, 2)


class JoinedSteps(Steps):
    """Several groups of positions in a row, without copying. Each row reads one group.

    The index of a row is only valid for the positions of its own group.
    """

    def __init__(self, groups: Sequence[Steps]) -> None:
        super().__init__()
        self._groups = list(groups)
        self.parts = [part for group in groups for part in group.parts]
        self.length = sum(group.length for group in groups)
        tables = [group._table[:, : group.length] for group in groups]
        self._keep_table(np.concatenate(tables, axis=1))

    def copy(self) -> Self:
        """Returns itself, because positions are never added."""
        return self

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Steps.gather`; values outside a row's own group are arbitrary."""
        found, first = [], 0
        for group in self._groups:
            found.append(group.gather(index[:, first : first + group.length]))
            first += group.length
        keys, values = zip(*found, strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)
