"""Boxer, compaction and rollup killed at every failpoint of theirs: another process finds the box, or nothing left to
do, and no row is lost or stands twice."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from lakerunner.bus.bus import Delivery
from lakerunner.bus.postgres import PostgresBus
from lakerunner.index.index import Index
from lakerunner.model.time import TimeRange
from servers.postgres import index_database
from suites.tending_lake import ACME, Lake, segment, step_until

pytestmark = pytest.mark.slow

S = 10**9
SECONDS = 120


@pytest.fixture
def url(embedded_postgres_url: str) -> Iterator[str]:
    with index_database(embedded_postgres_url) as made:
        yield made


@pytest.fixture
def lake(url: str) -> Iterator[Lake]:
    index = Index.open(url)
    index.organizations.create(ACME)
    bus = PostgresBus(index.pool, url)
    yield Lake(index, bus)
    bus.close()
    index.close()


def process(url: str, name: str, failpoint: str = "", steps: int = 3) -> int | None:
    child = multiprocessing.get_context("spawn").Process(target=step_until, args=(url, name, failpoint, steps))
    child.start()
    child.join(SECONDS)
    assert not child.is_alive()
    return child.exitcode


def waiting(lake: Lake, topic: str, group: str) -> list[Delivery]:
    subscription = lake.bus.subscribe([topic], group)
    found = subscription.take(100, 0)
    subscription.close()
    return found


@pytest.mark.parametrize("failpoint", ["before-box", "after-box", "after-arrivals"])
def test_the_boxer_of_segments(lake: Lake, url: str, failpoint: str) -> None:
    lake.bus.subscribe(["segments.logs.compact"], "compact").close()  # so that its messages are kept
    lake.commit(*(segment(f"s{number}") for number in range(3)), tell=True)
    assert process(url, "boxer", failpoint) == -signal.SIGKILL
    assert process(url, "boxer") == 0
    assert waiting(lake, "boxer.logs.compact", "boxer") == []
    assert process(url, "compact") == 0
    assert lake.levels() == [(1, 3)]
    assert waiting(lake, "segments.logs.compact", "compact") == []


@pytest.mark.parametrize("failpoint", ["before-swap", "after-swap", "after-compact"])
def test_compaction(lake: Lake, url: str, failpoint: str) -> None:
    made = lake.commit(*(segment(f"s{number}") for number in range(3)))
    lake.box(*made)
    assert process(url, "compact", failpoint) == -signal.SIGKILL
    assert lake.levels() == ([(0, 1)] * 3 if failpoint == "before-swap" else [(1, 3)])
    assert process(url, "compact") == 0
    assert lake.levels() == [(1, 3)]
    assert lake.index.tending.failed(ACME.id) == []
    assert waiting(lake, "segments.logs.compact", "compact") == []
    _told_once(lake, "boxer.logs.compact")


@pytest.mark.parametrize("failpoint", ["before-roll", "after-roll", "after-rollup"])
def test_rollup(lake: Lake, url: str, failpoint: str) -> None:
    changes: dict[str, Any] = {"signal": "metrics", "time": TimeRange(S, 9 * S)}
    made = lake.commit(*(segment(f"s{number}", **changes) for number in range(2)))
    lake.rollup_box(10_000, *made)
    assert process(url, "rollup", failpoint) == -signal.SIGKILL
    assert [one.rolled for one in lake.live("metrics")] == [failpoint != "before-roll"] * 2
    assert process(url, "rollup") == 0
    assert [one.rolled for one in lake.live("metrics")] == [True, True]
    assert len(lake.live("metrics", 10_000)) == 1
    assert lake.index.tending.failed(ACME.id) == []
    assert waiting(lake, "segments.metrics.rollup", "rollup") == []
    _told_once(lake, "boxer.metrics.rollup")
    _told_once(lake, "boxer.metrics.compact")


def _told_once(lake: Lake, topic: str) -> None:
    lake.relay()
    assert len(waiting(lake, topic, "boxer")) == 1
