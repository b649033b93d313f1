"""Batches limited by tokens, in an order that depends on (seed, epoch) only.

Shapes: B pairs, S source tokens with END, T target tokens with END.

An epoch is a pseudo-random permutation of the corpus, divided into pools. A pool is sorted by
length and divided into batches, which are shuffled. The permutation is computed, not stored: any
batch costs the work of one pool, and memory does not grow with the corpus.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.columns import Column, Columns
from heedful.data.mapped import Integers
from heedful.data.order import FullOrder, WindowOrder, Words, mix, permute
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.data.store import Store

__all__ = [
    "FEWEST",
    "POOL",
    "Batch",
    "StoreBatches",
    "TokenBatches",
    "collate",
    "even_rows",
    "mix",
    "padded",
    "permute",
]

POOL = 1 << 16
_MOST_BYTES = 1 << 27
"""A column of which a pool is larger is read for each batch."""
FEWEST = 1024
"""Approximate minimum number of tokens in a part of a batch; smaller parts are not faster."""

B = TypeVar("B")
Resample = Callable[[Columns, Integers, str], Columns]
"""Changes the columns of rows, given the numbers of the rows and the seed and epoch as text."""


@dataclass(frozen=True)
class Batch:
    """Pairs as rows of padded tensors (int64).

    Attributes:
        source: [B, S] tokens, END, then PAD.
        source_lengths: [B] number of tokens with END.
        target_in: [B, T] BEGIN, tokens, then PAD.
        target_out: [B, T] tokens, END, then PAD.
        target_lengths: [B] number of tokens with END.
        weight: number of tokens in ``target_out`` that are not PAD.
        links: [links, 3] row, target token, source token; None if the corpus has no links.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    weight: int
    links: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on ``device``."""
        return Batch(
            self.source.to(device, non_blocking=True),
            self.source_lengths.to(device, non_blocking=True),
            self.target_in.to(device, non_blocking=True),
            self.target_out.to(device, non_blocking=True),
            self.target_lengths.to(device, non_blocking=True),
            self.weight,
            None if self.links is None else self.links.to(device, non_blocking=True),
        )

    def split(self, count: int, fewest: int = FEWEST) -> list["Batch"]:
        """Split into at most ``count`` batches of similar size, each padded to its longest row.

        A batch with links is not split.
        """
        if self.links is not None:
            return [self]
        return [
            self._some(rows)
            for rows in even_rows(self.source_lengths + self.target_lengths, count, fewest)
        ]

    def _some(self, rows: slice) -> "Batch":
        of_source, of_target = self.source_lengths[rows], self.target_lengths[rows]
        return Batch(
            self.source[rows, : int(of_source.max())],
            of_source,
            self.target_in[rows, : int(of_target.max())],
            self.target_out[rows, : int(of_target.max())],
            of_target,
            int(of_target.sum()),
        )


def even_rows(tokens: Tensor, count: int, fewest: int = FEWEST) -> list[slice]:
    """Divide rows into at most ``count`` ranges with similar numbers of tokens.

    Args:
        tokens: number of tokens of each row ``[B]``.
        count: maximum number of ranges.
        fewest: approximate minimum number of tokens in a range, which may lower the number of
            ranges. In smaller ranges, the overhead of Python calls would dominate.

    Example:
        >>> even_rows(torch.tensor([4, 2, 2, 1, 1, 2]), 2, fewest=1)
        [slice(0, 2, None), slice(2, 6, None)]
    """
    sums = tokens.cumsum(0)
    count = max(1, min(count, int(sums[-1]) // fewest))
    wanted = sums[-1] * torch.arange(1, count) / count
    inner = torch.searchsorted(sums.double(), wanted.double()) + 1
    edges = sorted({0, *inner.tolist(), len(tokens)})
    return [slice(first, end) for first, end in itertools.pairwise(edges)]


class StoreBatches(Generic[B]):
    """Batches of a store: rows × the longest row is at most ``batch_tokens``.

    The length of a row is that of its longest column in ``by``, with END. A row longer than
    ``batch_tokens`` is a batch of its own.

    Args:
        store: the encoded examples.
        batch_tokens: maximum batch size in tokens (or frames).
        collate: converts rows of all columns to a batch.
        by: one or two columns that determine the length of a row.
        pool: number of rows that are sorted by length together.
        resample: changes the rows of each training batch.
        window: number of rows that are shuffled together, see `WindowOrder`; all rows if None.

    Raises:
        UserError: the store is empty, or is fetched from a URL and too large for the cache.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        collate: Callable[[Columns], B],
        *,
        by: Sequence[str],
        pool: int = POOL,
        resample: Resample | None = None,
        window: int | None = None,
    ) -> None:
        if not len(store):
            raise UserError(f"{store.folder}: the encoded corpus is empty, so it has no batches")
        if min(batch_tokens, pool) < 1:
            raise ValueError(f"batch_tokens={batch_tokens} and pool={pool} must be at least 1")
        self.store, self.batch_tokens, self.collate = store, batch_tokens, collate
        self.by, self.pool, self.resample = tuple(by), pool, resample
        self.order: FullOrder | WindowOrder = FullOrder(len(store))
        if window is not None:
            self.order = WindowOrder(store.shard_sizes, window)
            store.verify_at_once()
        store.require_cache(self.order.share_at_once)
        share = min(1.0, pool / len(store))
        self._small = [name for name in store.codecs if store.bytes_of(name) * share <= _MOST_BYTES]

    def __len__(self) -> int:
        return len(self.store)

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, B]]:
        """An infinite stream of batches from ``position``, each with the position after it.

        Every pair is in exactly one batch of an epoch. Resuming from a position gives the same
        batches as without an interruption.

        Raises:
            UserError: ``position`` is invalid because the corpus or the batch size has changed.
        """
        for after, (pool, rows, key) in of_rank(self._order(position), rank):
            columns = pool.take(rows)
            if self.resample is not None:
                columns = self.resample(columns, pool.indices[rows], key)
            yield after, self.collate(columns)

    def _order(
        self, position: Position
    ) -> Iterator[tuple[Position, tuple["_Pool", Integers, str]]]:
        """The pool of each batch, its rows in the pool, and the seed and epoch as text."""
        seed, epoch, index = position
        pools = -(-len(self.store) // self.pool)
        while True:
            number, first = divmod(index, self.pool)
            found = self._pool_of_epoch(seed, epoch, number) if 0 <= number < pools else None
            if found is None or first >= len(found.batches):
                raise UserError(
                    f"{self.store.folder}: there is no batch at {tuple(position)} (seed, epoch, "
                    "index); the corpus or training.batch_tokens differs from the run's"
                )
            key = f"{seed} {epoch}"
            for place, rows in enumerate(found.batches[first:], start=first + 1):
                index = number * self.pool + place
                if place == len(found.batches):
                    last = number + 1 == pools
                    epoch, index = (epoch + 1, 0) if last else (epoch, (number + 1) * self.pool)
                yield Position(seed, epoch, index), (found, rows, key)

    def once(self) -> Iterator[B]:
        """Every pair once in a fixed order, to compute a loss over the whole corpus."""
        for start in range(0, len(self.store), self.pool):
            indices = np.arange(start, min(start + self.pool, len(self.store)))
            found = self._pool(indices, tie=indices)
            yield from (self.collate(found.take(rows)) for rows in found.batches)

    def _pool_of_epoch(self, seed: int, epoch: int, number: int) -> "_Pool":
        """A pool with its batches in training order."""
        ranks = np.arange(number * self.pool, min((number + 1) * self.pool, len(self.store)))
        indices = self.order(ranks, f"{seed} {epoch}")
        # Pairs of equal lengths are combined differently in every epoch.
        tie = mix(indices.astype(np.uint64), f"tie {seed} {epoch}")
        found = self._pool(indices, tie)
        turns = mix(np.arange(len(found.batches), dtype=np.uint64), f"turn {seed} {epoch} {number}")
        order = np.argsort(turns, kind="stable")
        return found._replace(batches=[found.batches[batch] for batch in order])

    def _pool(self, indices: Integers, tie: Integers | Words) -> "_Pool":
        """A pool of rows; ``tie`` [n] orders rows of equal length."""
        columns = {name: self.store.read(name, indices) for name in self._small}
        known = {name: column.lengths for name, column in columns.items()}
        lengths = [
            known[name] if name in known else self.store.lengths(name, indices) for name in self.by
        ]
        batches = _fill(np.stack(lengths, axis=1) + 1, self.batch_tokens, tie)
        starts = {name: column.starts for name, column in columns.items()}
        return _Pool(self.store, columns, starts, batches, indices)


class _Pool(NamedTuple):
    """Rows that are sorted by length together and divided into batches."""

    store: Store
    columns: Columns
    """The columns that are read for all rows at once; 65,536 sentence pairs take 8 MB. Those of
    large rows, such as images, are read for each batch."""
    starts: Mapping[str, Integers]
    batches: list[Integers]
    indices: Integers
    """The number of each row in the store."""

    def take(self, rows: Integers) -> Columns:
        """The rows at ``rows`` [B] of the pool."""
        return {name: self._taken(name, rows) for name in self.store.codecs}

    def _taken(self, name: str, rows: Integers) -> Column:
        if name in self.columns:
            return self.columns[name].take(rows, self.starts[name])
        return self.store.read(name, self.indices[rows])


def _fill(lengths: Integers, batch_tokens: int, tie: Integers | Words) -> list[Integers]:
    """Divide rows with ``lengths`` [n, 1 or 2] into batches of similar length."""
    longest = lengths.max(axis=1)
    # Among pairs with the same longer side, those with a long source stand at one end and those
    # with a long target at the other; the ends change places with each length, so that a batch
    # across two lengths stays even. In twos: exact differences would save 1 % of padding on short
    # sentences, but keep three quarters of a batch's pairs together at every epoch.
    lean = (lengths[:, 0] - lengths[:, -1]) // 2
    order = np.lexsort((tie, np.where(longest % 2, lean, -lean), longest))
    cuts, start = [], 0
    for place, length in enumerate(longest[order].tolist()):
        if place > start and (place - start + 1) * length > batch_tokens:
            cuts.append(place)
            start = place
    return np.split(order, cuts)


class TokenBatches(StoreBatches[Batch]):
    """Batches of pairs from a store with ``source``, ``target``, optionally ``links``."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        pool: int = POOL,
        resample: Resample | None = None,
        window: int | None = None,
    ) -> None:
        how: dict[str, Any] = {"pool": pool, "resample": resample, "window": window}
        super().__init__(store, batch_tokens, collate, by=("source", "target"), **how)


def collate(columns: Columns) -> Batch:
    """Convert pairs to a batch.

    Args:
        columns: ``source``, ``target``, and ``links`` if there are any.
    """
    target = columns["target"]
    source, target_out = padded(columns["source"], END), padded(target, END)
    target_in = torch.full_like(target_out, BEGIN)
    target_in[:, 1:] = padded(target)
    return Batch(
        source,
        torch.from_numpy(columns["source"].lengths + 1),
        target_in,
        target_out,
        torch.from_numpy(target.lengths + 1),
        len(target.values) + len(target.lengths),
        _placed(columns["links"]) if "links" in columns else None,
    )


def padded(column: Column, end: int | None = None) -> Tensor:
    """Pad rows of numbers to ``[B, longest]`` int64, each followed by ``end`` if given."""
    lengths = column.lengths
    found = np.full((len(lengths), lengths.max() + (end is not None)), PAD, np.int64)
    found[np.arange(found.shape[1]) < lengths[:, None]] = column.values
    if end is not None:
        found[np.arange(len(lengths)), lengths] = end
    return torch.from_numpy(found)


def _placed(links: Column) -> Tensor:
    """Links [links, 3]: row, target token, source token."""
    rows = np.repeat(np.arange(len(links.lengths)), links.lengths)
    return torch.from_numpy(np.column_stack([rows, links.values[:, ::-1].astype(np.int64)]))
