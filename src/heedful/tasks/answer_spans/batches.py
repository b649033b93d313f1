"""Batches of training windows with the boundaries of their answers.

Shapes: B rows, L tokens of a row.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.basics.symbols import END
from heedful.data.batching import FEWEST, StoreBatches, even_rows, padded
from heedful.data.columns import Columns
from heedful.data.store import Store
from heedful.models.encoders import Sequences
from heedful.tasks.texts.rows import rows_read


@dataclass(frozen=True)
class SpanBatch:
    """Windows over texts, each with its question.

    Attributes:
        rows: the input of the encoder.
        boundaries: [B, 2] positions of the first and of the last token of the answer; 0 for a
            window without it.
        weight: number of rows.
    """

    rows: Sequences
    boundaries: Tensor
    weight: int

    def to(self, device: torch.device | str) -> "SpanBatch":
        """The same batch on ``device``."""
        rows = Sequences(*(part.to(device, non_blocking=True) for part in self.rows))
        return SpanBatch(rows, self.boundaries.to(device, non_blocking=True), self.weight)

    def split(self, count: int, fewest: int = FEWEST) -> list["SpanBatch"]:
        """Split into at most ``count`` batches of similar size, each padded to its longest row."""
        return [self._some(rows) for rows in even_rows(self.rows.lengths, count, fewest)]

    def _some(self, rows: slice) -> "SpanBatch":
        tokens, lengths, segments = (part[rows] for part in self.rows)
        width = int(lengths.max())
        read = Sequences(tokens[:, :width], lengths, segments[:, :width])
        return SpanBatch(read, self.boundaries[rows], len(lengths))


class SpanBatches(StoreBatches[SpanBatch]):
    """Batches from a store with the columns ``tokens`` and ``boundaries``.

    Args:
        folder: the store; its rows are without the first BEGIN and the last END.
        batch_tokens: maximum tokens of a batch.
        window: number of examples that are shuffled together; all if None.
        verified: compare files with their hashes when they are first read.

    Raises:
        UserError: the store is empty, or a file is missing or damaged.
    """

    def __init__(
        self,
        folder: Path,
        batch_tokens: int,
        *,
        window: int | None = None,
        verified: bool = False,
    ) -> None:
        store = Store.open(folder, verified=verified)
        super().__init__(store, batch_tokens, _collate, by=("tokens",), window=window)


def _collate(columns: Columns) -> SpanBatch:
    tokens = columns["tokens"]
    rows = rows_read(padded(tokens, END), torch.from_numpy(tokens.lengths + 1))
    boundaries = padded(columns["boundaries"]).long()
    return SpanBatch(rows, boundaries, len(boundaries))
