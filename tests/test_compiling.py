"""Compilation of C code: commands, damaged libraries, forked processes."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from heedful.basics.notices import once
from heedful.kernels import compiling
from heedful.kernels.workers import workers

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C file and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("CC", "HEEDFUL_MARCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compiling, "_notice_once", once())
    source = tmp_path / "three.c"
    source.write_text("int three(void) { return 3; }\n")
    return source


def built(source: Path) -> Path:
    """Load the library; returns its file."""
    library = compiling.compiled_library(source, "the test runs")
    assert library is not None
    assert library.three() == 3
    (found,) = compiling.cache_folder().glob("three-*.so")
    return found


@needs_cc
def test_a_compiler_command_with_arguments(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three.write_text("int three(void) { return NUMBER + SPACES; }\n")
    monkeypatch.setenv("CC", "env cc -DNUMBER=2 -DSPACES='(1 )'")
    built(three)
    monkeypatch.setenv("CC", "env cc -DNUMBER=4 -DSPACES=0")  # arguments may change the code
    other = compiling.compiled_library(three, "the test runs")
    assert other is not None
    assert other.three() == 4


@pytest.mark.parametrize("command", ["no-such-compiler -O2", "'cc", " no-such-compiler"])
def test_a_missing_compiler_is_reported_once(
    command: str, three: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", command)
    for _ in range(2):
        assert compiling.compiled_library(three, "the test runs") is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "CC=" in said
    assert "C code is not used" in said
    monkeypatch.setenv("CC", "none")
    assert compiling.compiled_library(three, "the test runs") is None
    assert capsys.readouterr().err == ""


@needs_cc
@pytest.mark.parametrize("damage", ["empty", "truncated", "foreign", "changed"])
def test_a_damaged_library_is_rebuilt(damage: str, three: Path) -> None:
    """Loading a truncated one would end this process with SIGBUS."""
    library = built(three)
    whole = library.read_bytes()
    library.unlink()  # what is loaded stays as it is
    library.write_bytes(
        {
            "empty": b"",
            "truncated": whole[: len(whole) // 2],
            "foreign": b"not a library\n" * 1000,
            "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
        }[damage]
    )
    assert built(three) == library
    assert library.read_bytes() == whole


@pytest.mark.slow
@needs_cc
def test_processes_can_build_concurrently(three: Path) -> None:
    load = (
        "import sys; from pathlib import Path; from heedful.kernels import compiling; "
        "sys.stdin.readline(); "
        "print(compiling.compiled_library(Path(sys.argv[1]), 'the test runs').three())"
    )
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([sys.executable, "-c", load, three], stdin=pipe, stdout=pipe)
        for _ in range(2)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in started] == [b"3\n", b"3\n"]
    assert built(three).exists()
    assert not [path for path in compiling.cache_folder().iterdir() if path.suffix != ".so"]


@needs_cc
def test_a_complete_library_is_not_rebuilt(three: Path) -> None:
    library = built(three)
    before = library.stat()
    assert built(three) == library
    assert library.stat().st_mtime_ns == before.st_mtime_ns


@needs_cc
def test_sanitizers_are_flags_and_part_of_the_file_name(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.write_text("int three(void) { volatile int big = 2147483647; return big + 1; }\n")
    monkeypatch.delenv("HEEDFUL_SANITIZE", raising=False)
    plain = compiling.compiled_library(three, "the test runs")
    assert plain is not None
    assert plain.three() == -(1 << 31)
    monkeypatch.setenv("HEEDFUL_SANITIZE", "undefined")
    call = (
        "import sys; from pathlib import Path; from heedful.kernels import compiling; "
        "compiling.compiled_library(Path(sys.argv[1]), 'the test runs').three()"
    )
    done = subprocess.run([sys.executable, "-c", call, three], capture_output=True, text=True)
    if "without its compiled kernel" in done.stderr:
        pytest.skip("this compiler has no sanitizer")
    assert done.returncode != 0
    assert "signed integer overflow" in done.stderr


def heedful_threads(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


WORKER = "heedful-worker"


def test_only_the_largest_thread_pool_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # Beside other programs one thread makes all calls, and would wait for the others here.
    monkeypatch.setattr(type(compiling.waiting_time), "alone", False)
    for count in range(2, 9):
        barrier = threading.Barrier(count)
        compiling.in_parallel(lambda _, all_there: all_there.wait(10) * 0, [(0, barrier)] * count)
    until = time.monotonic() + 10  # threads of smaller pools are ending
    while heedful_threads("heedful-compiled") > 7 and time.monotonic() < until:
        time.sleep(0.01)
    assert heedful_threads("heedful-compiled") <= 7

    def ask() -> None:
        for count in range(2, 9):
            pool = workers(count)
            assert sum(call.result() for call in [pool.submit(int, 1)] * count) == count
            assert workers(count) is pool

    before = {thread for thread in threading.enumerate() if WORKER in thread.name}
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(60)
    del asking
    new = {thread for thread in threading.enumerate() if WORKER in thread.name} - before
    for thread in new:  # pools that were given up, and that of a thread that has ended
        thread.join(10)
    assert not any(thread.is_alive() for thread in new)


FORKED = """
import os, sys, torch
torch.set_num_threads(1)
from heedful.kernels import compiling
from heedful.kernels.workers import workers

def use():
    compiling.in_parallel(lambda number: 0, [(0,), (1,), (2,)])
    return sum(call.result() for call in [workers(2).submit(int, 2) for _ in range(2)])

assert use() == 4
if sys.argv[1] == "locked":
    compiling._pool._lock.acquire()
child = os.fork()
if not child:
    os._exit(use())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_fork
@pytest.mark.parametrize("lock", ["free", "locked"])
def test_a_forked_process_starts_its_own_threads(lock: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKED, lock],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.communicate(timeout=30)[0] == "4\n"
    finally:
        os.killpg(process.pid, 9) if process.poll() is None else None
