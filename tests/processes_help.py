"""Several processes of gloo on this machine, which call one function."""

import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from command_help import fork_server
from disk_help import without_waiting
from heedful.basics.errors import UserError
from heedful.training import processes as waiting

_SECONDS = 300
_PAUSES = {"_PRINTING_SECONDS": 0.1, "_LONGEST_PAUSE": 0.05}
"""How long processes wait for each other at an error: no launcher waits for their messages."""


def in_processes(count: int, work: Callable[..., Any], *given: Any) -> list[Any]:
    """What a function of a module returns in each of several processes, by rank.

    An error is returned as well. The processes have one thread each.
    """
    context = fork_server()
    port = _free_port()
    pipes, started = [], []
    for rank in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_call, args=(theirs, rank, count, port, work, given), daemon=True
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        started.append(process)
    found = [_received(pipe) for pipe in pipes]
    for process in started:
        process.join(10)
        process.kill()
    return found


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv() if pipe.poll(_SECONDS) else "no answer"
    except EOFError:
        return "killed"


def _call(
    pipe: Connection,
    rank: int,
    count: int,
    port: int,
    work: Callable[..., Any],
    given: tuple[Any, ...],
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "HEEDFUL_WAIT_MINUTES": "1",
    }
    torch.set_num_threads(1)
    os.fsync = without_waiting(os.fsync)
    for name, seconds in _PAUSES.items():
        assert hasattr(waiting, name)
        setattr(waiting, name, seconds)
    try:
        found = work(*given)
    except UserError as error:
        found = str(error)
    except BaseException:  # noqa: BLE001 - it is returned
        found = traceback.format_exc()
    pipe.send(found)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
