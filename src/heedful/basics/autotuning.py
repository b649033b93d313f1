"""Autotuning: measures once which of several implementations is fastest on this processor.

Measurements are stored in the user's cache folder, by processor and question, so that the choice
is the same in every process of a machine. Concurrent processes wait for one measurement.
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
    """The result of a measurement."""

    chosen: str
    """The implementation to use."""
    seconds: dict[str, float]
    """Implementation → seconds for one call."""

    def ratio(self, candidate: str, other: str) -> float:
        """The speed of an implementation relative to ``other``; above 1 is faster."""
        return self.seconds[other] / self.seconds[candidate]


def fastest(
    candidates: Mapping[str, Callable[[], object]], question: str, *, margin: float = 1.1
) -> Measured:
    """The fastest of several implementations, with the time of each.

    Each is called once to warm up, then all are called in turns; the shortest call of each counts.

    Args:
        candidates: name → function that does the work once. The first is the default.
        question: what is measured and with which sizes; the key of the stored result.
        margin: how many times as fast as the default another one must be to be chosen.
    """
    key = hashlib.sha256("\n".join([question, *candidates, *_machine()]).encode()).hexdigest()[:24]
    with _answers(key) as known:
        if known and set(known.seconds) == set(candidates) and known.chosen in candidates:
            return known
        seconds = _seconds(candidates)
        usual = next(iter(candidates))
        best = min(seconds, key=seconds.__getitem__)
        found = Measured(best if seconds[usual] >= margin * seconds[best] else usual, seconds)
        _keep(key, found)
        return found


@functools.cache
def _machine() -> tuple[str, ...]:
    """Versions and properties of the machine that the result depends on."""
    settings = (os.environ.get(name, "") for name in _SETTINGS)
    return (*settings, importlib.metadata.version("heedful"), torch.__version__, processor())


def _seconds(candidates: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    def timed(candidate: Callable[[], object]) -> float:
        began = time.perf_counter()
        candidate()
        return time.perf_counter() - began

    for candidate in candidates.values():
        candidate()
    rounds = [{name: timed(candidate) for name, candidate in candidates.items()}]
    while len(rounds) < _ROUNDS and sum(map(sum, (one.values() for one in rounds))) < _ENOUGH:
        rounds.append({name: timed(candidate) for name, candidate in candidates.items()})
    return {name: min(found[name] for found in rounds) for name in candidates}


_kept: dict[str, Measured] = {}


@contextlib.contextmanager
def _answers(key: str) -> Iterator[Measured | None]:
    """The stored result for a question; other processes wait while the block runs."""
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
        values = json.loads(path.read_text(encoding="utf-8"))
        seconds = {str(name): float(value) for name, value in values["seconds"].items()}
        return Measured(str(values["chosen"]), seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no result yet, or a damaged file: measure and write it again


def _keep(key: str, found: Measured) -> None:
    _kept[key] = found
    folder = _folder()
    if folder is not None:
        # If the file cannot be written, only this process remembers the result.
        with contextlib.suppress(UserError):
            write_json(folder / f"{key}.json", found._asdict())


@functools.cache
def _folder() -> Path | None:
    """Where results are stored; None if nothing can be written."""
    try:
        folder = cache_folder() / "measured"
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
