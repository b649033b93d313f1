"""The listening socket of a server."""

import errno
import socket
import sys

from heedful.basics.errors import UserError


def open_port(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for any free port.

    Raises:
        UserError: the port is in use or not allowed, or the host is not an address of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: no such address; use 127.0.0.1 or 0.0.0.0") from error
    family, kind, protocol, _, address = found[0]
    one = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # on Windows, two servers could then share the port
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(2048)
    except OSError as error:
        one.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is in use; choose another with --port"
        elif error.errno == errno.EACCES:
            message = f"port {port} is not allowed; choose one above 1023 with --port"
        else:
            message = f"cannot listen at {host}, port {port}: {error.strerror}"
        raise UserError(message) from error
    return one


def address_of(one: socket.socket) -> str:
    """The URL of a listening socket, ending in ``/``."""
    host, port = one.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"
