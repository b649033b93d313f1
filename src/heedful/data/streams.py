"""Streams: concatenated documents for language models, and windows of them.

A stream is a store with one shard and a column ``tokens``: a row with END only, then one row per
document with its tokens and END.
Shapes: B windows, T tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.symbols import END, PAD
from heedful.data import columns
from heedful.data.batching import FEWEST, even_rows, mix, permute
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.store import Store, StoreWriter

_TOKENS_AT_ONCE = 1 << 20


def write_stream(documents: Iterable[Sequence[int]], folder: Path, vocabulary: int) -> int:
    """Write a stream of documents into ``folder``, atomically.

    Args:
        documents: the tokens of each document, without END.
        folder: the folder; an existing one is replaced.
        vocabulary: number of symbols.

    Returns:
        The number of tokens, including one END per document.
    """
    codecs = {"tokens": columns.tokens(vocabulary)}
    rows, count, number, waiting = [[END]], 0, 0, 0
    with (
        atomic_folder(folder) as beside,
        StoreWriter(beside, codecs, shard_rows=None) as writer,
    ):
        for tokens in documents:
            rows.append([*tokens, END])
            count += len(tokens) + 1
            waiting += len(tokens) + 1
            number += 1
            if waiting >= _TOKENS_AT_ONCE:
                writer.add({"tokens": codecs["tokens"].column(rows)})
                rows, waiting = [], 0
        writer.add({"tokens": codecs["tokens"].column(rows)})
        writer.finish({"documents": number})
    return count


class Stream:
    """A stream that `write_stream` wrote, opened without reading it.

    Raises:
        UserError: the folder is not a stream, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        store = Store.open(folder)
        try:
            self._tokens = store.flat("tokens")
            self.tokens, self.documents = self._tokens.total - 1, int(store.facts["documents"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{folder}: not a stream; encode the corpus again") from error
        self.folder = folder

    def windows(self, starts: Sequence[int], width: int) -> Tensor:
        """The ``width`` tokens from each start on ``[B, width]``; PAD beyond the end."""
        stream = self._tokens.values
        rows = np.full((len(starts), width), PAD, np.int64)
        for row, start in zip(rows, starts, strict=True):
            found = stream[start : start + width]
            row[: len(found)] = found
        self._tokens.release()
        return torch.from_numpy(rows)


@dataclass(frozen=True)
class WindowBatch:
    """Windows of a stream.

    Attributes:
        tokens: [B, T] the input tokens.
        targets: [B, T] the next tokens; PAD after the end of the stream.
        weight: number of targets.
        documents: [B, T] the number of each token's document in its row, if documents are packed.
    """

    tokens: Tensor
    targets: Tensor
    weight: int
    documents: Tensor | None = None

    def to(self, device: torch.device | str) -> "WindowBatch":
        """The same batch on ``device``."""
        return WindowBatch(
            self.tokens.to(device, non_blocking=True),
            self.targets.to(device, non_blocking=True),
            self.weight,
            None if self.documents is None else self.documents.to(device, non_blocking=True),
        )

    def split(self, count: int, fewest: int = FEWEST) -> list["WindowBatch"]:
        """Split into at most ``count`` batches of similar size."""
        real = (self.targets != PAD).sum(1)
        return [
            WindowBatch(
                self.tokens[rows],
                self.targets[rows],
                int(real[rows].sum()),
                None if self.documents is None else self.documents[rows],
            )
            for rows in even_rows(real, count, fewest)
        ]


class WindowBatches:
    """Batches of windows of ``context`` tokens, in an order that depends on (seed, epoch) only.

    An epoch predicts every token of the stream once. The first window has a random length, so that
    windows begin at different tokens in every epoch, unless they are aligned.

    Args:
        stream: the stream.
        context: T, tokens in a window.
        rows: number of windows in a batch.
        aligned: whether windows begin at multiples of T.

    Raises:
        UserError: the stream is empty.
    """

    def __init__(self, stream: Stream, context: int, rows: int, *, aligned: bool = False) -> None:
        if not stream.tokens:
            raise UserError(f"{stream.folder}: there is no text to train on")
        if min(context, rows) < 1:
            raise ValueError(f"context={context} and rows={rows} must be at least 1")
        self.stream, self.context, self.rows = stream, context, rows
        self.aligned = aligned

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, WindowBatch]]:
        """An infinite stream of batches from ``position``, each with the position after it.

        Raises:
            UserError: ``position`` is invalid because the stream or the batch size has changed.
        """
        for after, (numbers, first) in of_rank(self._order(position), rank):
            yield after, self._batch(numbers, first)

    def _order(self, position: Position) -> Iterator[tuple[Position, tuple[list[int], int]]]:
        """The windows of each batch, and the start of the second window of the epoch."""
        seed, epoch, index = position
        while True:
            drawn = 1 + int(mix(np.zeros(1, np.uint64), f"{seed} {epoch}")[0] % self.context)
            first = min(self.context if self.aligned else drawn, self.stream.tokens)
            windows = 1 + -(-(self.stream.tokens - first) // self.context)
            batches = -(-windows // self.rows)
            if not 0 <= index < batches:
                raise UserError(
                    f"{self.stream.folder}: there is no batch at {tuple(position)} (seed, epoch, "
                    "index); the stream, context or training.batch_tokens differs from the run's"
                )
            while index < batches:
                ranks = np.arange(index * self.rows, min((index + 1) * self.rows, windows))
                chosen = permute(ranks, windows, f"{seed} {epoch}").tolist()
                index += 1
                end = index == batches
                after = Position(seed, epoch + 1, 0) if end else Position(seed, epoch, index)
                yield after, (chosen, first)
            epoch, index = epoch + 1, 0

    def _batch(self, numbers: list[int], first: int) -> WindowBatch:
        starts = [0 if n == 0 else first + (n - 1) * self.context for n in numbers]
        tokens = self.stream.windows(starts, self.context + 1)
        if 0 in numbers:  # the first window ends where the second begins
            tokens[numbers.index(0), first + 1 :] = PAD
        targets = tokens[:, 1:]
        width = int((targets != PAD).sum(1).max())
        read = tokens[:, :-1].masked_fill(targets == PAD, PAD)
        return WindowBatch(
            read[:, :width].contiguous(),
            targets[:, :width].contiguous(),
            int((targets != PAD).sum()),
        )
