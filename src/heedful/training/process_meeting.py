"""How processes find each other in a store that may hold keys of processes that were restarted.

torchrun keeps one store for all restarts. Every rank therefore leaves a value that is new. Rank 0
lists the values that it sees under a new identifier, and each rank confirms a list with its own
value. The processes start when all ranks have confirmed the same list.
"""

import pickle
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from heedful.data.positions import Rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


def meet(store: "Store", rank: Rank, about: Any, seconds: float) -> tuple[str, list[Any]] | None:
    """Wait for the other processes.

    Args:
        store: the store of all processes.
        rank: the rank of this process.
        about: what the others shall know about it; it is pickled.
        seconds: how long to wait.

    Returns:
        An identifier that is new and the same for all processes, and ``about`` of each by rank;
        None if some have not come.
    """
    own = pickle.dumps((uuid4().hex, about))
    _set(store, f"hello/{rank.index}", own)
    look = _First(store, rank) if rank.index == 0 else _Other(store, rank, own)
    found = wait_for(look, seconds)
    if found is None:
        return None
    listed = pickle.loads(store.get(f"listed/{found}"))
    return found, [pickle.loads(each)[1] for each in listed]


class _First:
    """Rank 0 lists the processes; a call returns the identifier of a list that all confirmed."""

    def __init__(self, store: "Store", rank: Rank) -> None:
        self.store, self.name, self.listed = store, "", list[bytes]()
        self.hellos = [f"hello/{index}" for index in range(rank.count)]
        self.confirmed = [f"confirmed/{index}" for index in range(1, rank.count)]

    def __call__(self) -> str | None:
        if not self.store.check(self.hellos):
            return None
        now = self.store.multi_get(self.hellos)
        if now != self.listed:
            self.name, self.listed = uuid4().hex, now
            _set(self.store, f"listed/{self.name}", pickle.dumps(now))
            _set(self.store, "list", self.name.encode())
        if self.confirmed:
            if not self.store.check(self.confirmed):
                return None
            if set(self.store.multi_get(self.confirmed)) != {self.name.encode()}:
                return None
        _set(self.store, "start", self.name.encode())
        return self.name


class _Other:
    """Another rank confirms lists with its value; a call returns the list to start with."""

    def __init__(self, store: "Store", rank: Rank, own: bytes) -> None:
        self.store, self.index, self.own, self.name = store, rank.index, own, b""

    def __call__(self) -> str | None:
        if not self.store.check(["list"]):
            return None
        name = self.store.get("list")
        if name != self.name:
            listed = pickle.loads(self.store.get(f"listed/{name.decode()}"))
            if self.index >= len(listed) or listed[self.index] != self.own:
                return None
            self.name = name
            _set(self.store, f"confirmed/{self.index}", name)
        started = self.store.check(["start"]) and self.store.get("start") == name
        return name.decode() if started else None


def wait_for(look: Callable[[], str | None], seconds: float) -> str | None:
    """Call a function until it returns a value; None if that takes longer than ``seconds``."""
    ends, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while (found := look()) is None:
        if time.monotonic() > ends:
            return None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return found


def _set(store: "Store", key: str, value: bytes) -> None:
    store.set(key, value)  # type: ignore[arg-type]  # bytes are stored as they are
