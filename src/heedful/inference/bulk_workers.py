"""Worker processes that answer shards of lines. The parent process assigns every shard.

A shard's output is one file: a line of JSON with its counts, then one line for each input line. It
is written under a temporary name and then renamed, so that the file exists only when it is whole.
`heedful.basics.worker_processes` says what happens if a process dies.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.worker_processes import Advance, run_jobs

_LINES = "lines"


@dataclass(frozen=True)
class Shard:
    """Consecutive lines of one file."""

    path: Path
    """The file for its output."""
    where: str
    """Its file and lines, for messages."""
    first: int
    """Index of its first line in its file, from 0."""
    lines: list[str]


Answer = Callable[[Shard, Advance], tuple[list[str], Counter[str]]]
"""Returns one line of output for each line of a shard, without line breaks, and counts of what must
be reported."""
Opens = Callable[[], Answer]
"""Loads what a worker needs. It is pickled, and called once in each worker."""


class RunsShards(Protocol):
    """Answers all shards, as :func:`run_shards` does."""

    def __call__(
        self,
        shards: Iterator[Shard],
        opens: Opens,
        count: int,
        /,
        *,
        advance: Advance,
        finished: Callable[[Shard], None],
    ) -> None: ...


def run_shards(
    shards: Iterator[Shard],
    opens: Opens,
    count: int,
    *,
    advance: Advance,
    finished: Callable[[Shard], None],
) -> None:
    """Answer all shards in ``count`` processes; each shard's output is written to its path.

    Args:
        shards: read as workers need them; at most twice ``count`` are in memory.
        opens: loads what a worker needs.
        count: the largest number of processes.
        advance: called with progress; negative for the lines of a worker that died.
        finished: called for each shard after its output was written.

    Raises:
        UserError: a worker raised it, or one shard's workers died three times.
        RuntimeError: a worker raised another exception, whose traceback is in the message.
    """
    run_jobs(shards, _Opens(opens), count, advance=advance, finished=finished)


@dataclass(frozen=True)
class _Opens:
    """Opens what answers the shards of a worker and writes the answers."""

    opens: Opens

    def __call__(self) -> Callable[[Shard, Advance], None]:
        answer = self.opens()

        def work(shard: Shard, advance: Advance) -> None:
            lines, counts = answer(shard, advance)
            if len(lines) != len(shard.lines):
                raise RuntimeError(f"{len(lines)} lines of output for {len(shard.lines)} of input")
            write_shard(shard, lines, counts)

        return work


def write_shard(shard: Shard, lines: list[str], counts: Counter[str]) -> None:
    """Write a shard's output, atomically."""
    header = {_LINES: len(lines), **counts}
    with atomic_file(shard.path) as file:
        file.write(json.dumps(header).encode() + b"\n")
        for line in lines:
            file.write(line.encode() + b"\n")


def read_shard(path: Path) -> tuple[Counter[str], Iterator[bytes]]:
    """The counts of a shard's output, and its lines with their line breaks.

    Raises:
        UserError: the file is damaged. It is deleted, so that its lines are done again.
    """
    try:
        content = path.read_bytes()
        head, _, body = content.partition(b"\n")
        counts = Counter({str(name): int(value) for name, value in json.loads(head).items()})
        if counts.pop(_LINES) != body.count(b"\n") or (body and not body.endswith(b"\n")):
            raise ValueError
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise UserError(
            f"{path} was damaged and is deleted; rerun the same command to do its lines again"
        ) from error
    return counts, (line + b"\n" for line in body.split(b"\n")[:-1])
