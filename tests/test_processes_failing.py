"""Trainings whose processes are killed, stopped and interrupted; `make processes` (minutes)."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.runs.opening import open_run
from heedful.runs.recipe import read_recipe
from heedful.training.train import train
from launch_help import DRILL, command, metrics_lines, ranks_of, wait_for_lines, write_pairs

pytestmark = [
    pytest.mark.skipif("HEEDFUL_PROCESSES" not in os.environ, reason="make processes runs it"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
LONG = ["training.max_steps=1000000"]


def start(
    folder: Path, *options: str, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    options = options or ("--processes", "2")
    return subprocess.Popen(
        command(folder, folder / "run", *options, settings=LONG),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


@pytest.mark.parametrize(
    ("number", "target"), [("SIGINT", "launcher"), ("SIGTERM", "launcher"), ("SIGTERM", "rank")]
)
def test_a_signal_saves_once_and_ends_all(tmp_path: Path, number: str, target: str) -> None:
    write_pairs(tmp_path)
    process = start(tmp_path, "--processes", "2", "--restarts", "3")
    wait_for_lines(process, tmp_path / "run", 7)
    ranks = ranks_of(process.pid)
    sent = process.pid if target == "launcher" else ranks[1]
    os.kill(sent, signal.Signals[number])
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, "")
    assert errors.count("rerun the command to resume") == 1
    assert "Traceback" not in errors
    assert "torch" not in errors
    step = open_run(tmp_path / "run").checkpoints()[-1].step
    assert f"stopped at step {step:,}; rerun the command to resume" in errors


def test_processes_end_with_their_launcher(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    process = start(tmp_path)
    wait_for_lines(process, tmp_path / "run", 7)
    ranks = ranks_of(process.pid)
    process.kill()
    ends = time.monotonic() + 60
    while any(Path(f"/proc/{each}").exists() for each in ranks.values()):
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert "stopped at step" in process.communicate()[1]
    step = open_run(tmp_path / "run").checkpoints()[-1].step
    assert step == metrics_lines(tmp_path / "run")


def test_a_slow_process_is_waited_for(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    process = start(tmp_path)
    wait_for_lines(process, tmp_path / "run", 7)
    rank = ranks_of(process.pid)[1]
    os.kill(rank, signal.SIGSTOP)
    time.sleep(1)
    before = metrics_lines(tmp_path / "run")
    time.sleep(4)
    assert metrics_lines(tmp_path / "run") == before
    os.kill(rank, signal.SIGCONT)
    wait_for_lines(process, tmp_path / "run", before + 5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 130


def test_a_full_disk_is_one_line_and_the_checkpoint_before_it_is_kept(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    tables = read_recipe(tmp_path / "recipe.toml")
    tables["training"] |= {"virtual_shards": 2, "max_steps": 5, "threads": 1}
    assert train(tables, tmp_path / "run", data=tmp_path)
    process = start(
        tmp_path, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000,) * 2)
    )
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (2, "")
    wrong = [line for line in errors.splitlines() if line.startswith("heedful: cannot write")]
    assert len(wrong) == 1
    assert "Traceback" not in errors
    assert open_run(tmp_path / "run").checkpoints()[-1].step == 5


def test_different_recipes_under_torchrun_are_one_line(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    run = command(tmp_path, tmp_path / "run", launcher="LAUNCHED")[3:]
    script = tmp_path / "differ.py"
    script.write_text(
        "import os, sys\n"
        f"sys.argv = ['heedful', *{run!r}, '--set', 'seed=' + os.environ['RANK']]\n"
        "from heedful.cli.main import main\n"
        "main()\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    found = subprocess.run([*launcher, str(script)], capture_output=True, text=True, timeout=120)
    lines = [line for line in found.stderr.splitlines() if line.startswith("heedful:")]
    assert len(lines) == 1
    assert "option overrides is" in lines[0]
    assert "at rank 1" in lines[0]
    assert "exitcode  : 2" in found.stderr  # torchrun may have terminated the other one
    assert not (tmp_path / "run").exists()


def test_no_example_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    drill = [sys.executable, str(DRILL), "--processes", "2", "--kills", "3", "--steps", "120"]
    found = subprocess.run(
        [*drill, "--out", str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "weights identical" in found.stdout
