"""A batch of any columns, as named ragged tensors.

Shapes: B rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.data.batching import FEWEST, even_rows
from heedful.data.columns import Codec, Column, Columns, columns_of


@dataclass(frozen=True)
class RaggedTensor:
    """Rows of different sizes.

    Attributes:
        values: ``[all, …inner]``: uint8 for pictures, int64 for other integers; float32.
        lengths: ``[B]`` number of values of each row.
        shapes: ``[B, free]`` the sizes of each row if several dimensions are free; else None.
    """

    values: Tensor
    lengths: Tensor
    shapes: Tensor | None = None

    @classmethod
    def of(cls, column: Column) -> "RaggedTensor":
        """Some rows of a column."""
        picture = column.shapes is not None and column.values.dtype == np.uint8
        whole = column.values.dtype.kind in "iu" and not picture
        values = column.values.astype(np.int64) if whole else column.values
        shapes = None if column.shapes is None else torch.from_numpy(column.shapes)
        return cls(torch.from_numpy(values), torch.from_numpy(column.lengths), shapes)

    def to(self, device: torch.device | str) -> "RaggedTensor":
        """The same on ``device``."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "RaggedTensor":
        shapes = None if self.shapes is None else change(self.shapes)
        return RaggedTensor(change(self.values), change(self.lengths), shapes)

    def rows(self, rows: slice) -> "RaggedTensor":
        """A range of rows."""
        before = int(self.lengths[: rows.start].sum())
        own = self.lengths[rows]
        return RaggedTensor(
            self.values[before : before + int(own.sum())],
            own,
            None if self.shapes is None else self.shapes[rows],
        )

    def padded(self, fill: float = 0) -> Tensor:
        """``[B, …free, …inner]``, where ``fill`` pads smaller rows.

        Example:
            >>> RaggedTensor(torch.tensor([5, 6, 7]), torch.tensor([1, 2])).padded()
            tensor([[5, 0],
                    [6, 7]])
        """
        if self.shapes is None:
            width = int(self.lengths.max())
            found = self.values.new_full((len(self.lengths), width, *self.values.shape[1:]), fill)
            places = torch.arange(width, device=found.device)
            found[places < self.lengths[:, None]] = self.values
            return found
        found = self.values.new_full((len(self.shapes), *self.shapes.amax(0).tolist()), fill)
        pieces = self.values.split(self.lengths.tolist())
        for row, piece, shape in zip(found, pieces, self.shapes.tolist(), strict=True):
            row[tuple(map(slice, shape))] = piece.reshape(shape)
        return found


@dataclass(frozen=True)
class ColumnBatch:
    """Rows of a store; `heedful.data.batching.StoreBatches` makes it from any columns.

    Attributes:
        columns: the rows of each column.
        weight: B.
    """

    columns: Mapping[str, RaggedTensor]
    weight: int

    @classmethod
    def of(cls, columns: Columns) -> "ColumnBatch":
        """Rows of all columns; can be the argument ``collate`` of ``StoreBatches``."""
        found = {name: RaggedTensor.of(column) for name, column in columns.items()}
        return cls(found, len(next(iter(found.values())).lengths))

    @classmethod
    def of_rows(
        cls, rows: Sequence[Mapping[str, Any]], codecs: Mapping[str, Codec]
    ) -> "ColumnBatch":
        """Rows that are not in a store, such as inputs to predict.

        The arguments and errors are those of :func:`heedful.data.columns.columns_of`.
        """
        return cls.of(columns_of(rows, codecs))

    def __getitem__(self, name: str) -> RaggedTensor:
        return self.columns[name]

    def to(self, device: torch.device | str) -> "ColumnBatch":
        """The same batch on ``device``."""
        moved = {name: column.to(device) for name, column in self.columns.items()}
        return ColumnBatch(moved, self.weight)

    def split(self, count: int, fewest: int = FEWEST) -> list["ColumnBatch"]:
        """Split into at most ``count`` batches of similar size, at least ``fewest`` values each."""
        values = torch.stack([column.lengths for column in self.columns.values()]).sum(0)
        return [
            ColumnBatch(
                {name: column.rows(rows) for name, column in self.columns.items()},
                rows.stop - rows.start,
            )
            for rows in even_rows(values, count, fewest)
        ]
