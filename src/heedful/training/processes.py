"""The processes that train together: their ranks, and the values they exchange.

torchrun starts the processes and gives each its rank in environment variables. :func:`join`
connects them. Without these variables there is a single process, and every exchange returns its own
value.
"""

import atexit
import contextlib
import os
import pickle
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from heedful.basics.device import choose_device
from heedful.basics.errors import UserError
from heedful.basics.notices import silence, without_output
from heedful.data.positions import SINGLE, Rank
from heedful.training.process_environment import (
    CONNECT_SECONDS,
    WAIT_MINUTES,
    end_with,
    is_elastic,
    is_launched,
    no_store,
    positive_number,
    what_follows,
    whole_number,
)
from heedful.training.process_meeting import meet
from heedful.training.process_members import Member, require_same_versions

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")
N = TypeVar("N", int, float)

_NOTICED_SECONDS = 3.0
"""How long a process looks for the one that ended."""
_PRINTING_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two looks for a message."""


class LostProcessError(UserError):
    """Another process of the training ended or failed."""


class Processes:
    """A single process, which exchanges values with nobody. Base of :class:`ProcessGroup`.

    Attributes:
        rank: the rank of this process; rank 0 writes files and messages.
        local_rank: its number among the processes of this machine, which is also its CUDA device.
        local_count: number of processes on this machine.
    """

    rank: Rank = SINGLE
    local_rank: int = 0
    local_count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank.index == 0

    def device(self, name: str) -> torch.device:
        """The device for ``auto``, ``cpu``, ``cuda`` or ``mps``; on cards, one for each process.

        Raises:
            UserError: this machine has no such device, or fewer cards than processes.
        """
        return choose_device(name)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank. Values are pickled."""
        return [value]

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        return flag

    def total(self, number: N) -> N:
        """The sum of a number over all processes, added in the order of the ranks.

        The number must be an int in all processes or a float in all processes.
        """
        return number

    def broadcast(self, value: T) -> T:
        """The value of rank 0. It is pickled."""
        return value

    def barrier(self) -> None:
        """Wait until all processes have come here."""

    def require_same(self, values: Mapping[str, Any], what: str = "") -> None:
        """Raise UserError in all processes if a value differs in one of them.

        Args:
            values: the values by name.
            what: what the names are, for the message: "the option ".
        """

    def by_first(self, call: Callable[[], T]) -> T:
        """The result of a call by rank 0; the others wait for it without a time limit.

        A ``UserError`` of the call is raised in all processes.
        """
        return call()

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that fails in all processes if it fails in one.

        A ``UserError`` in one process is raised in all of them at their next exchange. A process
        that ended raises :class:`LostProcessError` in the others.
        """
        yield


class ProcessGroup(Processes):
    """Several processes that are connected by ``torch.distributed``.

    Args:
        store: the key–value store that all processes are connected to.
        rank: the rank of this process.
        local_rank: its number among the processes of this machine.
        local_count: number of processes on this machine.
    """

    def __init__(
        self, store: "Store", rank: Rank, local_rank: int = 0, local_count: int = 1
    ) -> None:
        self.rank, self.local_rank, self.local_count = rank, local_rank, local_count
        self._store = store
        self._calls = 0
        self._has_told = False
        self._common: UserError | None = None
        self._members = [Member.own()] * rank.count

    def connect(self, seconds: float, minutes: float) -> None:
        """Wait for all processes, compare their versions and connect them.

        Args:
            seconds: how long to wait for processes that have not started.
            minutes: the longest that an exchange waits for the slowest process.

        Raises:
            UserError: a process does not arrive, or has other versions.
        """
        found = meet(self._store, self.rank, self._members[self.rank.index], seconds)
        if found is None:
            raise UserError(
                f"not all of the {self.rank.count} processes connected within {seconds:g} seconds; "
                f"start all at about the same time, or set {CONNECT_SECONDS}"
            )
        name, self._members = found
        self._store = dist.PrefixStore(name, self._store)  # type: ignore[attr-defined]
        require_same_versions(self._members)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        # PyTorch 2.13 renames a function that PyTorch 2.11 has by its old name only.
        warnings.filterwarnings("ignore", ".*all_gather_into_tensor.*deprecated", FutureWarning)
        with without_output():
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("group", self._store),  # type: ignore[attr-defined]
                rank=self.rank.index,
                world_size=self.rank.count,
                timeout=timedelta(minutes=minutes),
            )
            dist.barrier()

    def device(self, name: str) -> torch.device:
        """The device; of several cards, the one with the number of this process."""
        device = choose_device(name)
        if device.type == "mps" and self.local_count > 1:
            raise UserError("several processes cannot share an mps device; use --device cpu")
        if device.type != "cuda":
            return device
        cards = torch.cuda.device_count()
        if self.local_count > cards:
            raise UserError(
                f"{self.local_count} processes on {socket.gethostname()}, which has {cards} CUDA "
                f"device{'s' if cards > 1 else ''}; start at most {cards}, or use --device cpu"
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank."""
        values: list[Any] = [None] * self.rank.count
        with self.together():
            dist.all_gather_object(values, value)
        return values

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        return self.total(int(flag)) > 0

    def total(self, number: N) -> N:
        """The sum of a number over all processes, added in the order of the ranks."""
        kind = torch.int64 if isinstance(number, int) else torch.float64
        own = torch.tensor([number], dtype=kind)
        found = [torch.empty_like(own) for _ in range(self.rank.count)]
        with self.together():
            dist.all_gather(found, own)
        return sum((one.item() for one in found), start=type(number)(0))  # type: ignore[return-value]

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""
        values = [value]
        with self.together():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        self.total(0)

    def require_same(self, values: Mapping[str, Any], what: str = "") -> None:
        """Raise UserError in all processes if a value differs in one of them."""
        found = self.gather(dict(values))
        for index, other in enumerate(found):
            for name in sorted(found[0].keys() | other.keys()):
                if found[0].get(name) != other.get(name):
                    error = UserError(
                        f"{what}{name} is {other.get(name)!r:.200} at rank {index} "
                        f"({self._members[index]}) and {found[0].get(name)!r:.200} at rank 0; "
                        "start all processes with the same command and the same files"
                    )
                    raise self._in_all(error)

    def by_first(self, call: Callable[[], T]) -> T:
        """The result of a call by rank 0; the others wait for it without a time limit."""
        self._calls += 1
        key = f"by_first/{self._calls}"
        if self.first:
            try:
                result = call()
            except UserError as error:
                self._set(key, pickle.dumps((False, error)))
                self.barrier()
                self._in_all(error)
                raise
            self._set(key, pickle.dumps((True, result)))
            self.barrier()
            return result
        with self.together():
            if not self._arrives(key, lambda: self._message("failed/0") is None):
                raise UserError(self._message("failed/0") or "rank 0 failed")
            works, found = pickle.loads(self._store.get(key))
        self.barrier()
        if not works:
            raise self._in_all(found)
        return found  # type: ignore[no-any-return]

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that fails in all processes if it fails in one."""
        try:
            yield
        except UserError as error:
            if error is not self._common and not isinstance(error, LostProcessError):
                self._tell(error)
            raise
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or "gloo" in str(error):
                raise self._lost(error) from error
            raise

    def _in_all(self, error: UserError) -> UserError:
        """The error, which is raised in all processes."""
        self._common = error
        if not self.first:  # rank 0 prints it before the launcher sees that a process has ended
            time.sleep(_PRINTING_SECONDS)
        return error

    def _tell(self, error: UserError) -> None:
        """Tell the other processes why this one fails."""
        if self._has_told:
            return
        self._has_told = True
        with contextlib.suppress(RuntimeError):  # the store may have ended as well
            self._set(f"failed/{self.rank.index}", str(error).encode())
            if self.first and not is_elastic():  # the store ends with this process
                time.sleep(4 * _LONGEST_PAUSE)

    def _set(self, key: str, value: bytes) -> None:
        # Bytes are stored as they are.
        self._store.set(key, value)  # type: ignore[arg-type]

    def _arrives(self, key: str, going_on: Callable[[], bool]) -> bool:
        """Wait for a key, as long as ``going_on`` returns True; returns whether it was set."""
        pause = _FIRST_PAUSE
        while not self._store.check([key]):
            if not going_on():
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def _lost(self, error: RuntimeError) -> UserError:
        """The error of another process that explains a failed exchange, or who has ended.

        The lowest rank that still runs prints it.
        """
        others = [index for index in range(self.rank.count) if index != self.rank.index]
        ends = time.monotonic() + _NOTICED_SECONDS
        while True:
            for index in others:
                if (message := self._message(f"failed/{index}")) is not None:
                    return LostProcessError(message)
            gone = [index for index in others if self._members[index].has_ended]
            if gone or time.monotonic() > ends:
                break
            time.sleep(_FIRST_PAUSE)
        if self.rank.index == min(set(range(self.rank.count)) - set(gone)):
            silence(False)
        if "imed out" in str(error) and not gone:
            return LostProcessError(
                f"an exchange between the processes took longer than {WAIT_MINUTES}; rerun the "
                "command to resume from the last checkpoint"
            )
        names = ", ".join(f"rank {index} ({self._members[index]})" for index in gone)
        return LostProcessError(
            f"{names or 'a process on another machine'} ended unexpectedly; {what_follows()}"
        )

    def _message(self, key: str) -> str | None:
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError:  # the store ended with the process that held it
            return None

    def disconnect(self) -> None:
        """Close the connections at the end of the program."""
        if dist.is_initialized():
            dist.destroy_process_group()


_joined: Processes | None = None


def join() -> Processes:
    """The processes that this one trains with; they are connected at the first call.

    All processes call it at the same time. The connections are closed when the program ends.

    Raises:
        UserError: the processes cannot be connected, or have different versions.
    """
    global _joined
    if _joined is None:
        _joined = _group() if is_launched() else Processes()
    return _joined


def _group() -> ProcessGroup:
    rank = Rank(whole_number("RANK"), whole_number("WORLD_SIZE"))
    if not 0 <= rank.index < rank.count:
        raise UserError(f"RANK={rank.index} is not below WORLD_SIZE={rank.count}")
    silence(rank.index > 0)
    seconds, minutes = positive_number(CONNECT_SECONDS, 60.0), positive_number(WAIT_MINUTES, 30.0)
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        with without_output():
            from torch.distributed.rendezvous import rendezvous

            store = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))[0]
    except (RuntimeError, ValueError) as error:
        raise no_store(error, address, rank, seconds) from error
    group = ProcessGroup(
        store, rank, whole_number("LOCAL_RANK", 0), whole_number("LOCAL_WORLD_SIZE", 1)
    )
    with group.together():
        group.connect(seconds, minutes)
    if is_elastic():
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    atexit.register(group.disconnect)
    return group
