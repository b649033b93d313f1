"""Tells systemd when the server is ready, reloads or stops (``Type=notify``)."""

import contextlib
import os
import socket
import time

_VARIABLE = "NOTIFY_SOCKET"


def notify_ready() -> None:
    """The server accepts requests."""
    _send("READY=1")


def notify_reloading() -> None:
    """The server loads its models again; `notify_ready` ends this state."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """The server finishes its requests and ends."""
    _send("STOPPING=1")


def without_notifications() -> dict[str, str]:
    """The environment for a worker, which must not notify systemd itself."""
    return {name: value for name, value in os.environ.items() if name != _VARIABLE}


def _send(state: str) -> None:
    """Send a state to the socket that systemd names (``man sd_notify``); nothing without it."""
    address = os.environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # Linux' abstract namespace
        address = "\0" + address[1:]
    # Without systemd's socket, the server goes on: the state is only information.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(state.encode(), address)
