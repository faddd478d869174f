"""The relay: publishes what commits left in the outbox, at least once. Any number of processes may run one."""

from __future__ import annotations

from lakerunner.bus.bus import Bus
from lakerunner.index.index import Index
from lakerunner.services import meters

_WAIT_SECONDS = 1.0


class Relay:
    def __init__(self, index: Index, bus: Bus) -> None:
        self._index = index
        self._bus = bus

    def step(self) -> None:
        sent = self._index.outbox.relay(self._bus.publish)
        if sent:
            meters.RELAYED.inc(sent)
        else:
            self._index.outbox.wait(_WAIT_SECONDS)
