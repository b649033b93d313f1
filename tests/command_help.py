"""Runs ``python -m heedful``, or a program, in a process without importing PyTorch in each.

A process that imports PyTorch and heedful takes seconds before it does anything. Here, a server
process of each pytest worker imports them once and computes nothing. Each command is a fork of it:
a real process with its own memory, signals and exit code, which starts in milliseconds.

What depends on the start of Python itself (variables that are read at import, ``-W``, what is
imported, exit handlers) needs ``subprocess``.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from disk_help import without_waiting

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
Output = int | IO[Any] | None


def run_command(
    *arguments: object,
    cwd: Path | None = None,
    given: str | None = None,
    timeout: float = 120,
    program: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end.

    Args:
        arguments: the command and its arguments, without ``heedful``.
        cwd: the folder to run in; by default the current one.
        given: the standard input; by default nothing.
        timeout: seconds after which the command is killed.
        program: a Python file that is run instead of heedful.
    """
    with tempfile.TemporaryFile("w+") as source:
        source.write(given or "")
        source.seek(0)
        with Started(
            *arguments, cwd=cwd, stdin=source, stdout=PIPE, stderr=PIPE, program=program
        ) as process:
            out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(list(arguments), process.returncode or 0, out, err)


class Started:
    """A command that runs, with the interface of ``subprocess.Popen``.

    Args:
        arguments: the command and its arguments, without ``heedful``.
        cwd: the folder to run in; by default the current one.
        stdin: the standard input: ``PIPE``, ``DEVNULL``, an open file or its descriptor.
        stdout: the standard output, as ``stdin``; by default that of pytest.
        stderr: the standard error, as ``stdout``.
        text: whether pipes are of text instead of bytes.
        program: a Python file that is run instead of heedful.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path | None = None,
        stdin: Output = DEVNULL,
        stdout: Output = None,
        stderr: Output = None,
        text: bool = True,
        program: Path | None = None,
    ) -> None:
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        passed, given = [], [stdin, stdout, stderr]
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            fd, own = _descriptor(given[number], number)
            passed.append(fd)
            if own is not None:
                pipe = os.fdopen(own, ("w" if number == 0 else "r") + ("" if text else "b"))
                setattr(self, name, pipe)
        self._process = _forked(
            list(map(str, arguments)), cwd or Path.cwd(), passed, program and program.resolve()
        )
        for fd, what in zip(passed, given, strict=True):
            if what in (PIPE, DEVNULL):
                os.close(fd)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it ends."""
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("heedful", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = 120) -> tuple[Any, Any]:
        """The rest of the outputs, once it ends; the standard input is closed."""
        if self.stdin is not None:
            self.stdin.close()
        read: dict[str, Any] = {}
        threads = [
            threading.Thread(target=lambda name, pipe: read.update({name: pipe.read()}), args=one)
            for one in (("out", self.stdout), ("err", self.stderr))
            if one[1] is not None and not one[1].closed
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0, until - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.kill()
            raise subprocess.TimeoutExpired("heedful", timeout)
        self.wait(max(1, until - time.monotonic()))
        return read.get("out"), read.get("err")

    def send_signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait(120)


def _descriptor(given: Output, number: int) -> tuple[int, int | None]:
    """The descriptor for the command, and that of our end of a pipe."""
    if given == PIPE:
        ends = os.pipe()
        return (ends[0], ends[1]) if number == 0 else (ends[1], ends[0])
    if given == DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if given is None:
        return number, None
    return (given if isinstance(given, int) else given.fileno()), None


def fork_server() -> ForkServerContext:
    """The context of processes that are forks of one with all modules of heedful.

    The first process of any fork-server context of a pytest worker starts the server, so that all
    tests need the same one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preload_help"])
    with _path_of_tests():
        forkserver.ensure_running()
    return context


@contextmanager
def _path_of_tests() -> Iterator[None]:
    """Let a new process import modules of this folder: some versions of Python need this."""
    before = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = folder if before is None else folder + os.pathsep + before
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _forked(arguments: list[str], folder: Path, fds: list[int], program: Path | None) -> Any:
    settings = (arguments, str(folder), dict(os.environ), program)
    process = fork_server().Process(target=_Target(settings, fds))
    process.start()
    return process


_Settings = tuple[list[str], str, dict[str, str], Path | None]


class _Target:
    """What a fork does; it is pickled with duplicates of the descriptors."""

    def __init__(self, settings: _Settings, fds: list[int]) -> None:
        self.settings, self.fds = settings, fds

    def __reduce__(self) -> Any:
        return _Target, (self.settings, [DupFd(fd) for fd in self.fds])

    def __call__(self) -> None:
        arguments, folder, environment, program = self.settings
        for number, fd in enumerate(self.fds):
            os.dup2(fd.detach(), number)
        sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", encoding="utf-8")
        # A pytest in the background, or of nohup, ignores both.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        os.fsync = without_waiting(os.fsync)
        sys.argv[1:] = arguments
        if program is None:
            runpy.run_module("heedful", run_name="__main__", alter_sys=True)
        else:
            sys.argv[0] = str(program)
            sys.path.insert(0, str(program.parent))
            runpy.run_path(str(program), run_name="__main__")
