"""Processes that train together: exchanges, failures, bad input, and the launcher."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import heedful.training.process_members as members
from heedful.basics.errors import UserError
from heedful.basics.notices import is_silent, silence
from heedful.cli.launching import require_number, without_options
from heedful.data.positions import Rank
from heedful.data.subwords import VocabularyTooLargeError
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, read_recipe
from heedful.training.process_environment import require_single
from heedful.training.processes import CONNECT_SECONDS, Processes, _group, join
from heedful.training.sharing import with_shards
from heedful.training.train import train
from launch_help import command, ranks_of, wait_for_lines, write_pairs
from processes_help import in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def test_a_single_process_exchanges_with_nobody() -> None:
    one = Processes()
    assert one.first
    assert one.rank == Rank(0, 1)
    assert one.gather(3) == [3]
    assert one.any(True)
    assert not one.any(False)
    assert (one.total(4), one.broadcast("x"), one.by_first(lambda: 5)) == (4, "x", 5)
    one.require_same({"a": 1})
    one.barrier()


def exchanges() -> dict[str, Any]:
    """What two processes get from each other, and the errors that they raise together."""
    own = join()
    index = own.rank.index
    found = {
        "gather": own.gather({"rank": index}),
        "any": (own.any(index == 1), own.any(False)),
        "total": (own.total(index + 1), own.total(0.1 * (index + 1))),
        "broadcast": own.broadcast(f"from {index}"),
        "first": own.by_first(lambda: f"by {index}"),
        "silent": is_silent(),
    }

    def too_large() -> None:
        raise VocabularyTooLargeError("too large", 7)

    try:
        with own.together():
            own.by_first(too_large)
    except VocabularyTooLargeError as error:
        found["error"] = (str(error), error.supported)
    try:
        with own.together():
            own.require_same({"training.seed": 1, "model.layers": index}, "option ")
    except UserError as error:
        found["different"] = str(error)
    return found | {"after": own.by_first(lambda: "alive")}


def test_processes_exchange_values_and_errors() -> None:
    found = in_processes(2, exchanges)
    for index, each in enumerate(found):
        assert each["gather"] == [{"rank": 0}, {"rank": 1}]
        assert each["any"] == (True, False)
        assert each["total"] == (3, 0.1 + 0.2)
        assert (each["broadcast"], each["first"], each["after"]) == ("from 0", "by 0", "alive")
        assert each["silent"] == (index > 0)
        assert each["error"] == ("too large", 7)
        assert "option model.layers is 1 at rank 1" in each["different"]
        assert "and 0 at rank 0; start all processes with the same command" in each["different"]


def fails(how: str) -> float:
    """Fails at rank 1 only; rank 0 waits for it in an exchange."""
    own = join()
    with own.together():
        if own.rank.index == 1:
            time.sleep(0.3)
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise UserError("the disk of rank 1 is full")
        own.barrier()
    return 0.0


def test_an_error_of_one_process_is_raised_in_all() -> None:
    assert in_processes(2, fails, "error") == ["the disk of rank 1 is full"] * 2


def test_a_killed_process_is_named_by_the_others() -> None:
    found, killed = in_processes(2, fails, "killed")
    assert killed == "killed"
    assert found.startswith("rank 1 (process ")
    assert "ended unexpectedly; rerun the command to resume from the last checkpoint" in found


def other_version(name: str) -> None:
    """Rank 1 says that it has another version."""
    if os.environ["RANK"] == "1":
        usual = members.versions_and_machine()
        members.versions_and_machine = lambda: usual | {name: "0.0.7"}
    join()


@pytest.mark.parametrize("name", ["heedful", "torch"])
def test_mixed_versions_are_refused_by_all(name: str) -> None:
    for found in in_processes(2, other_version, name):
        assert f"has {name} 0.0.7, rank 0 has" in found
        assert "install the same versions on all machines" in found


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The variables of rank 0 of 2, which has one second to connect."""
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", CONNECT_SECONDS: "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    silence(False)


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def test_a_rank_that_does_not_start_is_an_error(launched: pytest.MonkeyPatch) -> None:
    launched.setenv("MASTER_PORT", closed_port())
    with pytest.raises(UserError, match=r"not all of the 2 processes connected to .* within 1 sec"):
        _group()


def test_an_unreachable_master_is_an_error(launched: pytest.MonkeyPatch) -> None:
    launched.setenv("MASTER_PORT", closed_port())
    launched.setenv("RANK", "1")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"rank 1 cannot reach rank 0 at 127.0.0.1:\d+ within 1"):
        _group()
    assert time.monotonic() - began < 30
    assert not is_silent()  # rank 0 cannot report it


