"""What a client of PromQL sees when parts fail during its query: workers killed, the object store and PostgreSQL
stopped, segments damaged, its time over; and that the work ends when the client has left."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from servers.lake import Lake, wait_until
from suites.cluster import EVERY_SECONDS, FRAGILE, HOUR_NS, METRIC_HOURS, SERIES, START_NS, Cluster

START = START_NS // 1_000_000_000
HOUR = 3600
RATES = "sum by (zone) (rate(served_total[5m])) / ignoring (zone) group_left () stddev(served_total)"
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.fixture
def lake(cluster: Cluster, cluster_api: Lake) -> Lake:
    """With both workers, as the test before left them."""
    cluster.complete_workers()
    return cluster_api


def ask(lake: Lake, path: str, key: str = "", **given: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{lake.url}/prometheus/api/v1/{path}", data=given, headers=headers, timeout=120)


def ask_range(lake: Lake, query: str, hours: tuple[int, int] = (0, METRIC_HOURS), **given: Any) -> httpx.Response:
    """At a step that is no multiple of the samples'."""
    start, end = (START + hour * HOUR for hour in hours)
    return ask(lake, "query_range", query=query, start=start, end=end - 1, step=37, **given)


def result(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["data"]["result"]


def error(response: httpx.Response) -> tuple[int, str, str]:
    body = response.json()
    assert body["status"] == "error", response.text[:500]
    return response.status_code, body["errorType"], body["error"]


def asked_worker(lake: Lake, query: str) -> str:
    """The one that a query like this falls to."""
    workers = ask_range(lake, query, stats="true").json()["data"]["stats"]["lakerunner"]["workers"]
    return str(max(workers, key=workers.__getitem__))


@contextmanager
def held_up(cluster: Cluster, *urls: str) -> Iterator[None]:
    """These workers stand still, with all that was given to them."""
    workers = [cluster.workers[port] for port, url in zip(cluster.ports, cluster.urls, strict=True) if url in urls]
    for worker in workers:
        worker.freeze()
    try:
        yield
    finally:
        for worker in workers:
            if worker.popen.poll() is None:
                worker.popen.send_signal(signal.SIGCONT)


def test_a_worker_killed_during_a_range_query(cluster: Cluster, lake: Lake) -> None:
    """It is stopped first, so that the query is surely waiting for it. The answer has the same bits."""
    before = ask_range(lake, RATES)
    assert [len(series["values"]) for series in result(before)] == [METRIC_HOURS * HOUR // 37 + 1 - 1] * 3
    doomed = cluster.names.index(asked_worker(lake, RATES))
    with held_up(cluster, cluster.urls[doomed]):
        began = time.monotonic()
        threading.Timer(1.0, cluster.kill_worker, [cluster.ports[doomed]]).start()
        after = ask_range(lake, RATES)
        assert time.monotonic() - began > 0.9
    assert after.content == before.content


def test_all_workers_gone(cluster: Cluster, lake: Lake) -> None:
    whole = result(ask_range(lake, "served_total"))
    assert len(whole) == SERIES
    for port in cluster.ports:
        cluster.kill_worker(port)
    refused = ask_range(lake, "served_total")
    status, kind, said = error(refused)
    assert (status, kind) == (503, "unavailable")
    assert said.startswith("no query worker is reachable: ")
    assert all(name in said for name in cluster.names)
    assert not any(url in said for url in cluster.urls)
    assert int(refused.headers["retry-after"]) > 0
    listed = ask(lake, "series", **{"match[]": "served_total"})
    assert error(listed)[:2] == (503, "unavailable")
    cluster.check_tells_no_secret(refused.text + listed.text)
    cluster.start_worker(cluster.ports[1])
    cluster.workers[cluster.ports[1]].wait_for('"ready"')
    assert result(ask_range(lake, "served_total")) == whole


def test_a_damaged_segment(cluster: Cluster, lake: Lake) -> None:
    """It is named; with partial_response the others are there to the last bit. Damaged are the middle of a file, where
    the points are, and the table of series beside another."""
    key, query = cluster.keys[FRAGILE.name], "max by (pod) (served_total)"
    whole = result(ask_range(lake, query))
    points, series = cluster.fragile[1], cluster.fragile[4]
    for path in (points.path, series.side_path("series.parquet")):
        data = bytearray(cluster.store.get(path, max_bytes=1 << 30))
        data[len(data) // 8 : len(data) // 2] = bytes(255 - byte for byte in data[len(data) // 8 : len(data) // 2])
        cluster.store.put(path, bytes(data))
    for segment in (points, series):
        hour = (segment.time.start_ns - START_NS) // HOUR_NS
        status, kind, said = error(ask_range(lake, query, (hour, hour + 1), key=key))
        assert (status, kind) == (500, "internal")
        assert segment.path in said
    answer = ask_range(lake, query, key=key, partial_response="true")
    warnings = answer.json()["warnings"]
    for segment in (points, series):
        assert [one for one in warnings if segment.path in one and "is not complete: 1 segment of" in one]
    gone = [range(START + hour * HOUR, START + (hour + 1) * HOUR + 300) for hour in (1, 4)]
    for had, has in zip(whole, result(answer), strict=True):
        assert had["metric"] == has["metric"]
        sure = [value for value in had["values"] if not any(value[0] in hours for hours in gone)]
        assert sure == [value for value in has["values"] if not any(value[0] in hours for hours in gone)]
        assert not [value for value in has["values"] if START + HOUR + 300 <= value[0] < START + 2 * HOUR]
    cluster.check_tells_no_secret(answer.text)


def leave(lake: Lake, body: dict[str, str]) -> None:
    """Ask for events, and go before there is one."""
    with (
        suppress(httpx.ReadTimeout),
        httpx.stream("POST", f"{lake.url}/api/v1/metrics/query", json=body, timeout=0.25) as response,
    ):
        assert response.status_code == 200, response.read()
        raise AssertionError([line for line in response.iter_lines() if "result" in line])


def test_a_client_that_leaves_gives_its_slots_back(cluster: Cluster, lake: Lake) -> None:
    """More leave than may run at once, while their work is held up; then one more is answered at once."""
    body = {"q": RATES, "s": str(START * 1000), "e": str((START + METRIC_HOURS * HOUR) * 1000)}
    whole = result(ask_range(lake, RATES))
    with held_up(cluster, *cluster.urls):
        for _ in range(10):  # 8 may run at once, 6 of one organization
            leave(lake, body)
        began = time.monotonic()
        refused = ask_range(lake, RATES, timeout="300ms")
        assert error(refused)[:2] == (503, "timeout")  # and not 429: it ran
        assert time.monotonic() - began < 60
    assert result(ask_range(lake, RATES)) == whole


def test_a_query_past_its_time(cluster: Cluster, lake: Lake) -> None:
    with held_up(cluster, *cluster.urls):
        began = time.monotonic()
        status, kind, said = error(ask_range(lake, RATES, timeout="1s"))
        assert (status, kind) == (503, "timeout")
        assert said == "query timed out in expression evaluation: it ran for 1 s"
        assert 0.9 < time.monotonic() - began < 60


@pytest.mark.slow  # the store takes a quarter of a minute to come back, PostgreSQL 10 s to be missed
def test_the_store_is_away(cluster: Cluster, lake: Lake) -> None:
    cluster.fresh_workers()
    cached = result(ask_range(lake, "served_total", (0, 1)))
    with cluster.without_store():
        assert result(ask_range(lake, "served_total", (0, 1))) == cached
        refused = ask_range(lake, "served_total", (2, 4))
        status, kind, said = error(refused)
        assert (status, kind) == (503, "unavailable")
        assert said.startswith("the object store cannot read 'db/")
        partial = ask_range(lake, "served_total", (2, 4), partial_response="true")
        assert result(partial) == []
        (warning,) = partial.json()["warnings"]
        assert "this answer is not complete: 3 segments of 2026-01-01T01:00:00" in warning  # it looks back 5 min
        assert "missing: the object store cannot read 'db/" in warning
        cluster.check_tells_no_secret(refused.text + partial.text)
    again = ask_range(lake, "served_total", (2, 4), partial_response="true")
    assert [len(series["values"]) for series in result(again)] == [2 * HOUR // 37 + 1] * SERIES
    assert "warnings" not in again.json()


@pytest.mark.slow
def test_postgresql_is_away(cluster: Cluster, lake: Lake) -> None:
    key = cluster.key
    before = ask_range(lake, "load", (0, 3), key=key)
    assert "warnings" not in before.json()
    with cluster.without_postgres():
        ask_range(lake, "load", (0, 3), key=key)  # whoever comes first waits for it
        for hours in ((0, 3), (1, 2)):
            answer = ask_range(lake, "load", hours, key=key)
            first, last = (START + hour * HOUR for hour in hours)
            (had,), (has,) = result(before), result(answer)
            assert dict(has["values"]) == {at: str((at - START) // HOUR) for at in range(first, last, 37)}
            assert hours != (0, 3) or had == has
            (warning,) = answer.json()["warnings"]
            assert warning.startswith("this answer may be out of date: the index is unreachable: segments as of 20")
        refused = ask_range(lake, "never_asked_for", (4, 5), key=key)
        assert error(refused)[:2] == (503, "unavailable")
        assert "PostgreSQL does not answer" in refused.text
        assert "127.0.0.1" not in refused.text
        cluster.check_tells_no_secret(refused.text)
    wait_until(
        lambda: "warnings" not in ask_range(lake, "load", (0, 3), key=key).json(), "an answer that is up to date", 30
    )


@pytest.mark.slow
def test_clients_that_leave_while_events_stream(cluster: Cluster, lake: Lake) -> None:
    """Each after a few events; the workers have room for the next."""
    body = {"q": f"served_total + {EVERY_SECONDS}", "s": str(START * 1000), "e": str((START + 4 * HOUR) * 1000)}
    for _ in range(20):
        with httpx.stream("POST", f"{lake.url}/api/v1/metrics/query", json=body, timeout=60) as response:
            lines = response.iter_lines()
            first = next(line for line in lines if '"result"' in line)
            assert json.loads(first[6:])["type"] == "result"
    began = time.monotonic()
    assert len(result(ask_range(lake, "served_total"))) == SERIES
    assert time.monotonic() - began < 60
