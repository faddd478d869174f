"""Addresses in texts: `ip("10.0.0.0/8")` of line and label filters.

Comes in: an address, a range `a-b` or a network, of IPv4 or IPv6. Goes out: whether a text holds such an address. What
always holds: a text is searched as Loki does it. An address is looked for where a few signs look like the start of one,
and is all that follows of digits, dots and (IPv6) colons; one that stands less than five bytes (IPv4: four) before the
end of the text is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from lakerunner.model.display import go_quote
from lakerunner.model.errors import UserError

_Address = IPv4Address | IPv6Address
_HEX = rb"[0-9a-fA-F]"
_START = re.compile(
    rb"(?=(?P<v4>[0-9](?:\...|.\..|..\.))"
    rb"|::" + _HEX + rb"..|" + _HEX + rb":...|" + _HEX + rb"{2}:..|" + _HEX + rb"{3}:.|" + _HEX + rb"{4}:)",
    re.DOTALL,
)
_V4_SIGNS = re.compile(rb"[0-9.]*")
_V6_SIGNS = re.compile(rb"[0-9a-fA-F:.]*")
_NETWORK = re.compile(r"([^/%]*)/(0|[1-9][0-9]{0,2})")


def compile_ip(pattern: str) -> Callable[[str], bool]:
    """Return a test of texts for these addresses. Raise UserError if the pattern is wrong."""
    matches = _address_test(pattern)
    if matches is None:
        raise UserError(f"ip: invalid pattern: {go_quote(pattern)}")

    def found_in(text: str) -> bool:
        data = text.encode("utf-8", "surrogateescape")
        at = 0
        while found := _START.search(data, at):
            start = found.start()
            signs = _V4_SIGNS if found["v4"] is not None else _V6_SIGNS
            word = signs.match(data, start)[0]  # type: ignore[index]  # it matches everywhere
            address = _parse(word.decode())
            if address is not None and matches(address):
                return True
            at = start + len(word) + 1  # Loki skips the sign behind an address too
        return False

    return found_in


def _address_test(pattern: str) -> Callable[[_Address], bool] | None:
    if (address := _parse(pattern)) is not None:
        return lambda other: other == address
    if found := _NETWORK.fullmatch(pattern):
        return _network_test(found[1], int(found[2]))
    first, _, last = pattern.partition("-")
    low, high = _parse(first), _parse(last)
    if isinstance(low, IPv4Address) and isinstance(high, IPv4Address) and low <= high:
        return lambda other: isinstance(other, IPv4Address) and low <= other <= high
    if isinstance(low, IPv6Address) and isinstance(high, IPv6Address) and low <= high:
        return lambda other: isinstance(other, IPv6Address) and low <= other <= high
    return None


def _network_test(text: str, bits: int) -> Callable[[_Address], bool] | None:
    address = _parse(text)
    if address is None or bits > address.max_prefixlen:
        return None
    network = ip_network((address, bits), strict=False)
    version = address.version
    return lambda other: other.version == version and other in network


def _parse(text: str) -> _Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
