"""An hour of a small shop, made once."""

from __future__ import annotations

import pytest

from demo.demo_parsed import Row, rows
from lakerunner.model.time import HOUR_NS, SECOND_NS
from lakerunner_demo.shop import Batch, Shop

OPENING = 1_750_000_007 * SECOND_NS + 123


@pytest.fixture(scope="session")
def shop() -> Shop:
    return Shop(seed=7, start_ns=OPENING, rate=2.5)


@pytest.fixture(scope="session")
def hour_of_logs(shop: Shop) -> list[Batch]:
    return list(shop.batches("logs", OPENING, OPENING + HOUR_NS, per_batch_seconds=60))


@pytest.fixture(scope="session")
def hour_of_traces(shop: Shop) -> list[Batch]:
    return list(shop.batches("traces", OPENING, OPENING + HOUR_NS, per_batch_seconds=60))


@pytest.fixture(scope="session")
def logs(hour_of_logs: list[Batch]) -> list[Row]:
    return list(rows(hour_of_logs))


@pytest.fixture(scope="session")
def spans(hour_of_traces: list[Batch]) -> list[Row]:
    return list(rows(hour_of_traces))
