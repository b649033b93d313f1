"""What a training does when its terminal is closed, and what it says when it is resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from command_help import Started
from heedful.basics.errors import UserError
from heedful.runs.manifest import seal
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.training.loop import Loop
from heedful.training.train import prepare, train
from text_help import write_data

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs POSIX signals")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resumed")
    write_data(folder)
    lines = (folder / "pairs.tsv").read_text().splitlines()[1:]
    (folder / "pairs.tsv").write_text("".join(f"{x.rpartition(chr(9))[0]}\n" for x in lines))
    return folder


def recipe(**training: object) -> dict[str, object]:
    loop = {"checkpoint_every": 1000, "batch_tokens": 200, "threads": 1, "precision": "float32"}
    return {
        "data": {"train": "pairs.tsv", "max_tokens": 19, "filters": {"duplicates": False}},
        "tokeniser": {"vocabulary_size": 350},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2, "max_length": 20},
        "training": {**loop, **training},
    }


SCRIPT = """
import os, signal, sys
import heedful
if sys.argv[3] == "ignored":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
finished = heedful.train({recipe}, sys.argv[1], data=sys.argv[2])
os._exit(0 if finished else 130)  # nothing can be flushed to a closed terminal
"""


# The standard input is the terminal of a session from now on.
OWN_TERMINAL = "import os\nos.setsid()\nos.close(os.open(os.ttyname(0), os.O_RDWR))\n"


def script(steps: int) -> str:
    return SCRIPT.format(recipe=recipe(max_steps=steps, log_every=1))


def command(folder: Path, out: str, how: str, steps: int) -> list[str]:
    return [sys.executable, "-c", script(steps), str(folder / out), str(folder), how]


def wait_for_a_step(process: subprocess.Popen[bytes], run: Path) -> None:
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.01)


def test_a_closed_terminal_ends_the_training_with_a_checkpoint(folder: Path) -> None:
    """The real thing: a terminal of its own, live bar and all, which goes away."""
    master, slave = os.openpty()
    program = folder / "closed.py"
    program.write_text(OWN_TERMINAL + script(10**6))
    given = (folder / "closed", folder, "kept")
    process = Started(*given, stdin=slave, stdout=slave, stderr=slave, program=program)
    os.close(slave)
    os.set_blocking(master, False)
    run = folder / "closed"
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.01)
        try:
            os.read(master, 1 << 16)
        except BlockingIOError:
            continue
    os.close(master)
    assert process.wait(timeout=100) == 130
    (point,) = open_run(run).checkpoints()
    assert point.step >= 1


@pytest.mark.slow
def test_an_ignored_hangup_stays_ignored(folder: Path) -> None:
    process = subprocess.Popen(command(folder, "nohup", "ignored", 10**6), stderr=subprocess.PIPE)
    run = folder / "nohup"
    wait_for_a_step(process, run)
    process.send_signal(signal.SIGHUP)
    before = (run / "metrics.jsonl").stat().st_size
    while process.poll() is None and (run / "metrics.jsonl").stat().st_size < before + 2000:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert said.count(b"interrupted: saving") == 1


PARENT = """
import sys
from pathlib import Path
from typing import Any
from heedful.training.comparison_record import Training
from heedful.training.parallel_trainings import train_in_processes
folder = Path(sys.argv[1])
training = Training("one", 1, sys.argv[2])
train_in_processes(folder, [training], folder, 1, lambda *given, **named: None)
"""


@pytest.mark.slow
def test_a_process_ends_with_a_checkpoint_if_the_comparison_is_killed(folder: Path) -> None:
    run = folder / "child"
    # Steps for a minute or so: what is not ended ends by itself.
    prepare(check_recipe(recipe(max_steps=5000, log_every=1), ""), run, data=folder)
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(folder), "child"])
    wait_for_a_step(process, run)
    process.kill()
    process.wait()
    before = time.monotonic()
    while not open_run(run).checkpoints() and time.monotonic() < before + 20:
        time.sleep(0.05)
    assert open_run(run).checkpoints()
    assert "interrupted: saving" in (folder / "child.log").read_text()


def test_another_number_of_threads_is_said_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from heedful.basics.device import one_thread

    with one_thread():  # puts PyTorch's own number back
        assert train(recipe(max_steps=2), folder / "threads", data=folder)
        assert train(recipe(max_steps=3), folder / "threads", data=folder)
        assert "threads" not in capsys.readouterr().err.replace(str(folder / "threads"), "")
        assert train(recipe(max_steps=4, threads=2), folder / "threads", data=folder)
    message = "resumed with 2 threads instead of 1: a different thread count gives a"
    assert capsys.readouterr().err.count(message) == 1


def test_a_checkpoint_that_does_not_fit_is_one_line(folder: Path) -> None:
    assert train(recipe(max_steps=2), folder / "other", data=folder)
    path = folder / "other" / "checkpoints" / "step-00000002" / "state.json"
    state = json.loads(path.read_text())
    for progress in (
        {},
        {**state["progress"], "position": [1, 2, 3, 4]},
        {**state["progress"], "more": 1},
    ):
        path.write_text(json.dumps(seal({**state, "progress": progress})))
        with pytest.raises(UserError, match="does not fit this run") as caught:
            train(recipe(max_steps=3), folder / "other", data=folder)
        assert "\n" not in str(caught.value)


def test_a_finished_run_that_is_trained_on_is_not_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder / "longer"
    assert train(recipe(max_steps=2), run, data=folder)
    result = open_run(run).result
    assert result is not None
    assert result["step"] == 2
    step = Loop._step

    def stopping(loop: Loop, batches: Any) -> None:
        step(loop, batches)
        loop._interrupt()

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "_step", stopping)
        assert not train(recipe(max_steps=4), run, data=folder)
    assert open_run(run).result is None
    assert open_run(run).chosen().step == 3
    assert train(recipe(max_steps=4), run, data=folder)
    result = open_run(run).result
    assert result is not None
    assert result["chosen"] == "step-00000004"
