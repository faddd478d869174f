"""Query workers by DNS: every address of a name, such as that of a headless service.

Of a name with addresses of both families the IPv4 ones are taken: each worker is to be known once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from lakerunner.model.errors import Unavailable, UserError


def dns_lookup(entry: str) -> Callable[[], Sequence[str]]:
    """`dns://name:port`."""
    name, port = host_and_port(entry, "dns://name:port")

    def look() -> Sequence[str]:
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError as error:
            detail = f"name {name} has no address: {error.strerror}"
            raise Unavailable("cannot look up query workers", detail=detail) from error
        return urls_of([str(one[4][0]) for one in found], port)

    return look


def host_and_port(entry: str, form: str) -> tuple[str, int]:
    try:
        url = urlsplit(entry)
        if url.hostname and url.port:
            return url.hostname, url.port
    except ValueError:
        pass
    raise UserError(f"setting workers: {entry!r} is not valid: write {form}")


def urls_of(addresses: Sequence[str], port: int) -> list[str]:
    """Of IPv4 addresses, or if there are none of IPv6; each once, in order."""
    known = sorted({ip_address(address.partition("%")[0]) for address in addresses}, key=str)
    first = min((address.version for address in known), default=4)
    return [
        f"http://{address}:{port}" if first == 4 else f"http://[{address}]:{port}"
        for address in known
        if address.version == first
    ]
