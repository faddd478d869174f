"""What a client sees when parts fail during its query: workers killed, the object store and PostgreSQL stopped, the API
itself killed. Real processes on real servers; segments are put in without ingest."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from lakerunner.query.gather import UnitSize, assign
from servers.lake import LAKERUNNER, Lake, clean_environment, query_api, wait_until
from suites.cluster import HOUR_NS, ROWS, SEGMENTS, START_NS, Cluster

ALL = SEGMENTS * ROWS
# All rows together are more than the 32 MiB that stand between workers and client.
EVERY_ROW = f"SELECT message, message || '{'x' * 1000}' AS padding FROM logs"
STREAM = {"accept": "text/event-stream"}

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.fixture
def lake(cluster: Cluster, cluster_api: Lake) -> Lake:
    """With both workers, as the test before left them."""
    cluster.complete_workers()
    return cluster_api


@pytest.fixture
def cold(cluster: Cluster) -> None:
    """Two workers that have nothing in their caches."""
    cluster.fresh_workers()


def hours(first: int, end: int) -> str:
    """The condition for the rows of these segments."""
    times = [f"make_timestamp_ns({START_NS + hour * HOUR_NS})" for hour in (first, end)]
    return f"timestamp >= {times[0]} AND timestamp < {times[1]}"


def ask(lake: Lake, query: str, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    return httpx.post(f"{lake.url}/api/v1/sql", json={"query": query, **fields}, headers=headers, timeout=120)


def events(lake: Lake, query: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in ask(lake, query, headers=STREAM).text.splitlines() if line]


@contextmanager
def streaming(lake: Lake, query: str, form: str) -> Iterator[Iterator[str]]:
    """The lines of an answer that waits for its reader: it is longer than all that fits on the way."""
    body = {"query": query, "format": form}
    with httpx.stream("POST", f"{lake.url}/api/v1/sql", json=body, timeout=120) as response:
        assert response.status_code == 200
        yield response.iter_lines()


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["message"]) for row in rows)


@pytest.mark.parametrize("form", ["ndjson", "sse"])
def test_a_worker_killed_while_rows_stream(cluster: Cluster, lake: Lake, form: str) -> None:
    own = Counter(share.worker for share in assign(cluster.logs, cluster.names, UnitSize(bytes=1)))
    doomed, left = sorted(cluster.names, key=lambda name: -own[name])  # half of the rows at least: they do not all fit
    with streaming(lake, EVERY_ROW, form) as lines:
        read = [next(lines) for _ in range(10)]
        time.sleep(0.5)  # until all that fits is on its way
        cluster.kill_worker(cluster.ports[cluster.names.index(doomed)])
        read += lines
    if form == "ndjson":
        assert numbers([json.loads(line) for line in read]) == list(range(ALL))
        return
    told = [json.loads(line[6:]) for line in read if line]
    assert numbers([event["data"] for event in told if event["type"] == "result"]) == list(range(ALL))
    done = told[-1]
    assert (done["type"], done["row_count"], done["complete"], done["missing"]) == ("done", ALL, True, [])
    assert sum(done["stats"]["workers"].values()) == SEGMENTS
    assert done["stats"]["workers"][left] > own[left]


def test_a_worker_killed_during_an_aggregate(cluster: Cluster, lake: Lake) -> None:
    """It is stopped first, so that the query is surely waiting for it."""
    doomed = cluster.workers[cluster.ports[0]]
    doomed.freeze()
    query = "SELECT count(*) AS n, sum(CAST(message AS BIGINT)) AS total, max(timestamp) AS last FROM logs"
    began = time.monotonic()
    threading.Timer(1.5, cluster.kill_worker, [cluster.ports[0]]).start()
    answer = ask(lake, query).json()
    assert time.monotonic() - began > 1.4
    assert [(row["n"], int(row["total"])) for row in answer["rows"]] == [(ALL, ALL * (ALL - 1) // 2)]
    assert (answer["complete"], answer["stats"]["workers"]) == (True, {cluster.names[1]: SEGMENTS})


def test_all_workers_gone(cluster: Cluster, lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM logs"
    for port in cluster.ports:
        cluster.kill_worker(port)
    refused = ask(lake, query)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "Unavailable")
    assert refused.json()["error"]["message"].startswith("no query worker is reachable: ")
    assert all(name in refused.text for name in cluster.names)
    assert not any(url in refused.text for url in cluster.urls)
    assert int(refused.headers["retry-after"]) > 0
    (event,) = [one for one in events(lake, query) if one["type"] not in ("progress", "heartbeat")]
    assert (event["type"], event["error"]["kind"]) == ("error", "Unavailable")
    assert event["error"]["message"].startswith("no query worker is reachable: ")
    cluster.check_tells_no_secret(refused.text + str(event))
    cluster.start_worker(cluster.ports[1])
    cluster.workers[cluster.ports[1]].wait_for('"ready"')
    back = ask(lake, query).json()
    assert (back["rows"], back["complete"], back["stats"]["workers"]) == (
        [{"n": ALL}],
        True,
        {cluster.names[1]: SEGMENTS},
    )


@pytest.mark.slow  # the store takes a quarter of a minute to come back, PostgreSQL 10 s to be missed
@pytest.mark.usefixtures("cold")
def test_the_store_stops_while_events_stream(cluster: Cluster, lake: Lake) -> None:
    with streaming(lake, EVERY_ROW + " WHERE message > ''", "sse") as lines:
        read: list[str] = []
        while not any('"result"' in line for line in read):  # progress may come first, as often as it likes
            read.append(next(lines))
        time.sleep(0.5)
        with cluster.without_store():
            read += lines
    told = [json.loads(line[6:]) for line in read if line]
    rows = numbers([event["data"] for event in told if event["type"] == "result"])
    done = told[-1]
    assert (done["type"], done["complete"], done["row_count"]) == ("done", False, len(rows))
    gone = sum(one["segments"] for one in done["missing"])
    assert 0 < gone < SEGMENTS
    # A unit is fetched before its first row is given: a segment is there whole, or is named.
    read_hours = {n // ROWS for n in rows}
    assert len(read_hours) == SEGMENTS - gone
    assert rows == [n for n in range(ALL) if n // ROWS in read_hours]
    starts = {f"2026-01-01T{hour:02}:00:00" for hour in range(SEGMENTS) if hour not in read_hours}
    assert {one["start"][:19] for one in done["missing"]} == starts
    assert all(one["reason"].startswith("the object store cannot read 'db/") for one in done["missing"])
    cluster.check_tells_no_secret(str(done))


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_the_store_stops_while_lines_stream(cluster: Cluster, lake: Lake) -> None:
    """A format that cannot say what is missing."""
    read = []
    with streaming(lake, EVERY_ROW + " WHERE length(message) = 6", "ndjson") as lines:
        read.append(next(lines))
        time.sleep(0.5)
        with cluster.without_store(), pytest.raises(httpx.RemoteProtocolError):
            read.extend(lines)  # as far as they come
    *rows, last = map(json.loads, read)
    assert last["error"]["kind"] == "Unavailable"
    assert last["error"]["message"].startswith("the object store cannot read 'db/")
    assert 0 < len(set(numbers(rows))) == len(rows) < ALL
    cluster.check_tells_no_secret(str(last))


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_the_store_is_away(cluster: Cluster, lake: Lake) -> None:
    cached, other = (
        f"SELECT sum(CAST(message AS BIGINT)) AS n FROM logs WHERE {hours(*of)}" for of in ((0, 4), (4, 8))
    )
    totals = [sum(range(4 * ROWS)), sum(range(4 * ROWS, 8 * ROWS))]
    assert int(ask(lake, cached).json()["rows"][0]["n"]) == totals[0]
    with cluster.without_store():
        # Another question, so that it is not the answer that was kept.
        again = ask(lake, cached.replace("sum(", "1 + sum(")).json()
        assert (int(again["rows"][0]["n"]), again["complete"], again["stats"]["bytes_fetched"]) == (
            totals[0] + 1,
            True,
            0,
        )
        refused = ask(lake, other)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "Unavailable")
        assert refused.json()["error"]["message"].startswith("the object store cannot read 'db/")
        partial = ask(lake, other, partial=True).json()
        assert (partial["rows"], partial["complete"]) == ([{"n": None}], False)
        assert sum(one["segments"] for one in partial["missing"]) == 4
        both = ask(lake, f"SELECT sum(CAST(message AS BIGINT)) AS n FROM logs WHERE {hours(0, 8)}", partial=True).json()
        assert (int(both["rows"][0]["n"]), both["complete"]) == (totals[0], False)
        cluster.check_tells_no_secret(refused.text + str(partial))
    back = ask(lake, other, partial=True).json()
    assert (int(back["rows"][0]["n"]), back["complete"], back["stats"]["from_cache"]) == (totals[1], True, False)


@pytest.mark.slow
def test_postgresql_is_away(cluster: Cluster, lake: Lake) -> None:
    query = f"SELECT count(*) AS n FROM logs WHERE {hours(8, 12)}"
    within = f"SELECT min(message) AS first FROM logs WHERE {hours(9, 10)}"
    with_key = {"authorization": f"Bearer {cluster.key}"}
    assert ask(lake, query, headers=with_key).json()["degraded"] is None
    known = "the index is unreachable: segments as of 20"
    with cluster.without_postgres():
        ask(lake, query)  # whoever comes first waits for it
        began = time.monotonic()
        answer = ask(lake, query, headers=with_key).json()
        assert (answer["rows"], answer["complete"]) == ([{"n": 4 * ROWS}], True)
        assert answer["degraded"].startswith(known)
        first = f"{9 * ROWS:06}"
        done = events(lake, within)[-1]
        assert (done["type"], done["complete"], done["degraded"][: len(known)]) == ("done", True, known)
        csv = ask(lake, within, format="csv")
        assert (csv.text, csv.headers["lakerunner-degraded"][: len(known)]) == (f"first\n{first}\n", known)
        for _ in range(3):
            refused = ask(lake, "SELECT count(*) AS n FROM spans")
            assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "Unavailable")
            assert refused.json()["error"]["message"] == "PostgreSQL does not answer"
            cluster.check_tells_no_secret(refused.text)
        assert ask(lake, query, headers={"authorization": "Bearer of nobody"}).status_code == 503
        assert time.monotonic() - began < 35  # the pool alone would wait 10 s for each of the seven
    wait_until(lambda: ask(lake, query).json()["degraded"] is None, "an answer that is not degraded", 30)
    fresh = ask(lake, "SELECT count(*) AS n FROM spans", headers=with_key).json()
    assert (fresh["rows"], fresh["degraded"]) == ([{"n": 0}], None)
    nobody = {"authorization": "Bearer of nobody"}
    wait_until(lambda: ask(lake, query, headers=nobody).status_code == 401, "a key that is looked up again", 30)


def test_the_api_killed_while_rows_stream(cluster: Cluster, lake: Lake) -> None:
    """Of another process than the other tests ask."""
    with query_api(cluster.directory / "doomed", cluster.environment) as doomed:
        command = subprocess.Popen(
            [*LAKERUNNER, "sql", EVERY_ROW, "--url", doomed.url, "--format", "ndjson"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )
        assert command.stdout is not None
        command.stdout.readline()  # and no more: its answer waits
        with streaming(doomed, EVERY_ROW, "ndjson") as lines:
            next(lines)
            doomed.process.kill()
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        said = command.communicate(timeout=60)[1].decode()
        assert command.returncode == 1
        assert "Traceback" not in said
        assert said.startswith("error: ")
