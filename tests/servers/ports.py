"""Ports for servers that choose none themselves and take no open socket.

They are free now, and below those that the system hands out by itself: one of these may be some client's, or another
test's, before the server has it, or while a server that is started again on its port is away.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from random import SystemRandom
from socket import socket

_PORTS = (10_000, 32_000)
_chance = SystemRandom()


def free_ports(count: int) -> list[int]:
    """Different ones."""
    with ExitStack() as held:
        return [_bound(held) for _ in range(count)]


def free_port() -> int:
    return free_ports(1)[0]


def _bound(held: ExitStack) -> int:
    while True:
        probe, port = held.enter_context(socket()), _chance.randrange(*_PORTS)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
