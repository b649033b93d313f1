"""Starts ``heedful train`` several times with PyTorch's elastic launcher, and reports how it ended.

Each process writes the exit code that the command should have to a file and exits with 0, so that
the launcher restarts processes that failed, but not those that were interrupted or found an error
of the user.
"""

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.runs.registry import loaded_files

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

_EXITS = "HEEDFUL_EXIT_FOLDER"
"""Environment variable: the folder in which processes write their exit codes."""
_OPTIONS = ("--processes", "--restarts")
_INTERRUPTED = 130
_MOST = 4_096


def launch(processes: int, restarts: int) -> int:
    """Run the current command in several processes of this machine; returns its exit code.

    Args:
        processes: how many.
        restarts: how often they may be started again if one of them ends unexpectedly.

    Raises:
        UserError: a process ended unexpectedly, and no restart is left.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # errors of the launcher are reported in one line
    # The variable also ends a message of PyTorch about its own default.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // processes)))
    with tempfile.TemporaryDirectory(prefix="heedful-") as folder:
        os.environ[_EXITS] = folder
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            elastic_launch(config, sys.executable)(*_arguments())
        except ChildFailedError as error:
            raise UserError(_failure(error)) from error
        except SignalException as error:
            return _exit_code(Path(folder)) or _of_signal(error.sigval)
        return _exit_code(Path(folder))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _arguments() -> list[str]:
    """The arguments of Python that run this command without the options of the launcher."""
    plugins = [f"--plugin={file}" for file in loaded_files()]
    return ["-u", "-m", "heedful", *plugins, *without_options(sys.argv[1:])]


def without_options(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--processes N`` and ``--restarts N``.

    Example:
        >>> without_options(["train", "a.toml", "--processes", "2", "--restarts=5", "--out", "b"])
        ['train', 'a.toml', '--out', 'b']
    """
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, _ = argument.partition("=")
        if name not in _OPTIONS:
            rest.append(argument)
        elif not equals:
            next(remaining, None)
    return rest


def _failure(error: "ChildFailedError") -> str:
    """One line about the process that ended first."""
    # Other processes fail because of it: with an error of the user's, or by the launcher's signal.
    own = {
        rank: failure
        for rank, failure in error.failures.items()
        if failure.exitcode not in (2, -signal.SIGTERM)
    }
    rank, failure = min((own or error.failures).items(), key=lambda item: item[1].timestamp)
    code = failure.exitcode
    if code >= 0:
        how = f"exit code {code}; its messages are above"
    elif code == -signal.SIGKILL:
        how = "SIGKILL, by hand or because memory ran out"
    else:
        how = signal.Signals(-code).name
    return (
        f"rank {rank} (process {failure.pid}) ended with {how}; rerun the command to resume from "
        "the last checkpoint, or add --restarts N"
    )


def _exit_code(folder: Path) -> int:
    """The exit code of the command: the largest that the processes have written."""
    return max((int(path.read_text()) for path in folder.glob("rank-*")), default=0)


def _of_signal(number: int) -> int:
    return _INTERRUPTED if number == signal.SIGINT else 128 + number


@contextmanager
def exit_codes() -> Iterator[None]:
    """In a process of :func:`launch`, write the exit code of the block instead of exiting with it.

    A process that was lost is an exception: the launcher sees the failure and restarts all.
    """
    folder = os.environ.get(_EXITS)
    if folder is None:
        yield
        return
    from heedful.training.process_environment import restarts_left
    from heedful.training.processes import LostProcessError

    try:
        yield
    except LostProcessError as error:
        if restarts_left() > 0:
            notice(str(error))
        raise typer.Exit(2) from error  # without restarts, the launcher reports it
    except UserError as error:
        notice(str(error))
        _write(folder, 2)
        raise typer.Exit(0) from error
    except typer.Exit as ended:
        _write(folder, ended.exit_code)
        raise typer.Exit(0) from ended


def _write(folder: str, code: int) -> None:
    rank = os.environ["RANK"]
    (Path(folder) / f"rank-{rank}").write_text(str(code))


def require_number(name: str, value: int, least: int, most: int = _MOST) -> None:
    """Raise UserError if the value of an option is out of range."""
    if not least <= value <= most:
        raise UserError(f"{name} {value}: give a whole number from {least} to {most}")
