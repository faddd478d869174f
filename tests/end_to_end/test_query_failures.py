"""What a client sees when parts fail during its query: workers killed, the object store and PostgreSQL stopped, the API
itself killed. Real processes on real servers; segments are put in without ingest."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.segments import make_segments
from lakerunner.query.assign import UnitSize, assign
from servers.lake import LAKERUNNER, Lake, Process, clean_environment, free_port, lakerunner, query_api, wait_until
from servers.seaweedfs import S3Server, seaweedfs

ORG = DEFAULT_ORGANIZATION.id
START_NS = 1_767_225_600_000_000_000  # 2026-01-01
HOUR_NS = 3_600_000_000_000
SEGMENTS, ROWS = 24, 4000
ALL = SEGMENTS * ROWS
WORKER_KEY = "a-secret-of-this-test"
# All rows together are more than the 32 MiB that stand between workers and client.
EVERY_ROW = f"SELECT message, message || '{'x' * 1000}' AS padding FROM logs"
STREAM = {"accept": "text/event-stream"}

pytestmark = pytest.mark.timeout(300)


@dataclass
class Cluster:
    directory: Path
    postgres: EmbeddedPostgres
    s3: S3Server
    store: ObjectStore
    segments: tuple[Segment, ...]
    environment: dict[str, str]
    secrets: tuple[str, ...]
    key: str
    stack: ExitStack
    ports: tuple[int, ...] = field(default_factory=lambda: (free_port(), free_port()))
    workers: dict[int, Process] = field(default_factory=dict)
    homes: int = 0

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def start_worker(self, port: int) -> None:
        """With nothing in its cache."""
        self.homes += 1
        home = self.directory / f"worker-{self.homes}"
        arguments = ["query-worker", "--home", str(home), "--listen", f"127.0.0.1:{port}"]
        log = self.directory / f"worker-{self.homes}.log"
        self.workers[port] = self.stack.enter_context(lakerunner(arguments, log, self.environment))

    def fresh_workers(self) -> None:
        for port, worker in list(self.workers.items()):
            worker.kill()
            del self.workers[port]
        for port in self.ports:
            self.start_worker(port)
        for worker in self.workers.values():
            worker.wait_for('"ready"')

    def kill_worker(self, port: int) -> None:
        self.workers.pop(port).kill()

    @contextmanager
    def without_store(self) -> Iterator[None]:
        self.s3.stop()
        try:
            yield
        finally:
            assert self.s3.start()
            wait_until(self._store_gives_all, "every segment in the store", 60)

    def _store_gives_all(self) -> bool:
        """It answers before it has found its volumes again."""
        with suppress(LakerunnerError):
            for segment in self.segments:
                self.store.get_range(segment.path, 0, 4)
            return True
        return False

    @contextmanager
    def without_postgres(self) -> Iterator[None]:
        self.postgres.stop()
        try:
            yield
        finally:
            self.postgres.start()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("failing")
    with ExitStack() as stack:
        s3 = stack.enter_context(seaweedfs(directory / "s3"))
        address = s3.address("lake")
        postgres = EmbeddedPostgres(directory / "postgres")
        url = postgres.start()
        stack.callback(postgres.stop)
        port, patch = urlsplit(url).port, stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("lakerunner.index.embedded._free_port", lambda: port)  # it comes back where it was
        index = Index.open(url, connections=2)
        index.migrate()
        index.organizations.create(DEFAULT_ORGANIZATION)
        store = open_store(address)
        segments = tuple(put_segments(store))
        index.commit(Commit(segments, (), ()))
        key = index.keys.create(ORG, "reader", frozenset({"read"}))
        index.close()
        options = dict(address.options)
        environment = {
            "DATABASE_URL": url,
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_STORE_OPTIONS": ",".join(f"{name}={value}" for name, value in options.items()),
            "LAKERUNNER_STORE_RETRY_SECONDS": "1",
            "LAKERUNNER_UNIT_MAX_BYTES": "1",
            "LAKERUNNER_WORKER_KEY": WORKER_KEY,
            "LAKERUNNER_KEY_CACHE_SECONDS": "1",
        }
        secrets = (WORKER_KEY, options["secret_access_key"], str(urlsplit(url).password), key, str(directory))
        made = Cluster(directory, postgres, s3, store, segments, environment, secrets, key, stack)
        environment["LAKERUNNER_WORKERS"] = ",".join(made.urls)
        yield made


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Lake]:
    with query_api(cluster.directory / "api", cluster.environment) as served:
        yield served


@pytest.fixture
def lake(cluster: Cluster, api: Lake) -> Lake:
    """Two workers that have nothing in their caches."""
    cluster.fresh_workers()
    return api


def put_segments(store: ObjectStore) -> Iterator[Segment]:
    """One an hour; row n of the lake says its number."""
    for hour in range(SEGMENTS):
        request = ExportLogsServiceRequest()
        records = request.resource_logs.add().scope_logs.add().log_records
        for n in range(hour * ROWS, (hour + 1) * ROWS):
            record = records.add(time_unix_nano=START_NS + hour * HOUR_NS + n)
            record.body.string_value = f"{n:06}"
        data = request.SerializeToString()
        source = SourceObject("tests", f"{hour}", f"{hour}", len(data), START_NS)
        made = make_segments(LOGS, ORG, "tests", [Raw(source, memoryview(data))], store.put)
        assert len(made.segments) == 1
        yield from made.segments


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


def check_tells_no_secret(cluster: Cluster, text: str) -> None:
    for secret in cluster.secrets:
        assert secret not in text


@pytest.mark.parametrize("form", ["ndjson", "sse"])
def test_a_worker_killed_while_rows_stream(cluster: Cluster, lake: Lake, form: str) -> None:
    with streaming(lake, EVERY_ROW, form) as lines:
        read = [next(lines) for _ in range(10)]
        time.sleep(0.5)  # until all that fits is on its way
        cluster.kill_worker(cluster.ports[0])
        read += lines
    if form == "ndjson":
        assert numbers([json.loads(line) for line in read]) == list(range(ALL))
        return
    told = [json.loads(line[6:]) for line in read if line]
    assert numbers([event["data"] for event in told if event["type"] == "result"]) == list(range(ALL))
    done = told[-1]
    assert (done["type"], done["row_count"], done["complete"], done["missing"]) == ("done", ALL, True, [])
    own = sum(share.worker == cluster.urls[1] for share in assign(cluster.segments, cluster.urls, UnitSize(bytes=1)))
    assert sum(done["stats"]["workers"].values()) == SEGMENTS
    assert done["stats"]["workers"][cluster.urls[1]] > own


def test_a_worker_killed_during_an_aggregate(cluster: Cluster, lake: Lake) -> None:
    """It is stopped first, so that the query is surely waiting for it."""
    doomed = cluster.workers[cluster.ports[0]]
    doomed.popen.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, doomed.kill).start()
    query = "SELECT count(*) AS n, sum(CAST(message AS BIGINT)) AS total, max(timestamp) AS last FROM logs"
    began = time.monotonic()
    answer = ask(lake, query).json()
    assert time.monotonic() - began > 1.4
    assert [(row["n"], int(row["total"])) for row in answer["rows"]] == [(ALL, ALL * (ALL - 1) // 2)]
    assert (answer["complete"], answer["stats"]["workers"]) == (True, {cluster.urls[1]: SEGMENTS})


def test_all_workers_gone(cluster: Cluster, lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM logs"
    for port in cluster.ports:
        cluster.kill_worker(port)
    refused = ask(lake, query)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "Unavailable")
    assert refused.json()["error"]["message"].startswith("no query worker can be reached: ")
    assert all(url in refused.text for url in cluster.urls)
    assert int(refused.headers["retry-after"]) > 0
    (event,) = [one for one in events(lake, query) if one["type"] not in ("progress", "heartbeat")]
    assert (event["type"], event["error"]["kind"]) == ("error", "Unavailable")
    assert event["error"]["message"].startswith("no query worker can be reached: ")
    check_tells_no_secret(cluster, refused.text + str(event))
    cluster.start_worker(cluster.ports[1])
    cluster.workers[cluster.ports[1]].wait_for('"ready"')
    back = ask(lake, query).json()
    assert (back["rows"], back["complete"], back["stats"]["workers"]) == (
        [{"n": ALL}],
        True,
        {cluster.urls[1]: SEGMENTS},
    )


@pytest.mark.slow  # the store takes a quarter of a minute to come back, PostgreSQL 10 s to be missed
def test_the_store_stops_while_events_stream(cluster: Cluster, lake: Lake) -> None:
    with streaming(lake, EVERY_ROW + " WHERE message > ''", "sse") as lines:
        read = [next(lines) for _ in range(10)]
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
    assert all(one["reason"].startswith("s3://lake cannot read 'db/") for one in done["missing"])
    check_tells_no_secret(cluster, str(done))


@pytest.mark.slow
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
    assert last["error"]["message"].startswith("s3://lake cannot read 'db/")
    assert 0 < len(set(numbers(rows))) == len(rows) < ALL
    check_tells_no_secret(cluster, str(last))


@pytest.mark.slow
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
        assert refused.json()["error"]["message"].startswith("s3://lake cannot read 'db/")
        partial = ask(lake, other, partial=True).json()
        assert (partial["rows"], partial["complete"]) == ([{"n": None}], False)
        assert sum(one["segments"] for one in partial["missing"]) == 4
        both = ask(lake, f"SELECT sum(CAST(message AS BIGINT)) AS n FROM logs WHERE {hours(0, 8)}", partial=True).json()
        assert (int(both["rows"][0]["n"]), both["complete"]) == (totals[0], False)
        check_tells_no_secret(cluster, refused.text + str(partial))
    back = ask(lake, other, partial=True).json()
    assert (int(back["rows"][0]["n"]), back["complete"], back["stats"]["from_cache"]) == (totals[1], True, False)


@pytest.mark.slow
def test_postgresql_is_away(cluster: Cluster, lake: Lake) -> None:
    query = f"SELECT count(*) AS n FROM logs WHERE {hours(8, 12)}"
    within = f"SELECT min(message) AS first FROM logs WHERE {hours(9, 10)}"
    with_key = {"authorization": f"Bearer {cluster.key}"}
    assert ask(lake, query, headers=with_key).json()["degraded"] is None
    known = "the index cannot be reached: segments as of 20"
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
            assert "PostgreSQL at 127.0.0.1:" in refused.json()["error"]["message"]
            check_tells_no_secret(cluster, refused.text)
        assert ask(lake, query, headers={"authorization": "Bearer of nobody"}).status_code == 503
        assert time.monotonic() - began < 8  # the pool alone would wait 10 s for each
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
