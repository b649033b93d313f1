"""Encode a corpus in several processes; an interrupted encoding keeps the shards that are finished.

Shards are written into a folder beside the store, ``.NAME.unfinished``, which is renamed at the
end. A shard is finished when its record, ``00000.json``, is written. The parent process reads the
corpus and hands shards of items to the workers, so that no worker needs random access to it.
"""

import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import (
    cannot_write,
    content_hash,
    make_unfinished,
    move_folder,
    remove_leftovers,
    sync_file,
    unfinished_folder,
    write_json,
)
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.basics.worker_processes import Advance, run_jobs, usable_processors
from heedful.data.store_encoder import StoreEncoder, finish_store, parts_of, write_store
from heedful.data.store_index import INDEX

PROCESSES: ContextVar[int | None] = ContextVar("processes", default=None)
"""Number of processes that encode a corpus; None for one per processor that can be used."""
MOST_PROCESSES = 1024
_IDENTITY = "encoding.json"
_MOST_DEFAULT = 16
"""By default no more processes, because one process reads the corpus for all of them."""

T = TypeVar("T", bound=Sized)


def encode_store(
    items: Iterable[T],
    encoder: StoreEncoder[T],
    folder: Path,
    opens: Callable[[], StoreEncoder[T]],
    *,
    identity: Any,
    total: int | None = None,
) -> Counter[str]:
    """Encode a stream of items into ``folder``, atomically, in `PROCESSES` processes.

    A corpus of at most one shard is encoded in this process. Files are the same for any number of
    processes.

    Args:
        items: the corpus.
        encoder: encodes its items.
        folder: the folder; an existing one is replaced.
        opens: opens the same encoder in another process; it is pickled.
        identity: a JSON value that determines the items. The finished shards of an interrupted
            encoding are kept if it had the same one.
        total: the number of items, if it is known, for the progress bar.

    Returns:
        The counts of all items.

    Raises:
        UserError: the items cannot be used, a text is not valid Unicode, or the folder cannot be
            written.
    """
    shards = parts_of(items, encoder.size, encoder.shard_size)
    first = list(next(shards, iter(())))
    second = next(shards, None)
    if second is None:
        shutil.rmtree(unfinished_folder(folder), ignore_errors=True)
        return write_store(first, encoder, folder)
    processes = PROCESSES.get()
    count = min(usable_processors(), _MOST_DEFAULT) if processes is None else processes
    everything = chain([iter(first)], [second], shards)
    del first
    try:
        return _Encoding(folder, encoder, opens, identity).run(everything, count, total)
    except OSError as error:
        raise cannot_write(folder, error) from error


@dataclass(frozen=True)
class _Shard:
    """A shard of items for a worker."""

    path: Path
    """Its record, which is written last."""
    where: str
    number: int
    items: bytes
    """Pickled: an object in a list of pairs takes several times as much."""


class _Encoding(Generic[T]):
    """An encoding that was begun, and possibly interrupted."""

    def __init__(
        self,
        folder: Path,
        encoder: StoreEncoder[T],
        opens: Callable[[], StoreEncoder[T]],
        identity: Any,
    ) -> None:
        self.folder, self.encoder, self.opens = folder, encoder, opens
        self.encoder.threads = 1
        self.identity = {
            "version": 2,
            "identity": identity,
            "encoder": encoder.identity,
            "shard_size": encoder.shard_size,
        }
        self.work = make_unfinished(folder)
        self.numbers = 0

    def run(self, shards: Iterator[Iterator[T]], count: int, total: int | None) -> Counter[str]:
        """Encode what is left; returns the counts of all items."""
        self._begin()
        with progress("encoding", total, self.encoder.unit) as advance:
            jobs = self._jobs(shards, advance, pickled=count > 1)
            if count > 1:
                opens = _Opens(self.opens)
                run_jobs(jobs, opens, count, advance=advance, finished=lambda shard: None)
            else:
                for path, number, shard in jobs:
                    _write(self.encoder, path, number, shard, advance)
        written = [read_json(self._record(number)) for number in range(self.numbers)]
        found = finish_store(self.work, self.encoder, written)
        for number in range(self.numbers):
            self._record(number).unlink()
        (self.work / _IDENTITY).unlink()
        move_folder(self.work, self.folder)
        return found

    def _begin(self) -> None:
        """Keep what an interrupted encoding of the same items has finished; delete all else."""
        (self.work / INDEX).unlink(missing_ok=True)
        known = self.work / _IDENTITY
        if not known.exists() or read_json(known) != self.identity:
            shutil.rmtree(self.work)
            make_unfinished(self.folder)
            write_json(known, self.identity)
        remove_leftovers(self.work)

    def _record(self, number: int) -> Path:
        return self.work / f"{number:05}.json"

    def _jobs(
        self, shards: Iterator[Iterator[T]], advance: Advance, *, pickled: bool
    ) -> Iterator[Any]:
        """The shards that are not finished: for a worker, or as path, number and items."""
        kept = before = 0
        for number, shard in enumerate(shards):
            self.numbers = number + 1
            path = self._record(number)
            if self._is_finished(path):
                read = sum(1 for _ in shard)
                if read != read_json(path)["items"]:
                    raise UserError(
                        f"{path}: the corpus changed while it was encoded; delete {self.work} and "
                        "rerun the command"
                    )
                advance(read)
                kept += 1
                before += read
            elif pickled:
                content = list(shard)
                after = before + len(content)
                where = f"{self.encoder.unit} {before + 1:,} to {after:,}"
                before = after
                yield _Shard(path, where, number, pickle.dumps(content))
            else:
                yield path, number, shard
        if kept:
            notice(f"{kept:,} of {self.numbers:,} shards were encoded before the interruption")

    def _is_finished(self, path: Path) -> bool:
        """Whether a shard was written, and its files are as they were written."""
        if not path.exists():
            return False
        hashes = read_json(path)["hashes"]
        return all(
            (self.work / name).is_file() and content_hash(self.work / name) == own
            for name, own in hashes.items()
        )


@dataclass(frozen=True)
class _Opens(Generic[T]):
    """Opens the encoder of a worker."""

    opens: Callable[[], StoreEncoder[T]]

    def __call__(self) -> Callable[[Any, Advance], None]:
        encoder = self.opens()
        encoder.threads = 1

        def work(shard: _Shard, advance: Advance) -> None:
            try:
                _write(encoder, shard.path, shard.number, pickle.loads(shard.items), advance)
            except OSError as error:
                raise cannot_write(shard.path.parent, error) from error

        return work


def _write(
    encoder: StoreEncoder[T], path: Path, number: int, items: Iterable[T], advance: Advance
) -> None:
    """Write a shard, and at last its record."""
    written = encoder.shard(items, path.parent, number, advance)
    for name in written["hashes"]:
        sync_file(path.parent / name)
    write_json(path, written)
