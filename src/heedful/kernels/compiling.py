"""Compiles heedful's C files for this processor, if a compiler is available.

A file is compiled once and stored in the user's cache folder. Every function in C has a plain
PyTorch reference that needs no compiler and gives the same results.

Environment variables:
    CC: the compiler, ``cc`` by default, optionally with arguments (``ccache gcc``). ``none``
    disables
        compiled code.
    HEEDFUL_MARCH: the instruction set, a value of the compiler's ``-march`` (``x86-64-v3``,
        ``armv8-a``). By default, the code is compiled for the current processor.
    HEEDFUL_SANITIZE: sanitizers for tests, a value of ``-fsanitize`` (``address,undefined``).
        The sanitizer's library must be in ``LD_PRELOAD`` (``make sanitize``).
"""

import ctypes
import functools
import hashlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from heedful.basics.notices import notice, once
from heedful.basics.thread_contention import waiting_time
from heedful.basics.user_cache import cache_folder, processor

T = TypeVar("T")

SOURCES = Path(__file__).with_name("c")
"""The folder of all C files."""
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread")
_NATIVE = ("-march=native", "-mcpu=native")
"""Options for the current processor; compilers for ARM accept one or both."""
_SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
"""Options in addition to ``-fsanitize``: an error aborts with line numbers."""
_OFF = "none"
_notice_once = once()


def compiled_library(source: Path, what: str) -> ctypes.CDLL | None:
    """The library of a C file; None if it is not available.

    If the compiler fails, each call prints a notice with ``what``. If the command of CC does not
    exist, a notice is printed once.

    Args:
        source: the file.
        what: subject and verb of the notice, such as "search runs".
    """
    command = None if sys.platform == "win32" else compiler()
    if command is None:
        return None
    try:
        return ctypes.CDLL(str(_build(command, source)))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        last = reason.strip().splitlines()[-1] if reason.strip() else shlex.join(command)
        notice(f"{what} without its compiled kernel: {last}")
        return None


def compiler() -> list[str] | None:
    """The command of the C compiler, from ``CC``; None if there is none.

    If ``CC`` names a command that does not exist, a notice is printed once.
    """
    named = os.environ.get("CC", "").strip()
    if named == _OFF:
        return None
    try:
        command = shlex.split(named) or ["cc"]
    except ValueError as error:  # an unclosed quotation mark
        _notice_once(f"CC={named} cannot be read as a command ({error}): C code is not used")
        return None
    found = shutil.which(command[0])
    if found is not None:
        return [found, *command[1:]]
    if named:
        _notice_once(
            f"CC={named}: command {command[0]!r} not found, C code is not used; "
            f"set CC to a C compiler or to {_OFF}"
        )
    return None


def in_parallel(function: Callable[..., int], calls: Sequence[tuple[object, ...]]) -> None:
    """Make several calls of a C function in parallel; ctypes releases the GIL.

    If other programs use the cores, one thread makes all calls
    (:mod:`heedful.basics.thread_contention`).

    Raises:
        MemoryError: a call returned 1: memory cannot be allocated.
        IndexError: a call returned 2: an index is out of range.
    """
    if len(calls) < 2 or waiting_time.alone:
        raise_failed(max(function(*call) for call in calls))
        return

    def timed(call: tuple[object, ...]) -> tuple[int, float]:
        began = time.perf_counter()
        return function(*call), time.perf_counter() - began

    began = time.perf_counter()
    futures = _pool.submit([functools.partial(timed, call) for call in calls[1:]])
    found = [timed(calls[0]), *(future.result() for future in futures)]
    waiting_time.record(time.perf_counter() - began, min(seconds for _, seconds in found))
    raise_failed(max(failed for failed, _ in found))


def raise_failed(code: int) -> None:
    """Raise the error for the return code of a C function: MemoryError for 1, IndexError for 2."""
    if code == 2:
        raise IndexError("an index is out of range")
    if code:
        raise MemoryError("not enough memory for the buffers of a compiled function")


def over_rows(
    function: Callable[..., int], given: Sequence[object], rows: int, threads: int
) -> None:
    """Call a C function in parallel for ranges of rows. First row and end are the last arguments.

    Raises:
        MemoryError: as :func:`in_parallel`.
    """
    if threads == 1:
        in_parallel(function, [(*given, ctypes.c_int64(0), ctypes.c_int64(rows))])
        return
    threads = max(1, min(threads, rows))
    edges = [ctypes.c_int64(rows * i // threads) for i in range(threads + 1)]
    in_parallel(function, [(*given, *share) for share in itertools.pairwise(edges)])


class _Pool:
    """The thread pool of :func:`in_parallel`, which grows to the largest number of calls so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, calls: Sequence[Callable[[], T]]) -> list[Future[T]]:
        """Submit all calls. There are enough threads unless another thread has submitted calls."""
        with self._lock:  # no call may be submitted to a pool that was shut down
            if self._pool is None or self._threads < len(calls):
                if self._pool is not None:
                    self._pool.shutdown(wait=False)
                self._threads = len(calls)
                self._pool = ThreadPoolExecutor(self._threads, "heedful-compiled")
            return [self._pool.submit(call) for call in calls]


_pool = _Pool()


def _reset_after_fork() -> None:
    """A child process does not inherit its parent's threads, which may hold the lock."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _with_includes(source: Path) -> dict[Path, str]:
    """A C file and the project's files that it includes, with their contents."""
    found: dict[Path, str] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = file.read_text(encoding="utf-8")
        names = re.findall(r'^#include "([^"]+)"', found[file], flags=re.MULTILINE)
        waiting += [SOURCES / name for name in names]
    return found


def _build(compiler: Sequence[str], source: Path) -> Path:
    """The file of the library, from the cache if it is complete.

    Its name ends in the hash of its content: an empty, truncated or foreign file is rebuilt instead
    of loaded, because loading it could end the process with SIGBUS.
    """
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    target = os.environ.get("HEEDFUL_MARCH") or processor()
    flags = [*FLAGS, *_sanitizers(), *_target(compiler)]
    texts = [text for _, text in sorted(_with_includes(source).items())]
    made_of = "\n".join([*texts, *compiler[1:], version, target, *flags])
    name = f"{source.stem}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    folder = cache_folder()
    for cached in sorted(folder.glob(f"{name}-*.so")):
        if cached.stem == f"{name}-{_content(cached)}":
            return cached
        cached.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        made = Path(beside) / f"{name}.so"
        files = [f"-I{SOURCES}", str(source), "-o", str(made)]
        command = [*compiler, *flags, *files, "-lm"]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return made.replace(folder / f"{name}-{_content(made)}.so")


def _content(library: Path) -> str:
    """The hash of a file's content; empty if the file cannot be read."""
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def _sanitizers() -> list[str]:
    chosen = os.environ.get("HEEDFUL_SANITIZE")
    return [*_SANITIZED, f"-fsanitize={chosen}"] if chosen else []


def _target(compiler: Sequence[str]) -> list[str]:
    """The option for the instruction set; empty if the compiler has no such option."""
    chosen = os.environ.get("HEEDFUL_MARCH")
    if chosen:
        return [f"-march={chosen}"]
    return _native(tuple(compiler))


@functools.cache
def _native(compiler: tuple[str, ...]) -> list[str]:
    empty = ["-x", "c", "-fsyntax-only", "-"]
    for option in _NATIVE:
        command = [*compiler, option, *empty]
        tried = subprocess.run(command, input=b"", capture_output=True, timeout=60)
        if tried.returncode == 0:
            return [option]
    return []
