"""A command that is forked from a process with heedful in it is the command that a user starts."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command_help import DEVNULL, PIPE, Started, run_command


@pytest.mark.parametrize("arguments", [["info", "absent"], ["data", "stats", "-"]])
def test_a_fork_and_a_process_of_its_own_do_the_same(tmp_path: Path, arguments: list[str]) -> None:
    given = "one\teins\nzwölf\t“zwölf”\n"
    real = subprocess.run(
        [sys.executable, "-m", "heedful", *arguments],
        cwd=tmp_path,
        input=given,
        capture_output=True,
        text=True,
    )
    fork = run_command(*arguments, cwd=tmp_path, given=given)
    assert (fork.returncode, fork.stdout, fork.stderr) == (
        *(real.returncode, real.stdout, real.stderr),
    )


def test_signals_and_time_limits(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with Started("data", "stats", "-", stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL) as process:
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            process.send_signal(number)
            assert process.wait(60) == -number


def test_the_environment_is_that_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = run_command("--help").stdout
    monkeypatch.setenv("COLUMNS", "60")
    assert len(run_command("--help").stdout.splitlines()) > len(wide.splitlines())
