"""Shards of a bulk job on a Ray cluster, with the same results as in worker processes.

This process reads the inputs and writes the outputs; other machines need the run at the same path,
and heedful. Ray places the workers, and starts a worker again, on any machine, after it died. Ray's
actors are used instead of its data sets, because a shard is the unit that is done exactly once:
data sets join and split their blocks.
"""

import contextlib
import os
import socket
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.worker_processes import MOST_DEATHS, Advance
from heedful.inference.bulk_workers import (
    Answer,
    Opens,
    Shard,
    write_shard,
)

_AT_ONCE = 2
"""Shards of a worker: one is answered, and the next one waits for it."""

_SECONDS_TO_CONNECT = 10


@dataclass(frozen=True)
class RayShards:
    """Answers shards as :func:`heedful.inference.bulk_workers.run_shards` does, on a cluster.

    Attributes:
        address: of the cluster: ``auto`` for one that runs on this machine, ``HOST:PORT`` of its
            head, or ``local`` for processes of this machine only.
        threads: processor cores of a worker.
        cards: GPUs of a worker.
    """

    address: str
    threads: int = 1
    cards: int = 0

    def __call__(
        self,
        shards: Iterator[Shard],
        opens: Opens,
        count: int,
        /,
        *,
        advance: Advance,
        finished: Callable[[Shard], None],
    ) -> None:
        """Answer all shards in ``count`` workers at most; see ``run_shards``.

        Raises:
            UserError: Ray is not installed, there is no cluster at the address, no worker fits
                into it, a worker raised it, or one shard's workers died three times.
            RuntimeError: a worker raised another exception, whose traceback is in the message.
        """
        first = next(shards, None)
        if first is None:
            return
        ray = _import_ray()
        with self._connected(ray, count):
            _Job(ray, self._workers(ray, opens, count), shards, advance, finished).run(first)

    @contextlib.contextmanager
    def _connected(self, ray: Any, count: int) -> Iterator[None]:
        """A connection to the cluster, which ends with this block; a local one ends, too."""
        how: dict[str, Any] = {"address": self.address}
        if self.address == "local":
            how |= {"num_cpus": count * self.threads, "include_dashboard": False}
        try:
            self._require_head()
            ray.init(**how, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"--ray {self.address}: {reason}; start a cluster with ray start, or give local"
            ) from error
        try:
            yield
        finally:
            ray.shutdown()

    def _require_head(self) -> None:
        """Raise OSError at once if nothing listens at the address; Ray tries for minutes."""
        host, colon, port = self.address.rpartition(":")
        if colon and port.isdecimal():
            with socket.create_connection((host, int(port)), timeout=_SECONDS_TO_CONNECT):
                pass

    def _workers(self, ray: Any, opens: Opens, count: int) -> list[Any]:
        """As many workers as fit, up to ``count``."""
        there = ray.cluster_resources()
        fits = int(there.get("CPU", 0)) // self.threads
        if self.cards:
            fits = min(fits, int(there.get("GPU", 0)) // self.cards)
        if not fits:
            cards = f" and {self.cards} GPU" if self.cards else ""
            raise UserError(
                f"--ray {self.address}: no machine has {self.threads} CPU{cards} for a worker; "
                "give fewer --threads"
            )
        if fits < count:
            notice(f"--ray {self.address}: {fits} of {count} workers fit into the cluster")
        actor = ray.remote(
            num_cpus=self.threads,
            num_gpus=self.cards,
            max_restarts=-1,
            max_task_retries=MOST_DEATHS - 1,
        )(_Worker)
        return [actor.remote(opens) for _ in range(min(fits, count))]


class _Worker:
    """Answers shards in a process of Ray's, which may be started again."""

    def __init__(self, opens: Opens) -> None:
        self.opens = opens
        self.answer: Answer | None = None

    def run(self, shard: Shard | None) -> tuple[str, Any]:
        """The lines and counts of a shard, or the text of an error; without a shard, only load."""
        try:
            if self.answer is None:
                self.answer = self.opens()
            if shard is None:
                return "ready", None
            return "done", self.answer(shard, lambda count: None)
        except UserError as error:
            return "failed", str(error)
        except Exception:  # noqa: BLE001 - the driver raises it
            return "crashed", traceback.format_exc()


class _Job:
    """Gives shards to workers that have loaded what they need, and writes what they return."""

    def __init__(
        self,
        ray: Any,
        workers: list[Any],
        shards: Iterator[Shard],
        advance: Advance,
        finished: Callable[[Shard], None],
    ) -> None:
        self.ray, self.shards = ray, shards
        self.advance, self.finished = advance, finished
        self.free: deque[Any] = deque()
        self.loading = {worker.run.remote(None): worker for worker in workers}
        self.given: dict[Any, tuple[Any, Shard]] = {}

    def run(self, shard: Shard | None) -> None:
        """Answer all shards, beginning with ``shard``."""
        while shard is not None or self.given:
            while shard is not None and self.free:
                worker = self.free.popleft()
                self.given[worker.run.remote(shard)] = worker, shard
                shard = next(self.shards, None)
            ready, _ = self.ray.wait([*self.loading, *self.given])
            for one in ready:
                self._take(one)

    def _take(self, one: Any) -> None:
        """Handle what a worker returned."""
        worker, shard = self.given.pop(one, (self.loading.pop(one, None), None))
        try:
            kind, value = self.ray.get(one)
        except self.ray.exceptions.RayActorError as error:
            where = "while it was loading" if shard is None else f"at {shard.where}"
            raise UserError(
                f"a worker died {where}, for the {MOST_DEATHS}rd time; if memory is short, use "
                "fewer workers; rerun the same command to resume"
            ) from error
        if kind == "failed":
            raise UserError(value)
        if kind == "crashed":
            raise RuntimeError(value)
        if shard is None:
            self.free.extend([worker] * _AT_ONCE)
            return
        self._write(shard, *value)
        self.free.append(worker)

    def _write(self, shard: Shard, lines: list[str], counts: "Counter[str]") -> None:
        if len(lines) != len(shard.lines):
            raise RuntimeError(f"{len(lines)} lines of output for {len(shard.lines)} of input")
        write_shard(shard, lines, counts)
        self.advance(len(lines))
        self.finished(shard)


def _import_ray() -> Any:
    """Ray, which reports nothing about its use to its authors."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "--ray needs Ray, which is not installed; run: pip install 'heedful[ray]'"
        ) from error
    return ray