def test_a_port_in_use_is_an_error(launched: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as busy:
        launched.setenv("MASTER_PORT", str(busy.getsockname()[1]))
        with pytest.raises(UserError, match=r"is in use by another program; set another"):
            _group()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("RANK", "one", "RANK=one is not a whole number"),
        ("RANK", "2", "RANK=2 is not below WORLD_SIZE=2"),
        (CONNECT_SECONDS, "-1", "HEEDFUL_CONNECT_SECONDS=-1 is not a positive number"),
    ],
)
def test_wrong_variables_are_errors(
    launched: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    launched.setenv("MASTER_PORT", closed_port())
    launched.setenv(name, value)
    with pytest.raises(UserError, match=expected):
        _group()


def test_commands_for_one_process_refuse_several(launched: pytest.MonkeyPatch) -> None:
    launched.setenv("MASTER_PORT", "1")
    with pytest.raises(UserError, match=r"heedful tune runs in one process"):
        require_single("tune")


class Several(Processes):
    """Says that there are several processes."""

    def __init__(self, count: int) -> None:
        self.rank = Rank(0, count)


def test_a_new_run_gets_as_many_virtual_shards_as_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path)
    tables = read_recipe(tmp_path / "recipe.toml")
    recipe = check_recipe(tables, "here")
    assert with_shards(recipe, tmp_path / "run", Processes()) == recipe
    assert with_shards(recipe, tmp_path / "run", Several(4)).training.virtual_shards == 4
    said = capsys.readouterr().err
    assert "training.virtual_shards is set to 4" in said
    assert "4 times training.batch_tokens" in said
    tables["training"] |= {"global_batch_tokens": 4000}
    with_shards(check_recipe(tables, "here"), tmp_path / "run", Several(4))
    assert "each step takes" not in capsys.readouterr().err
    with pytest.raises(UserError, match=r"3 processes cannot share .* start 2 or 4 processes"):
        with_shards(recipe, tmp_path / "run", Several(3))
    tables["training"] |= {"virtual_shards": 8}
    given = check_recipe(tables, "here")
    assert with_shards(given, tmp_path / "run", Several(4)) == given


def test_options_of_the_launcher() -> None:
    left = without_options(["train", "a", "--processes", "2", "--out", "b", "--restarts=1"])
    assert left == ["train", "a", "--out", "b"]
    with pytest.raises(UserError, match=r"--processes 0: give a whole number from 1 to"):
        require_number("--processes", 0, 1)


def trained_together(folder: str, out: str, changes: list[dict[str, Any]]) -> Any:
    """Train in each process, with the changes of its rank."""
    tables = read_recipe(Path(folder) / "recipe.toml")
    tables["training"] |= changes[int(os.environ["RANK"])]
    return train(tables, Path(folder) / out, data=folder)


def test_bad_input_is_one_error_in_all_processes(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"learning_rate": 0.5}, "training.learning_rate is 0.5 at rank 1"),
        ({"virtual_shards": 1}, {"virtual_shards": 1}, "2 processes cannot share"),
        ({"batch_tokens": 99999}, {"batch_tokens": 99999}, "fewer batches than training.virtual"),
        ({"device": "cuda"}, {"device": "cuda"}, "cuda"),
    ]
    for one, other, expected in cases:
        if expected == "cuda" and torch.cuda.device_count() > 1:
            continue
        found = in_processes(2, trained_together, str(tmp_path), "run", [one, other])
        assert found[0] == found[1]
        assert expected in found[0]
        assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.skipif("HEEDFUL_PROCESSES" not in os.environ, reason="make processes runs it")
def test_a_killed_rank_ends_the_command_and_one_process_resumes_exactly(tmp_path: Path) -> None:
    """Trained by two processes until one is killed, then by this process to the end."""
    write_pairs(tmp_path)
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(tmp_path, out, "--processes", "2", settings=["training.max_steps=100000"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_lines(process, out, 8)
    ranks = ranks_of(process.pid)
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    last = errors.strip().splitlines()[-1]
    assert (process.returncode, output) == (2, "")
    assert f"heedful: rank 1 (process {ranks[1]}) ended with SIGKILL" in last
    assert "rerun the command to resume" in last
    assert errors.count("heedful: training.virtual_shards is set to 2") == 1
    assert "Traceback" not in errors
    steps = open_run(out).checkpoints()[-1].step + 6
    tables = read_recipe(tmp_path / "recipe.toml")
    tables["training"] |= {"max_steps": steps, "threads": 1}
    assert train(tables, out, data=tmp_path)
    tables["training"] |= {"virtual_shards": 2}
    assert train(tables, tmp_path / "whole", data=tmp_path)
    resumed, whole = (
        load_file(folder / f"checkpoints/step-{steps:08d}/model.safetensors")
        for folder in (out, tmp_path / "whole")
    )
    assert steps >= 11
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.items())


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path)
    tables = read_recipe(tmp_path / "recipe.toml")
    tables["training"] |= {"max_steps": 6, "max_minutes": 5.0, "threads": 1}
    assert train(tables, tmp_path / "usual", data=tmp_path)
    usual, jumps = time.time, iter(range(1, 10**6))
    monkeypatch.setattr(time, "time", lambda: usual() + 86_400 * (-2) ** (next(jumps) % 20))
    assert train(tables, tmp_path / "jumping", data=tmp_path)
    usual_weights, jumping = (
        (tmp_path / name / "checkpoints/step-00000006/model.safetensors").read_bytes()
        for name in ("usual", "jumping")
    )
    assert usual_weights == jumping
    seconds = [record["seconds"] for record in open_run(tmp_path / "jumping").metrics()]
    assert 0 <= max(seconds) < 300
