"""Columns: a named part of all examples, and its storage format.

A row of a column is an array with ``free`` leading dimensions of any size, followed by the fixed
dimensions ``inner``. A label has neither. Tokens ``[T]`` have one free dimension, links
``[N, 2]`` and sound frames ``[T, F]`` one free and one inner, a picture ``[H, W, C]`` three free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.mapped import Integers, gathered


@dataclass(frozen=True)
class Codec:
    """The storage format of a column.

    Attributes:
        kind: the type of data: ``tokens``, ``texts``, ``label``, ``number``, ``links``, ``image``,
            ``sound`` or ``text``.
        dtype: NumPy name of the type of a value.
        free: number of leading dimensions whose sizes differ between rows.
        inner: sizes of the remaining dimensions.
        below: exclusive upper bound of values; None for no bound.
    """

    kind: str
    dtype: str
    free: int = 0
    inner: tuple[int, ...] = ()
    below: int | None = None

    def column(self, rows: Sequence[Any]) -> "Column":
        """Convert rows (numbers, sequences, arrays; texts as ``str``) to a column.

        Raises:
            ValueError: a row has a wrong shape or a value out of range.
        """
        if self.kind == "tokens":  # lists of numbers: one array for all is much faster
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            tokens = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
            return self.checked(Column(tokens, lengths))
        arrays = [self._array(row, number) for number, row in enumerate(rows)]
        width = self.inner if self.free < 2 else ()
        flat = [array.reshape(-1, *width) for array in arrays]
        values = np.concatenate(flat) if flat else np.empty((0, *width), self.dtype)
        sizes = np.array([array.shape[: self.free] for array in arrays], np.int64)
        shapes = sizes.reshape(-1, self.free) if self.free > 1 else None
        return self.checked(
            Column(values, np.fromiter(map(len, flat), np.int64, len(flat)), shapes)
        )

    def _array(self, row: Any, number: int) -> NDArray[Any]:
        if isinstance(row, str):
            row = np.frombuffer(row.encode(), np.uint8)
        array = np.asarray(row)
        if not array.size and self.free == 1:
            array = array.reshape(0, *self.inner).astype(self.dtype)  # [] has a type of floats
        if array.ndim != self.free + len(self.inner) or array.shape[self.free :] != self.inner:
            wanted = [*["any"] * self.free, *map(str, self.inner)]
            raise ValueError(
                f"row {number} of a column of kind '{self.kind}' has the shape "
                f"{list(array.shape)} instead of [{', '.join(wanted)}]"
            )
        return array

    def checked(self, column: "Column") -> "Column":
        """Convert the values of a column to the stored type.

        Raises:
            ValueError: a value is out of range.
        """
        kind, values = np.dtype(self.dtype), column.values
        if kind.kind in "iu" and values.size:
            limits = np.iinfo(kind)
            most = limits.max if self.below is None else min(limits.max, self.below - 1)
            if values.dtype.kind not in "iub" or values.min() < limits.min or values.max() > most:
                raise ValueError(
                    f"values of a column of kind '{self.kind}' are whole numbers from {limits.min} "
                    f"to {most}"
                )
        return column._replace(values=values.astype(kind, copy=False))

    def decoded(self, row: NDArray[Any]) -> Any:
        """Decode a row: a text to ``str``, a label to a number, all others to arrays."""
        if self.kind == "text":
            return row.tobytes().decode()
        return row.item() if not self.free and not self.inner else row


def tokens(vocabulary: int) -> Codec:
    """Token ids ``[T]`` of a vocabulary of this size."""
    return Codec("tokens", "<u2" if vocabulary <= 1 << 16 else "<u4", 1, (), vocabulary)


def texts(vocabulary: int) -> Codec:
    """Token ids ``[N, T]`` of several texts, padded to the longest."""
    return Codec("texts", "<u2" if vocabulary <= 1 << 16 else "<u4", 2, (), vocabulary)


def label(classes: int) -> Codec:
    """A number from 0 to ``classes - 1``."""
    return Codec("label", "<u2" if classes <= 1 << 16 else "<u4", 0, (), classes)


def number(*inner: int) -> Codec:
    """A float32 number, or an array of this shape."""
    return Codec("number", "<f4", 0, inner)


def links(longest: int) -> Codec:
    """Links ``[N, 2]`` from source to target tokens; a side has at most ``longest`` tokens."""
    return Codec("links", "<u2" if longest <= 1 << 16 else "<u4", 1, (2,))


def image() -> Codec:
    """Pictures ``[H, W, C]`` of bytes, of any size."""
    return Codec("image", "|u1", 3)


def sound(features: int) -> Codec:
    """Sound frames ``[T, features]``, float32."""
    return Codec("sound", "<f4", 1, (features,))


def text() -> Codec:
    """Texts, stored as UTF-8."""
    return Codec("text", "|u1", 1)


class Column(NamedTuple):
    """Rows of a column, concatenated.

    Shapes: B rows.
    """

    values: NDArray[Any]
    """``[all, …inner]``, or ``[all]`` numbers where rows have several free dimensions."""
    lengths: Integers
    """``[B]``: number of values of each row; 1 if no dimension is free."""
    shapes: Integers | None = None
    """``[B, free]`` if rows have several free dimensions."""

    @property
    def starts(self) -> Integers:
        """The index of the first value of each row."""
        found: Integers = np.cumsum(self.lengths) - self.lengths
        return found

    def take(self, rows: Integers, starts: Integers | None = None) -> "Column":
        """Select rows by index; pass ``starts`` if already known."""
        starts = self.starts if starts is None else starts
        return Column(
            gathered(self.values, starts[rows], self.lengths[rows]),
            self.lengths[rows],
            None if self.shapes is None else self.shapes[rows],
        )

    def part(self, first: int, end: int) -> "Column":
        """Rows ``first`` to ``end`` (exclusive), without copying."""
        start = int(self.lengths[:first].sum())
        return Column(
            self.values[start : start + int(self.lengths[first:end].sum())],
            self.lengths[first:end],
            None if self.shapes is None else self.shapes[first:end],
        )

    def rows(self, codec: Codec) -> list[NDArray[Any]]:
        """Each row in its own shape."""
        found = np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []
        if not codec.free:
            return [row[0] for row in found]
        if self.shapes is None:
            return found
        sizes = map(tuple, self.shapes)
        return [row.reshape(size) for row, size in zip(found, sizes, strict=True)]


Columns = Mapping[str, Column]


def columns_of(rows: Sequence[Mapping[str, Any]], codecs: Mapping[str, Codec]) -> Columns:
    """Convert rows to columns; columns that the rows do not have are omitted.

    Args:
        rows: one or more rows with the same names.
        codecs: the codec of each name.

    Raises:
        ValueError: a value does not fit its codec.
    """
    return {
        name: codec.column([row[name] for row in rows])
        for name, codec in codecs.items()
        if name in rows[0]
    }
