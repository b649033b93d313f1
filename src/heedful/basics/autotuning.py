"""Which of several ways to compute the same is fastest on this processor: measured once and kept.

What was measured is kept in the user's cache folder, for each processor and each question, so that
the same machine always answers alike. Processes that ask at the same time wait for one answer.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.user_cache import cache_folder, processor

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENOUGH = 0.3
"""Seconds of calls after which they are not repeated."""
_ROUNDS = 5
_SETTINGS = (
    *("CC", "HEEDFUL_MARCH", "HEEDFUL_SANITIZE", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE"),
)
"""Environment variables that change which instructions are used."""


class Measured(NamedTuple):
    """What was found."""

    chosen: str
    """The way to take."""
    seconds: dict[str, float]
    """Way → seconds of a call."""

    def ratio(self, way: str, other: str) -> float:
        """How many times as fast as ``other`` a way is."""
        return self.seconds[other] / self.seconds[way]


def fastest(
    ways: Mapping[str, Callable[[], object]], question: str, *, margin: float = 1.1
) -> Measured:
    """The fastest way to do something, with what each takes.

    Every way is called once to warm up, then in turns; the shortest call of each counts.

    Args:
        ways: name → does the work once. The first way is the usual one.
        question: what is measured and on what sizes; the answer is kept under it.
        margin: how many times as fast as the usual way another one must be to be chosen.
    """
    key = hashlib.sha256("\n".join([question, *ways, *_machine()]).encode()).hexdigest()[:24]
    with _answers(key) as known:
        if known and set(known.seconds) == set(ways) and known.chosen in ways:
            return known
        seconds = _seconds(ways)
        usual = next(iter(ways))
        best = min(seconds, key=seconds.__getitem__)
        found = Measured(best if seconds[usual] >= margin * seconds[best] else usual, seconds)
        _keep(key, found)
        return found


@functools.cache
def _machine() -> tuple[str, ...]:
    """What else the answer depends on."""
    settings = (os.environ.get(name, "") for name in _SETTINGS)
    return (*settings, importlib.metadata.version("heedful"), torch.__version__, processor())


def _seconds(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    def timed(way: Callable[[], object]) -> float:
        began = time.perf_counter()
        way()
        return time.perf_counter() - began

    for way in ways.values():
        way()
    rounds = [{name: timed(way) for name, way in ways.items()}]
    while len(rounds) < _ROUNDS and sum(map(sum, (one.values() for one in rounds))) < _ENOUGH:
        rounds.append({name: timed(way) for name, way in ways.items()})
    return {name: min(found[name] for found in rounds) for name in ways}


_kept: dict[str, Measured] = {}


@contextlib.contextmanager
def _answers(key: str) -> Iterator[Measured | None]:
    """What is known of a question; nobody else answers it while the block runs."""
    if key in _kept:
        yield _kept[key]
        return
    with contextlib.ExitStack() as stack:
        folder = _folder()
        if folder is not None and fcntl is not None:
            lock = stack.enter_context((folder / f"{key}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        known = None if folder is None else _read(folder / f"{key}.json")
        if known is not None:
            _kept[key] = known
        yield known


def _read(path: Path) -> Measured | None:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        seconds = {str(name): float(value) for name, value in told["seconds"].items()}
        return Measured(str(told["chosen"]), seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # nothing is known, or the file is damaged: it is measured and written anew


def _keep(key: str, found: Measured) -> None:
    _kept[key] = found
    folder = _folder()
    if folder is not None:
        # Without room for the file this process alone remembers.
        with contextlib.suppress(UserError):
            write_json(folder / f"{key}.json", found._asdict())


@functools.cache
def _folder() -> Path | None:
    """Where answers are kept; None where nothing can be written."""
    try:
        folder = cache_folder() / "measured"
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
