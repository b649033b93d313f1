"""Packing: several whole documents in each row, for models that keep documents apart.

Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", section 3; documents
are packed by best fit, the longest first (Johnson 1973, "Near-optimal bin packing algorithms").
Shapes: B rows, T tokens, P pieces of documents.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD
from heedful.data.mapped import Integers
from heedful.data.order import FullOrder, WindowOrder, mix
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.store import Store
from heedful.data.streams import WindowBatch

POOL = 1 << 13
"""Documents that are packed together."""


class PackedBatches:
    """Batches of rows of ``context`` tokens with whole documents, in an order that depends on
    (seed, epoch) only.

    An epoch predicts every token of every document once, and the END of every document. A document
    longer than the context is cut into pieces, whose first one has a random length in each epoch.
    Each document or piece is predicted without the others of its row.

    Args:
        store: a stream of documents, as `heedful.data.stream_encoder.StreamEncoder` encodes it.
        context: T, tokens in a row.
        rows: number of rows in a batch.
        pool: number of documents that are packed together.
        window: number of tokens that are shuffled together, see `WindowOrder`; all if None.

    Raises:
        UserError: there are no documents.
    """

    def __init__(
        self,
        store: Store,
        context: int,
        rows: int,
        *,
        pool: int = POOL,
        window: int | None = None,
    ) -> None:
        if len(store) < 2:
            raise UserError(f"{store.folder}: there is no text to train on")
        if min(context, rows, pool) < 1:
            raise ValueError(f"context={context}, rows={rows} and pool={pool} must be at least 1")
        self.store, self.context, self.rows, self.pool = store, context, rows, pool
        self.documents = len(store) - 1  # row 0 is the END before the first document
        self.order: FullOrder | WindowOrder = FullOrder(self.documents)
        if window is not None:
            sizes = store.shard_sizes - (np.arange(len(store.shard_sizes)) == 0)
            self.order = WindowOrder(sizes, window, store.shard_values("tokens"))
            store.verify_at_once()
        store.require_cache(self.order.share_at_once)

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, WindowBatch]]:
        """An infinite stream of batches from ``position``, each with the position after it.

        Raises:
            UserError: ``position`` is invalid because the documents or the batch size have changed.
        """
        for after, (pieces, rows) in of_rank(self._order(position), rank):
            yield after, self._batch(pieces, rows)

    def padding(self, seed: int) -> tuple[float, float]:
        """The shares of padding in the rows of the first pool: with one piece in each row, and
        packed."""
        pieces, rows = self._pool_of_epoch(seed, 0, 0)
        tokens = int((pieces.ends - pieces.starts).sum())
        alone, packed = (
            1 - tokens / (count * self.context) for count in (len(pieces.starts), len(rows))
        )
        return alone, packed

    def _order(
        self, position: Position
    ) -> Iterator[tuple[Position, tuple["_Pieces", list[list[int]]]]]:
        seed, epoch, index = position
        pools = -(-self.documents // self.pool)
        first_pool, batch = divmod(index, _MOST_BATCHES)
        if not 0 <= first_pool < pools:
            raise self._no_batch(position)
        while True:
            for number in range(first_pool, pools):
                pieces, rows = self._pool_of_epoch(seed, epoch, number)
                batches = -(-len(rows) // self.rows)
                if not 0 <= batch < batches:
                    raise self._no_batch(position)
                for one in range(batch, batches):
                    after = Position(seed, epoch, number * _MOST_BATCHES + one + 1)
                    if one + 1 == batches:
                        last = number + 1 == pools
                        after = Position(
                            seed, epoch + last, 0 if last else (number + 1) * _MOST_BATCHES
                        )
                    yield after, (pieces, rows[one * self.rows : (one + 1) * self.rows])
                batch = 0
            epoch, first_pool = epoch + 1, 0

    def _no_batch(self, position: Position) -> UserError:
        return UserError(
            f"{self.store.folder}: there is no batch at {tuple(position)} (seed, epoch, index); "
            "the documents, context or training.batch_tokens differ from the run's"
        )

    def _pool_of_epoch(
        self, seed: int, epoch: int, number: int
    ) -> tuple["_Pieces", list[list[int]]]:
        """The pieces of a pool, and the rows of pieces in training order."""
        key = f"{seed} {epoch}"
        ranks = np.arange(number * self.pool, min((number + 1) * self.pool, self.documents))
        documents = 1 + self.order(ranks, key)
        pieces = self._cut(documents, key)
        lengths = pieces.ends - pieces.starts
        tie = mix(np.arange(len(lengths), dtype=np.uint64), f"pack {key} {number}")
        order = np.lexsort((tie, -lengths))
        rows = pack(lengths[order].tolist(), self.context)
        turns = mix(np.arange(len(rows), dtype=np.uint64), f"turn {key} {number}")
        return pieces, [order[rows[row]].tolist() for row in np.argsort(turns, kind="stable")]

    def _cut(self, documents: Integers, key: str) -> "_Pieces":
        """Cut documents that are longer than the context."""
        lengths = self.store.lengths("tokens", documents)
        drawn = 1 + (mix(documents.astype(np.uint64), f"cut {key}") % self.context).astype(np.int64)
        whole = lengths <= self.context
        first = np.where(whole, lengths, drawn)
        counts = 1 + -(-(lengths - first) // self.context)
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        of = np.repeat(np.arange(len(documents)), counts)
        starts = np.where(number == 0, 0, first[of] + (number - 1) * self.context)
        ends = np.minimum(first[of] + number * self.context, lengths[of])
        return _Pieces(documents[of], starts, ends)

    def _batch(self, pieces: "_Pieces", rows: Sequence[Sequence[int]]) -> WindowBatch:
        chosen = np.unique(np.concatenate([pieces.documents[list(row)] for row in rows]))
        column = self.store.read("tokens", chosen)
        texts = np.split(column.values.astype(np.int64), np.cumsum(column.lengths)[:-1])
        own = dict(zip(chosen.tolist(), texts, strict=True))
        width = max(int((pieces.ends - pieces.starts)[list(row)].sum()) for row in rows)
        tokens, targets, numbers = (np.full((len(rows), width), PAD, np.int64) for _ in range(3))
        for row, line in enumerate(rows):
            place = 0
            for number, piece in enumerate(line, start=1):
                start, end = int(pieces.starts[piece]), int(pieces.ends[piece])
                text = own[int(pieces.documents[piece])]
                until = place + end - start
                targets[row, place:until] = text[start:end]
                tokens[row, place] = text[start - 1] if start else END
                tokens[row, place + 1 : until] = text[start : end - 1]
                numbers[row, place:until] = number
                place = until
        return WindowBatch(
            torch.from_numpy(tokens),
            torch.from_numpy(targets),
            int((targets != PAD).sum()),
            torch.from_numpy(numbers),
        )


_MOST_BATCHES = 1 << 40
"""Factor of the number of the pool in the index of a position."""


class _Pieces(NamedTuple):
    """Documents or parts of them, ``[P]`` each."""

    documents: Integers
    """The row of the store."""
    starts: Integers
    """The first target in the document."""
    ends: Integers


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Put pieces into rows: each into the row with the least room that is enough, or a new one.

    Args:
        lengths: of the pieces, each at most ``room``, the longest first.
        room: size of a row.

    Returns:
        The indices of the pieces of each row.

    Example:
        >>> pack([5, 4, 3, 2, 2], room=8)
        [[0, 2], [1, 3, 4]]
    """
    rows: list[list[int]] = []
    rows_by_room: dict[int, list[int]] = {}
    rooms = 0  # bit n: there is a row with room for n
    for piece, length in enumerate(lengths):
        enough = rooms >> length
        if enough:
            left = length + (enough & -enough).bit_length() - 1
            row = rows_by_room[left].pop()
            if not rows_by_room[left]:
                rooms ^= 1 << left
        else:
            left, row = room, len(rows)
            rows.append([])
        rows[row].append(piece)
        left -= length
        if left:
            rows_by_room.setdefault(left, []).append(row)
            rooms |= 1 << left
    return rows
