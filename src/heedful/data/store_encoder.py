"""Encode the items of a corpus, such as pairs or documents, as a store.

A shard holds the rows of consecutive items of the corpus whose sizes add up to a fixed number. The
shards therefore depend on the corpus only, and can be encoded in any order, by any number of
processes (`heedful.data.parallel_encoding`): the files are the same.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from heedful.basics.files import atomic_folder
from heedful.basics.progress import progress
from heedful.basics.worker_processes import Advance
from heedful.data.columns import Codec, Columns
from heedful.data.store import StoreWriter, write_index

T = TypeVar("T", bound=Sized)


class StoreEncoder(ABC, Generic[T]):
    """Encodes items into the columns of a store.

    Attributes:
        codecs: the codec of each column.
        threads: number of threads; all if None.
    """

    unit: ClassVar[str] = "documents"
    """What the items are, for messages."""
    shard_size: int = 1 << 25
    """A shard ends with the item that makes it at least this large. By default, the size of an item
    is its number of characters, so that a shard takes 16 to 64 MiB."""
    chunk_size: int = 1 << 20
    """The size of the items that are encoded at once."""
    codecs: Mapping[str, Codec]
    threads: int | None = None

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """A JSON value that, with an item, determines the item's rows."""

    @abstractmethod
    def rows(self, items: Sequence[T]) -> tuple[Columns, Counter[str]]:
        """The rows of items, and counts that are added up over the corpus.

        Raises:
            UserError: a text is not valid Unicode.
        """

    def size(self, item: T) -> int:
        """The size of an item, at least 1."""
        return 1 + len(item)

    def first_rows(self) -> Columns | None:
        """Rows before those of the first item."""
        return None

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        """The facts in the index of the store, from the counts of all items."""
        return {}

    def check(self, counts: Counter[str]) -> None:
        """Give notices about the counts of all items.

        Raises:
            UserError: the items cannot be used.
        """

    def shard(
        self, items: Iterable[T], folder: Path, number: int, advance: Advance
    ) -> dict[str, Any]:
        """Write one shard; returns a JSON value for `finish_store`.

        Args:
            items: the items of the shard.
            folder: the folder of the store.
            number: the number of the shard, from 0.
            advance: called with the number of items that were encoded since the last call.

        Raises:
            UserError: a text is not valid Unicode.
            OSError: the folder cannot be written.
        """
        counts: Counter[str] = Counter()
        read = 0
        with StoreWriter(folder, self.codecs, None, first=number) as writer:
            first = None if number else self.first_rows()
            if first is not None:
                writer.add(first)
            for chunk in parts_of(items, self.size, self.chunk_size):
                some = list(chunk)
                rows, own = self.rows(some)
                writer.add(rows)
                counts.update(own)
                read += len(some)
                advance(len(some))
            return {**writer.close(), "items": read, "counts": counts}


def write_store(items: Iterable[T], encoder: StoreEncoder[T], folder: Path) -> Counter[str]:
    """Encode a stream of items into ``folder``, atomically, in this process.

    Args:
        items: the corpus.
        encoder: encodes its items.
        folder: the folder; an existing one is replaced.

    Returns:
        The counts of all items.

    Raises:
        UserError: the items cannot be used, a text is not valid Unicode, or the folder cannot be
            written.
    """
    with atomic_folder(folder) as beside, progress("encoding", None, encoder.unit) as advance:
        written = [
            encoder.shard(shard, beside, number, advance)
            for number, shard in enumerate(parts_of(items, encoder.size, encoder.shard_size))
        ] or [encoder.shard([], beside, 0, advance)]
        return finish_store(beside, encoder, written)


def parts_of(items: Iterable[T], size: Callable[[T], int], full: int) -> Iterator[Iterator[T]]:
    """Divide items into streams, each of which must be read before the next.

    A stream ends with the item that makes it at least ``full``. None is empty.

    Args:
        items: all items.
        size: returns the size of an item.
        full: the size of a stream.

    Example:
        >>> [list(part) for part in parts_of(["a", "bcd", "e", "f"], len, 3)]
        [['a', 'bcd'], ['e', 'f']]
    """
    remaining = iter(items)
    for first in remaining:
        yield _until_full(first, remaining, size, full)


def _until_full(
    first: T, remaining: Iterator[T], size: Callable[[T], int], full: int
) -> Iterator[T]:
    total = size(first)
    yield first
    while total < full:
        for item in remaining:
            total += size(item)
            yield item
            break
        else:
            return


def finish_store(
    folder: Path, encoder: StoreEncoder[T], written: Sequence[Mapping[str, Any]]
) -> Counter[str]:
    """Write the index of a store; returns the counts of all items.

    Args:
        folder: the folder of the store.
        encoder: the encoder of its shards.
        written: what `StoreEncoder.shard` returned, in the order of the shards.

    Raises:
        UserError: the items cannot be used.
    """
    counts: Counter[str] = Counter()
    for one in written:
        counts.update(one["counts"])
    encoder.check(counts)
    write_index(folder, encoder.codecs, written, encoder.facts(counts))
    return counts
