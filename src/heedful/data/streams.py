"""Windows of streams, which are concatenated documents for language models.

A window may begin in one shard of a stream and end in the next.
Shapes: B windows, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import PAD
from heedful.data.batching import FEWEST, even_rows
from heedful.data.order import FullOrder, WindowOrder, mix
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.store import Store


class Stream:
    """A stream, opened without reading it.

    Args:
        folder: the store that `heedful.data.stream_encoder.StreamEncoder` encoded.
        verified: compare the files of a shard with their hashes when it is first read.

    Attributes:
        store: the store.
        tokens: number of tokens after the first END.
        documents: number of documents.

    Raises:
        UserError: the folder is not a stream, or a file is missing or damaged.
    """

    def __init__(self, folder: Path, *, verified: bool = False) -> None:
        self.store = Store.open(folder, verified=verified)
        try:
            self.tokens = self.store.total("tokens") - 1
            self.documents = int(self.store.facts["documents"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{folder}: not a stream; encode the corpus again") from error
        self.folder = folder

    def windows(self, starts: Sequence[int], width: int) -> Tensor:
        """The ``width`` tokens from each start on ``[B, width]``; PAD beyond the end."""
        rows = np.full((len(starts), width), PAD, np.int64)
        found = self.store.spans("tokens", np.array(starts, np.int64), width)
        for row, own in zip(rows, found, strict=True):
            row[: len(own)] = own
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
        window: number of tokens that are shuffled together, see `WindowOrder`; all if None.

    Raises:
        UserError: the stream is empty.
    """

    def __init__(
        self,
        stream: Stream,
        context: int,
        rows: int,
        *,
        aligned: bool = False,
        window: int | None = None,
    ) -> None:
        if not stream.tokens:
            raise UserError(f"{stream.folder}: there is no text to train on")
        if min(context, rows) < 1:
            raise ValueError(f"context={context} and rows={rows} must be at least 1")
        self.stream, self.context, self.rows = stream, context, rows
        self.aligned, self.window = aligned, window
        if window is not None:
            stream.store.verify_at_once()
        stream.store.require_cache(self._shuffle(context).share_at_once)

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
            order = self._shuffle(first)
            windows = order.rows
            batches = -(-windows // self.rows)
            if not 0 <= index < batches:
                raise UserError(
                    f"{self.stream.folder}: there is no batch at {tuple(position)} (seed, epoch, "
                    "index); the stream, context or training.batch_tokens differs from the run's"
                )
            while index < batches:
                ranks = np.arange(index * self.rows, min((index + 1) * self.rows, windows))
                chosen = order(ranks, f"{seed} {epoch}").tolist()
                index += 1
                end = index == batches
                after = Position(seed, epoch + 1, 0) if end else Position(seed, epoch, index)
                yield after, (chosen, first)
            epoch, index = epoch + 1, 0

    def _shuffle(self, first: int) -> FullOrder | WindowOrder:
        """The order of the windows of an epoch whose second window starts at ``first``."""
        windows = 1 + max(0, -(-(self.stream.tokens - first) // self.context))
        if self.window is None:
            return FullOrder(windows)
        # A window belongs to the shard in which it starts.
        tokens = self.stream.store.shard_values("tokens")
        following = np.maximum(0, -(-(np.cumsum(tokens) - first) // self.context))
        sizes = np.diff(np.minimum(windows, 1 + following), prepend=0)
        return WindowOrder(sizes, self.window, tokens)

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
