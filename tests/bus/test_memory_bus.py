"""The bus in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.memory_bus import MemoryBus
from suites.bus import BusSuite


class TestMemoryBus(BusSuite):
    @pytest.fixture
    def bus(self) -> Iterator[MemoryBus]:
        bus = MemoryBus()
        yield bus
        bus.close()
