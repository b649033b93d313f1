"""Host and origin checks: is a request for this server, and may the page that sent it do so?"""

import ipaddress
import socket
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from heedful.serving.errors import RefusedError, printable

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Loopback names of this machine."""
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_PORTS = {"http": 80, "https": 443}


class Admission(NamedTuple):
    """Decides by its headers whether a request is accepted.

    Without CORS, a page of another site cannot read responses, but the server would still execute
    requests that it sends as a form or as plain text. With DNS rebinding (a host name of the site
    that resolves to this server), it could also read responses. Browsers always send ``Origin`` or
    ``Sec-Fetch-Site`` with such requests; other programs send neither.

    Args:
        hosts: accepted host names; any if empty.
        addresses: whether any IP address is also accepted as host. This is safe, because no site
            can use an IP address as its name.
        origins: other sites whose pages may send requests; ``*`` allows all.
    """

    hosts: Collection[str] = ()
    addresses: bool = False
    origins: Collection[str] = ()

    def check(self, method: str, headers: Headers) -> None:
        """Check the host and the origin of a request.

        Raises:
            RefusedError: 400, the host is not this server; 403, a page of another site sent it.
        """
        self._check_host(headers.get("host", ""))
        if method not in _SAFE_METHODS and not self._same_origin(headers):
            raise RefusedError(
                403, "pages of other sites may not send requests; heedful serve --cors allows one"
            )

    def _check_host(self, host: str) -> None:
        if not self.hosts:
            return
        name = _hostname(host)
        if name in {one.lower() for one in self.hosts} or (self.addresses and _is_address(name)):
            return
        if not name:
            raise RefusedError(400, "the request has no valid Host header")
        raise RefusedError(400, f"{printable(name)} is not a name of this server; see --allow-host")

    def _same_origin(self, headers: Headers) -> bool:
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if origin is not None and ("*" in self.origins or origin in self.origins):
            return True
        if site is not None:
            return site in ("same-origin", "none")
        return origin is None or _is_origin_of(origin, headers.get("host", ""))


def host_names(host: str, allowed: Collection[str]) -> tuple[set[str], bool]:
    """The arguments ``hosts`` and ``addresses`` of `Admission`.

    Args:
        host: the address that the server listens on.
        allowed: further names; ``*`` allows any.
    """
    if "*" in allowed:
        return set(), True
    if is_loopback(host):
        return {*LOOPBACK, host, *allowed}, False
    return {*LOOPBACK, host, socket.gethostname(), *allowed}, True


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, which other machines cannot reach."""
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_from_browser(headers: Headers) -> bool:
    """Whether a page in a browser sent the request."""
    return "origin" in headers or "sec-fetch-site" in headers


def _is_origin_of(origin: str, host: str) -> bool:
    """Whether an origin is this host. The scheme may differ behind a proxy that ends TLS."""
    try:
        sender = urlsplit(origin)
        port = _PORTS.get(sender.scheme)
        server = urlsplit(f"//{host}")
        return (sender.hostname, sender.port or port) == (server.hostname, server.port or port)
    except ValueError:
        return False


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
