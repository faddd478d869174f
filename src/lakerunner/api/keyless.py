"""Rules for requests without a key: they name this machine as their host, and no web page or proxy sent them.

A server on loopback trusts every program on this machine, and a browser is one: any page that it shows can send
requests to 127.0.0.1, and by DNS rebinding (its own name, resolved to 127.0.0.1) read the answers too. Host then holds
the page's name, which the page cannot change, and Origin or Sec-Fetch-Site show where the request came from. A proxy on
this machine forwards requests of others, and adds a header that shows it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from lakerunner.model.errors import NotAllowed

_HINT = "send an API key (`lakerunner keys create NAME`)"
_PLAIN = ("localhost", "127.0.0.1", "::1")


def refuse_foreign(headers: Iterable[tuple[str, str]], names: frozenset[str]) -> None:
    """Raise NotAllowed unless a request with these headers (names in lower case) may go without a key.

    `names` are further names of this server, in lower case: the host of its setting `listen`.
    """
    hosts, origins = [], []
    for name, value in headers:
        if name == "host":
            hosts.append(value)
        elif name == "origin":
            origins.append(value)
        elif name == "sec-fetch-site" and value.strip().lower() == "cross-site":
            raise NotAllowed(f"this request was sent by a web page of another site without a key: {_HINT}")
        elif name == "forwarded" or name.startswith("x-forwarded-"):
            raise NotAllowed(f"header {name} shows that a proxy sent this request: {_HINT}")
    if len(hosts) != 1 or not _is_own(hosts[0], names):
        raise NotAllowed(f"Host {', '.join(hosts)!r} is not localhost: {_HINT}")
    for origin in origins:
        if _authority(origin) != hosts[0].strip().lower():
            raise NotAllowed(f"this request was sent by a web page of {origin!r} without a key: {_HINT}")


def _authority(origin: str) -> str | None:
    """Return host and port of an origin; None if it has none, such as `null`."""
    try:
        found = urlsplit(origin.strip().lower())
    except ValueError:
        return None
    return found.netloc or None


def _is_own(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names this machine, with any port, since ports may be forwarded.

    Addresses may have any spelling. Names are never resolved: their owner decides what they resolve to.
    """
    name = host.strip().lower()
    bare, colon, port = name.rpartition(":")
    if colon and (port.isdigit() or not port) and not (name.startswith("[") and name.endswith("]")):
        name = bare
    name = name.removeprefix("[").removesuffix("]").removesuffix(".")
    if name in _PLAIN or name in names:
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return all(is_loopback_ip(str(address[0])) for *_, address in found)


def is_loopback_ip(text: str) -> bool:
    """Return whether an address in its usual spelling is loopback; IPv4 mapped into IPv6 counts as IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
