"""The relay: publishes what commits left in the outbox, at least once. Any number of processes may run one."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.bus.bus import Bus
from lakerunner.index.index import Index
from lakerunner.model.failpoint import reach
from lakerunner.services import meters

_WAIT_SECONDS = 1.0


class Relay:
    def __init__(self, index: Index, bus: Bus) -> None:
        self._index = index
        self._bus = bus

    def step(self) -> None:
        sent = self._index.outbox.relay(self._publish)
        if sent:
            meters.RELAYED.inc(sent)
        else:
            self._index.outbox.wait(_WAIT_SECONDS)

    def _publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        reach("before-relay")
        self._bus.publish(messages)
        reach("after-relay")
