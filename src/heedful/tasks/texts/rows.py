"""Batches of rows for encoders, with labels.

Shapes: B rows, L tokens, BEGIN and the ENDs included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.data.batching import FEWEST, StoreBatches, even_rows, padded
from heedful.data.columns import Columns
from heedful.data.examples import Tagged
from heedful.data.store import Store
from heedful.data.vocabularies import encode_words
from heedful.data.vocabulary import Vocabulary
from heedful.inference.sliding_windows import room_for_text, spans
from heedful.models.encoders import Sequences


@dataclass(frozen=True)
class RowBatch:
    """Rows with labels.

    Attributes:
        rows: the input of the encoder.
        labels: [B] the class of each row, or its number in float32; [B, C] in float32, 1 for each
            label that a row has; or [B, L] 1 + the tag of each token that begins a word, 0
            elsewhere.
        weight: number of labels.
    """

    rows: Sequences
    labels: Tensor
    weight: int

    def to(self, device: torch.device | str) -> "RowBatch":
        """The same batch on ``device``."""
        rows = Sequences(*(part.to(device, non_blocking=True) for part in self.rows))
        return RowBatch(rows, self.labels.to(device, non_blocking=True), self.weight)

    def split(self, count: int, fewest: int = FEWEST) -> list["RowBatch"]:
        """Split into at most ``count`` batches of similar size, each padded to its longest row."""
        return [self._some(rows) for rows in even_rows(self.rows.lengths, count, fewest)]

    def _some(self, rows: slice) -> "RowBatch":
        tokens, lengths, segments = (part[rows] for part in self.rows)
        width, labels = int(lengths.max()), self.labels[rows]
        weight = len(labels)
        if labels.dim() > 1 and not labels.is_floating_point():
            labels = labels[:, :width]
            weight = int((labels > 0).sum())
        return RowBatch(Sequences(tokens[:, :width], lengths, segments[:, :width]), labels, weight)


Labels = Literal["row", "token", "number", "several"]


class RowBatches(StoreBatches[RowBatch]):
    """Batches from a store with the columns ``tokens`` and ``labels``.

    Args:
        folder: the store; its rows are without the first BEGIN and the last END.
        batch_tokens: maximum tokens of a batch.
        labels: what has a label: each row, each token, or each row, whose label is a number or has
            several labels.
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
        labels: Labels,
        window: int | None = None,
        verified: bool = False,
    ) -> None:
        renamed = {"source": "tokens", "target": "labels"}
        store = Store.open(folder, renamed=renamed, verified=verified)
        by = ("tokens", "labels")
        super().__init__(store, batch_tokens, _COLLATES[labels], by=by, window=window)


def _rated(columns: Columns) -> RowBatch:
    labels = torch.from_numpy(columns["labels"].values.astype(np.float32))
    return RowBatch(_rows(columns), labels, len(labels))


def _labelled(columns: Columns) -> RowBatch:
    rows = _rows(columns)
    labels = torch.from_numpy(columns["labels"].values.astype(np.int64))
    return RowBatch(rows, labels, len(labels))


def _tagged(columns: Columns) -> RowBatch:
    rows, tags = _rows(columns), padded(columns["labels"])
    labels = torch.zeros_like(rows.tokens)
    labels[:, 1 : 1 + tags.shape[1]] = tags
    return RowBatch(rows, labels, max(1, int((labels > 0).sum())))


_COLLATES = {"row": _labelled, "token": _tagged, "number": _rated, "several": _rated}


def _rows(columns: Columns) -> Sequences:
    tokens = columns["tokens"]
    return rows_read(padded(tokens, END), torch.from_numpy(tokens.lengths + 1))


def rows_read(source: Tensor, lengths: Tensor) -> Sequences:
    """Rows without their BEGIN ``[B, L − 1]`` and the lengths of those, as encoders read them."""
    tokens = torch.cat([torch.full_like(source[:, :1], BEGIN), source], dim=1)
    lengths = lengths + 1
    ends = (tokens == END).long()
    inside = torch.arange(tokens.shape[1]) < lengths[:, None]
    segments = ((ends.cumsum(1) - ends) > 0) & inside
    return Sequences(tokens, lengths, segments.long())


def tagged_rows(
    example: Tagged,
    numbers: Mapping[str, int],
    vocabulary: Vocabulary,
    limit: int,
    *,
    untagged: int = 0,
) -> Iterator[tuple[list[int], list[int]]]:
    """The windows of a sentence, of at most ``limit`` tokens with BEGIN and END.

    Yields:
        A window's tokens; for each token, 1 + the number of its word's tag, 0 within a word, and
        ``untagged`` for words without a tag.
    """
    tokens, firsts = encode_words(vocabulary, example.words)
    tags = [0] * len(tokens)
    for place, tag in zip(firsts, example.tags, strict=True):
        tags[place] = 1 + numbers[tag] if tag else untagged
    for start, end in spans(len(tokens), room_for_text(limit)):
        yield tokens[start:end], tags[start:end]
