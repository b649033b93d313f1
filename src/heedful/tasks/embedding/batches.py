"""Batches of texts to embed, compared with each other.

Shapes: B examples, n texts of an example, L tokens.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from heedful.basics.symbols import END
from heedful.data.batching import FEWEST, StoreBatches, padded
from heedful.data.columns import Column, Columns
from heedful.data.store import Store
from heedful.models.encoders import Sequences
from heedful.tasks.texts.rows import rows_read

COLUMNS = ("tokens", "similar", "other")
"""The columns of an example's texts in a store: the text, a similar one, one that is not."""


@dataclass(frozen=True)
class SimilarBatch:
    """Examples of texts.

    Attributes:
        rows: ``[n·B, L]``: all first texts, then all second texts, then all third texts.
        texts: ``[n, B]`` numbers of the texts; equal texts have equal numbers.
        ratings: ``[B]`` wanted cosines of first and second texts; None for similar texts.
        weight: B.
    """

    rows: Sequences
    texts: Tensor
    ratings: Tensor | None
    weight: int

    def to(self, device: torch.device | str) -> "SimilarBatch":
        """The same batch on ``device``."""
        rows = Sequences(*(part.to(device, non_blocking=True) for part in self.rows))
        ratings = None if self.ratings is None else self.ratings.to(device, non_blocking=True)
        return SimilarBatch(rows, self.texts.to(device, non_blocking=True), ratings, self.weight)

    def split(self, count: int, fewest: int = FEWEST) -> list["SimilarBatch"]:
        """The batch alone: the examples are compared with each other."""
        return [self]


class SimilarBatches(StoreBatches[SimilarBatch]):
    """Batches from a store with the first of :data:`COLUMNS`, and ``rating`` if there are ratings.

    A batch has as many examples as make ``batch_tokens`` with the longest text. Their number and
    order depend on the position only. If an example has one text, it is read twice.

    Args:
        folder: the store; its rows are without BEGIN and END.
        batch_tokens: maximum tokens of the texts of one column of a batch.
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
        by = [name for name in COLUMNS if name in store.codecs]
        super().__init__(store, batch_tokens, _collate, by=by, window=window)


def _collate(columns: Columns) -> SimilarBatch:
    sides = [columns[name] for name in COLUMNS if name in columns]
    sides = sides * 2 if len(sides) == 1 else sides
    joined = Column(
        np.concatenate([side.values for side in sides]),
        np.concatenate([side.lengths for side in sides]),
    )
    rows = rows_read(padded(joined, END), torch.from_numpy(joined.lengths + 1))
    count = len(sides[0].lengths)
    ratings = None
    if "rating" in columns:
        ratings = torch.from_numpy(columns["rating"].values.astype(np.float32))
    numbers: dict[bytes, int] = {}
    parts = np.split(joined.values, np.cumsum(joined.lengths)[:-1])
    keys = [numbers.setdefault(part.tobytes(), len(numbers)) for part in parts]
    return SimilarBatch(rows, torch.tensor(keys).view(len(sides), count), ratings, count)
