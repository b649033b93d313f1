"""The environment variables of processes that train together, and their launcher."""

import contextlib
import os
import signal
import time

from heedful.basics.errors import UserError
from heedful.basics.notices import silence
from heedful.data.positions import Rank

CONNECT_SECONDS = "HEEDFUL_CONNECT_SECONDS"
"""Environment variable: seconds that processes wait for each other at the start; default 60."""
WAIT_MINUTES = "HEEDFUL_WAIT_MINUTES"
"""Environment variable: minutes that a step waits for the slowest process; default 30."""

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Whether this process was started by torchrun, or in the same way."""
    return all(os.environ.get(name) for name in _VARIABLES)


def require_single(command: str) -> None:
    """Raise UserError if several processes run a command that is for one.

    Raises:
        UserError: this process was started by torchrun, or in the same way.
    """
    if is_launched():
        silence(os.environ["RANK"] != "0")
        raise UserError(
            f"heedful {command} runs in one process; torchrun is for heedful train. Start it "
            "without torchrun"
        )


def is_elastic() -> bool:
    """Whether torchrun supervises this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def what_follows() -> str:
    """The end of a message about a process that ended: what happens now, or what to do."""
    if restarts_left() > 0:
        return "training is restarted from the last checkpoint"
    return "rerun the command to resume from the last checkpoint"


def restarts_left() -> int:
    """How often the launcher will start the processes again if one of them ends."""
    most = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    return most - int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def no_store(error: Exception, address: str, rank: Rank, seconds: float) -> UserError:
    """The error for a store that cannot be reached, or not be opened."""
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return UserError(
            f"{address} is in use by another program; set another MASTER_PORT (torchrun: "
            "--master-port), or use heedful train --processes N, which finds a free port"
        )
    if rank.index == 0:
        return UserError(
            f"not all of the {rank.count} processes connected to {address} within {seconds:g} "
            f"seconds; start all at about the same time, or set {CONNECT_SECONDS}"
        )
    silence(False)  # rank 0 does not know of this process
    return UserError(
        f"rank {rank.index} cannot reach rank 0 at {address} within {seconds:g} seconds; check "
        f"MASTER_ADDR, MASTER_PORT and the firewall, or set {CONNECT_SECONDS}"
    )


def whole_number(name: str, default: int | None = None) -> int:
    """The number in an environment variable.

    Raises:
        UserError: it is not a whole number.
    """
    text = os.environ.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError as error:
        raise UserError(f"{name}={text} is not a whole number") from error


def positive_number(name: str, default: float) -> float:
    """The number in an environment variable.

    Raises:
        UserError: it is not a positive number.
    """
    text = os.environ.get(name, str(default))
    with contextlib.suppress(ValueError):
        if 0 < float(text) < 1e6:
            return float(text)
    raise UserError(f"{name}={text} is not a positive number")


def end_with(parent: int) -> None:
    """End training when the launcher has ended, however that happened."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
