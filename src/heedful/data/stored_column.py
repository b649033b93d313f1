"""A memory-mapped column of a shard."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.columns import Codec, Column
from heedful.data.mapped import OFFSET, Integers, Mapped, damaged, gathered


class StoredColumn:
    """The values of a column, and the positions of its rows.

    Args:
        codec: the storage format.
        files: the paths of ``values`` and, if they exist, ``offsets`` and ``shapes``.
        rows: number of rows.
        total: number of values.
        stride: distance between rows in ``offsets``; above 1 if columns share files.
        phase: index of the first row in ``offsets``.

    Raises:
        UserError: a file is missing or damaged.
    """

    def __init__(
        self,
        codec: Codec,
        files: Mapping[str, Path],
        rows: int,
        total: int,
        *,
        stride: int = 1,
        phase: int = 0,
    ) -> None:
        self.codec, self.total = codec, total
        width = prod(codec.inner) if codec.free < 2 else 1
        self._mapped = {"values": Mapped(files["values"], np.dtype(codec.dtype), total * width)}
        shape = (-1, *codec.inner) if codec.free < 2 and codec.inner else (-1,)
        self.values: NDArray[Any] = self._mapped["values"].array.reshape(shape)
        self._place = (stride, phase)
        self._offsets: Integers | None = None
        self._shapes: Integers | None = None
        if "offsets" in files:
            self._mapped["offsets"] = Mapped(files["offsets"], OFFSET, stride * rows + 1)
            self._offsets = self._mapped["offsets"].array
            if self._offsets[0] != 0 or self._offsets[-1] != total:
                raise damaged(files["offsets"])
        elif total != rows:
            raise damaged(files["values"], f": {total:,} values of {rows:,} rows")
        if "shapes" in files:
            self._mapped["shapes"] = Mapped(files["shapes"], OFFSET, codec.free * rows)
            self._shapes = self._mapped["shapes"].array.reshape(-1, codec.free)

    def bounds(self, rows: Integers) -> tuple[Integers, Integers]:
        """The start and end of each row.

        Raises:
            UserError: the offsets are damaged.
        """
        if self._offsets is None:
            return rows, rows + 1
        stride, phase = self._place
        places = stride * rows + phase
        starts, ends = self._offsets[places], self._offsets[places + 1]
        wrong = (starts > ends).any()
        if wrong or (len(rows) and (starts.min() < 0 or ends.max() > self.total)):
            raise damaged(self._mapped["offsets"].path)
        return starts, ends

    def lengths(self, rows: Integers) -> Integers:
        """The number of values of each row."""
        starts, ends = self.bounds(rows)
        return ends - starts

    def read(self, rows: Integers) -> Column:
        """Read rows in the given order.

        Raises:
            UserError: a file is damaged.
        """
        starts, ends = self.bounds(rows)
        values = gathered(self.values, starts, ends - starts)
        below = self.codec.below
        if below is not None and len(values) and values.max() >= below:
            raise damaged(self._mapped["values"].path)
        if self._shapes is None:
            return Column(values, ends - starts)
        shapes = self._shapes[rows]
        if (shapes < 0).any() or (shapes.prod(axis=1) != ends - starts).any():
            raise damaged(self._mapped["shapes"].path)
        return Column(values, ends - starts, shapes)

    def release(self) -> None:
        """Unmap the pages read so far: see `Mapped.release`."""
        for mapped in self._mapped.values():
            mapped.release()
