"""Encode pairs in several processes; an interrupted encoding keeps the shards that are finished.

Shards are written into a folder beside the store, ``.NAME.unfinished``, which is renamed at the
end. A shard is finished when its record, ``00000.json``, is written. The parent process reads the
corpus and hands shards of pairs to the workers, so that no worker needs random access to it.
"""

import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

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
from heedful.data.pair_store import (
    AnyPair,
    PairEncoder,
    finish_pairs,
    shards_of,
    write_pair_store,
)
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.store import SHARD_ROWS
from heedful.data.store_index import INDEX
from heedful.data.tokeniser import Tokenisers

PROCESSES: ContextVar[int | None] = ContextVar("processes", default=None)
"""Number of processes that encode a corpus; None for one per processor that can be used."""
MOST_PROCESSES = 1024
_IDENTITY = "encoding.json"
_MOST_DEFAULT = 16
"""By default no more processes, because one process reads the corpus for all of them."""


@dataclass(frozen=True)
class Encoding:
    """How pairs are encoded.

    Attributes:
        saved: the folder of the saved tokenisers, which each process loads.
        max_tokens: pairs with more tokens on a side (without END) are skipped.
        linked: whether the pairs have links, which are stored.
        shard_rows: number of pairs in a shard, with those skipped.
    """

    saved: Path
    max_tokens: int
    linked: bool = False
    shard_rows: int = SHARD_ROWS

    def encoder(self, threads: int | None = None) -> PairEncoder:
        """The encoder of a process."""
        return PairEncoder(load_tokenisers(self.saved), self.max_tokens, self.linked, threads)


def encode_pairs(
    pairs: Iterable[AnyPair],
    tokenisers: Tokenisers,
    folder: Path,
    encoding: Encoding,
    *,
    identity: Any,
    left_out: Counter[str],
    total: int | None = None,
    processes: int | None = None,
) -> int:
    """Encode a stream of pairs into ``folder``, atomically.

    A corpus of at most one shard is encoded in this process. Files are the same for any number of
    processes.

    Args:
        pairs: the corpus.
        tokenisers: those that are saved in ``encoding.saved``.
        folder: the folder; an existing one is replaced.
        encoding: how pairs are encoded.
        identity: a JSON value that determines the pairs. The finished shards of an interrupted
            encoding are kept if it had the same one.
        left_out: counts skipped pairs under ``longer than … tokens``.
        total: the number of pairs, if it is known, for the progress bar.
        processes: number of processes; one per processor, and at most 16, if None.

    Returns:
        The number of pairs stored.

    Raises:
        UserError: a text is not valid Unicode, or the folder cannot be written.
    """
    remaining = iter(pairs)
    first = list(islice(remaining, encoding.shard_rows))
    second = list(islice(remaining, 1))
    if not second:
        shutil.rmtree(unfinished_folder(folder), ignore_errors=True)
        how: dict[str, Any] = {"max_tokens": encoding.max_tokens, "linked": encoding.linked}
        return write_pair_store(
            first, tokenisers, folder, **how, left_out=left_out, shard_rows=encoding.shard_rows
        )
    count = min(usable_processors(), _MOST_DEFAULT) if processes is None else processes
    everything = chain(first, second, remaining)
    del first
    try:
        job = _Encoding(folder, tokenisers, encoding, identity)
        return job.run(everything, count, total, left_out)
    except OSError as error:
        raise cannot_write(folder, error) from error


@dataclass(frozen=True)
class _Shard:
    """A shard of pairs for a worker."""

    path: Path
    """Its record, which is written last."""
    where: str
    number: int
    pairs: bytes
    """Pickled: an object in a list of pairs takes several times as much."""


class _Encoding:
    """An encoding that was begun, and possibly interrupted."""

    def __init__(
        self, folder: Path, tokenisers: Tokenisers, encoding: Encoding, identity: Any
    ) -> None:
        self.folder, self.encoding = folder, encoding
        self.encoder = PairEncoder(tokenisers, encoding.max_tokens, encoding.linked, threads=1)
        self.identity = {
            "version": 1,
            "identity": identity,
            "linked": encoding.linked,
            "shard_rows": encoding.shard_rows,
            **self.encoder.facts,
        }
        self.work = make_unfinished(folder)
        self.numbers = 0

    def run(
        self,
        pairs: Iterator[AnyPair],
        count: int,
        total: int | None,
        left_out: Counter[str],
    ) -> int:
        """Encode what is left; returns the number of pairs stored."""
        self._begin()
        with progress("encoding", total, "pairs") as advance:
            jobs = self._jobs(pairs, advance, pickled=count > 1)
            if count > 1:
                opens = _Opens(self.encoding)
                run_jobs(jobs, opens, count, advance=advance, finished=lambda shard: None)
            else:
                for path, number, shard in jobs:
                    _write(self.encoder, path, number, shard, advance)
        written = [read_json(self._record(number)) for number in range(self.numbers)]
        found = finish_pairs(self.work, self.encoder, written, left_out)
        for number in range(self.numbers):
            self._record(number).unlink()
        (self.work / _IDENTITY).unlink()
        move_folder(self.work, self.folder)
        return found

    def _begin(self) -> None:
        """Keep what an interrupted encoding of the same pairs has finished; delete all else."""
        (self.work / INDEX).unlink(missing_ok=True)
        known = self.work / _IDENTITY
        if not known.exists() or read_json(known) != self.identity:
            shutil.rmtree(self.work)
            make_unfinished(self.folder)
            write_json(known, self.identity)
        remove_leftovers(self.work)

    def _record(self, number: int) -> Path:
        return self.work / f"{number:05}.json"

    def _jobs(self, pairs: Iterator[AnyPair], advance: Advance, *, pickled: bool) -> Iterator[Any]:
        """The shards that are not finished: for a worker, or as path, number and pairs."""
        kept = 0
        for number, shard in enumerate(shards_of(pairs, self.encoding.shard_rows)):
            self.numbers = number + 1
            path = self._record(number)
            if self._is_finished(path):
                read = sum(1 for _ in shard)
                if read != read_json(path)["pairs"]:
                    raise UserError(
                        f"{path}: the corpus changed while it was encoded; delete {self.work} and "
                        "rerun the command"
                    )
                advance(read)
                kept += 1
            elif pickled:
                content = list(shard)
                first = number * self.encoding.shard_rows
                where = f"pairs {first + 1:,} to {first + len(content):,}"
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
class _Opens:
    """Opens the encoder of a worker."""

    encoding: Encoding

    def __call__(self) -> Callable[[Any, Advance], None]:
        encoder = self.encoding.encoder(threads=1)

        def work(shard: _Shard, advance: Advance) -> None:
            try:
                _write(encoder, shard.path, shard.number, pickle.loads(shard.pairs), advance)
            except OSError as error:
                raise cannot_write(shard.path.parent, error) from error

        return work


def _write(
    encoder: PairEncoder, path: Path, number: int, pairs: Iterable[AnyPair], advance: Advance
) -> None:
    """Write a shard, and at last its record."""
    written = encoder.shard(pairs, path.parent, number, advance)
    for name in written["hashes"]:
        sync_file(path.parent / name)
    write_json(path, written)
