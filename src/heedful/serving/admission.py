"""Whether a request is meant for this server, and whether a page of another site made it."""

import ipaddress
import socket
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from heedful.serving.errors import RefusedError, printable

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself."""
_READING = {"GET", "HEAD", "OPTIONS"}
_PORTS = {"http": 80, "https": 443}


class Admission(NamedTuple):
    """Which requests are taken on, by their heads.

    A page elsewhere cannot read answers without CORS, but what it sends as a form or as plain text
    would be executed all the same, and by a name of its own that leads here (DNS rebinding) it
    could read answers, too. Programs that are no browsers send neither ``Origin`` nor
    ``Sec-Fetch-Site``, and pages cannot leave them out.

    Args:
        hosts: names that requests may be meant for; any if empty.
        addresses: whether they may also be meant for an IP address, whatever it is: no other site
            can have one as its name.
        origins: other sites whose pages may ask; ``*`` is all.
    """

    hosts: Collection[str] = ()
    addresses: bool = False
    origins: Collection[str] = ()

    def check(self, method: str, headers: Headers) -> None:
        """See that a request is taken on.

        Raises:
            RefusedError: 400, it is meant for another server; 403, a page of another site made it.
        """
        self._check_host(headers.get("host", ""))
        if method not in _READING and not self._from_here(headers):
            raise RefusedError(
                403, "a page of another site may not ask; heedful serve --cors lets one in"
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

    def _from_here(self, headers: Headers) -> bool:
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if origin is not None and ("*" in self.origins or origin in self.origins):
            return True
        if site is not None:
            return site in ("same-origin", "none")
        return origin is None or _is_origin_of(origin, headers.get("host", ""))


def host_names(host: str, allowed: Collection[str]) -> tuple[set[str], bool]:
    """The names and whether the addresses that requests may be meant for, as `Admission` has them.

    Args:
        host: where the server listens.
        allowed: further names; ``*`` is any.
    """
    if "*" in allowed:
        return set(), True
    if is_loopback(host):
        return {*LOOPBACK, host, *allowed}, False
    return {*LOOPBACK, host, socket.gethostname(), *allowed}, True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine for itself, so that no other machine reaches it."""
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_browsers(headers: Headers) -> bool:
    """Whether a page in a browser made the request."""
    return "origin" in headers or "sec-fetch-site" in headers


def _is_origin_of(origin: str, host: str) -> bool:
    """Whether an origin is this host; a proxy may have taken the encryption off."""
    try:
        theirs = urlsplit(origin)
        port = _PORTS.get(theirs.scheme)
        ours = urlsplit(f"//{host}")
        return (theirs.hostname, theirs.port or port) == (ours.hostname, ours.port or port)
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
