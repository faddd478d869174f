"""The vertical slice on the embedded default: drop or send telemetry, ask, damage, restart. One real lake for all."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from servers.lake import Lake, lake, ndjson, wait_until
from suites.otlp_rows import QUERIES, answered_rows, expected_rows, read_request
from suites.requests import drop, ended, request_of

ORG = str(DEFAULT_ORGANIZATION.id)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake(tmp_path_factory.mktemp("lake") / "home") as found:
        yield found


@pytest.mark.parametrize(("signal", "items"), [("logs", 3734), ("metrics", 48910), ("traces", 881)])
def test_every_item_of_the_real_files_once_with_all_its_fields(
    running: Lake, shared_data: Path, signal: str, items: int
) -> None:
    files = sorted((shared_data / signal).glob("*.binpb.gz"))
    collector = f"real-{signal}"
    expected: Counter[str] = Counter()
    for path in files:
        drop(running, collector, f"{signal}_{path.name}", path.read_bytes())
        expected += expected_rows(signal, read_request(signal, path))
    assert {state for state, _ in ended(running, collector, len(files)).values()} == {"done"}
    query = f"{QUERIES[signal]} where collector = '{collector}'"
    response = running.post_sql(query, {"accept": "application/x-ndjson"})
    got = answered_rows(ndjson(response.text))
    assert got.total() == expected.total() == items
    assert got == expected


def test_spans_over_http_come_back_by_their_trace(running: Lake) -> None:
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "posted", "startTimeUnixNano": "1766577984449000001"}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "http-spans"}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    response = httpx.post(f"{running.url}/v1/traces", json=body, timeout=30)
    assert response.status_code == 200, response.text
    query = f"select name, service_name, epoch_ns(timestamp) as ns from spans where trace_id = '{'AB' * 16}'"
    wait_until(lambda: bool(running.sql(query)), "the posted span", 120, running.process.text)
    assert running.sql(query) == [{"name": "posted", "service_name": "http-spans", "ns": 1766577984449000001}]


def test_metrics_over_http_come_back_by_their_name(running: Lake) -> None:
    at = 1766577984449000001
    points = [{"timeUnixNano": str(at + number), "asInt": str(number)} for number in range(3)]
    counter = {"dataPoints": points, "aggregationTemporality": 2, "isMonotonic": True}
    metric = {"name": "posted.requests", "unit": "{request}", "sum": counter}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "http-metrics"}}]}
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}
    response = httpx.post(f"{running.url}/v1/metrics", json=body, timeout=30)
    assert response.status_code == 200, response.text
    query = """select service_name, metric_type, temporality, int_value, value, epoch_ns(timestamp) as ns
               from metrics where metric_name = 'posted.requests' order by timestamp"""
    wait_until(lambda: bool(running.sql(query)), "the posted points", 120, running.process.text)
    same = {"service_name": "http-metrics", "metric_type": "sum", "temporality": "cumulative"}
    assert running.sql(query) == [
        {**same, "int_value": number, "value": float(number), "ns": at + number} for number in range(3)
    ]


def test_plain_and_gzip_files_and_an_organization_by_name(running: Lake) -> None:
    drop(running, "plain", "logs.binpb", request_of("one"))
    drop(running, "plain", "anything.binpb.gz", gzip.compress(request_of("two", "three")), organization=ORG)
    ended(running, "plain", 2)
    rows = running.sql("select message from logs where collector = 'plain' order by message")
    assert [row["message"] for row in rows] == ["one", "three", "two"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["protobuf", "json"])
def test_otlp_over_http(running: Lake, kind: str, packed: bool) -> None:
    service = f"http-{kind}-{packed}"
    request = ExportLogsServiceRequest.FromString(request_of("posted", service=service))
    if kind == "json":
        record = {"timeUnixNano": "1766577984449000001", "body": {"stringValue": "posted"}, "traceId": "ab" * 16}
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
        body = json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}).encode()
    else:
        body = request.SerializeToString()
    headers = {"content-type": "application/json" if kind == "json" else "application/x-protobuf"}
    if packed:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    for _ in range(2):  # a client that sends again because it missed our answer adds nothing
        response = httpx.post(f"{running.url}/v1/logs", content=body, headers=headers, timeout=30)
        assert response.status_code == 200, response.text
        assert response.content == (b"{}" if kind == "json" else b"")
    query = f"select message, epoch_ns(timestamp) as ns from logs where service_name = '{service}'"
    wait_until(lambda: bool(running.sql(query)), "the posted record", 120, running.process.text)
    assert running.sql(query) == [{"message": "posted", "ns": 1766577984449000001}]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "words"),
    [
        ("logs", {"content-type": "application/x-protobuf"}, b"\xff\xff", 400, "not an OTLP logs request"),
        ("logs", {"content-type": "text/plain"}, b"x", 400, "content-type 'text/plain' is not OTLP"),
        ("logs", {"content-type": "application/json"}, b"{", 400, "not JSON"),
        ("logs", {"content-type": "application/json", "content-encoding": "gzip"}, b"x", 400, "gzip"),
        ("metrics", {"content-type": "application/x-protobuf"}, b"\xff", 400, "not an OTLP metrics request"),
        ("profiles", {"content-type": "application/json"}, b"{}", 400, "unknown signal 'profiles'"),
        ("logs", {"content-type": "application/json", "api-key": "wrong"}, b"{}", 401, "unknown or revoked"),
    ],
)
def test_otlp_that_is_wrong_is_refused_by_name(
    running: Lake, path: str, headers: dict[str, str], body: bytes, status: int, words: str
) -> None:
    response = httpx.post(f"{running.url}/v1/{path}", content=body, headers=headers, timeout=30)
    assert response.status_code == status
    assert words in response.text


def test_damaged_input_is_set_aside_and_its_neighbours_are_not(running: Lake) -> None:
    good = gzip.compress(request_of("good"))
    drop(running, "damaged", "logs_good.binpb.gz", good)
    drop(running, "damaged", "logs_garbage.binpb", b"\xff" * 100)
    drop(running, "damaged", "logs_cut.binpb.gz", good[:-9])
    drop(running, "damaged", "logs_empty.binpb", b"")
    drop(running, "damaged", "logs_bomb.binpb.gz", bomb(1 << 30))
    drop(running, "damaged", "logs.xyz", b"hello")
    drop(running, "damaged", "logs_good_too.binpb.gz", gzip.compress(request_of("good too")))
    states = ended(running, "damaged", 7)
    done = {key for key, (state, _) in states.items() if state == "done"}
    assert done == {f"default/damaged/logs_{name}" for name in ("good.binpb.gz", "good_too.binpb.gz", "empty.binpb")}
    reasons = {key.rpartition("/")[2]: reason or "" for key, (_, reason) in states.items()}
    assert "byte 0" in reasons["logs_garbage.binpb"]
    assert "cut short" in reasons["logs_cut.binpb.gz"]
    assert "unpacks to more than 268435456 bytes" in reasons["logs_bomb.binpb.gz"]
    assert "has an unknown ending. Known are .binpb, .pb, .json" in reasons["logs.xyz"]
    rows = running.sql("select message from logs where collector = 'damaged' order by 1")
    assert [row["message"] for row in rows] == ["good", "good too"]
    shown = running.command("objects", "--state", "failed").stdout
    assert "logs_bomb.binpb.gz" in shown
    assert "cut short" in shown
    assert max_memory(running) < 2 << 30


def bomb(size: int) -> bytes:
    """So many zeros as a small gzip file."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = bytes(1 << 24)
    return b"".join(packer.compress(chunk) for _ in range(size // len(chunk))) + packer.flush()


def max_memory(running: Lake) -> int:
    """The largest resident size of any process of the lake now, but for Java's fixed heap."""
    family = [psutil.Process(running.process.popen.pid)]
    family += family[0].children(recursive=True)
    return max(process.memory_info().rss for process in family)


def test_an_unknown_organization_is_set_aside(running: Lake) -> None:
    drop(running, "lost", "logs.binpb", request_of("lost"), organization="acme")
    ((state, reason),) = ended(running, "lost", 1).values()
    assert state == "failed"
    assert "unknown organization 'acme'" in (reason or "")


def test_the_same_file_touched_or_announced_again_adds_nothing(running: Lake) -> None:
    drop(running, "twice", "logs.binpb", request_of("once"))
    ended(running, "twice", 1)
    path = running.store / "otel-raw" / "default" / "twice" / "logs.binpb"
    shutil.copy(path, path.with_name(".copy"))
    path.with_name(".copy").rename(path)
    key = "otel-raw/default/twice/logs.binpb"
    event = {"Records": [{"s3": {"bucket": {"name": "local"}, "object": {"key": key}}}] * 3}
    for _ in range(10):
        answer = httpx.post(f"{running.url}/api/v1/events/s3", json=event, timeout=30)
        assert answer.json() == {"objects": 1, "new": 0}
    drop(running, "twice", "later.binpb", request_of("later"))
    ended(running, "twice", 2)
    rows = running.sql("select message, count(*) as n from logs where collector = 'twice' group by 1 order by 1")
    assert rows == [{"message": "later", "n": 1}, {"message": "once", "n": 1}]


def test_answers_as_json_ndjson_and_events(running: Lake) -> None:
    drop(running, "forms", "logs.binpb", request_of("a", "b"))
    ended(running, "forms", 1)
    query = "select message, attributes['number'] as number from logs where collector = 'forms' order by 1"
    rows = [{"message": "a", "number": "9007199254740993"}, {"message": "b", "number": "9007199254740994"}]
    whole = running.post_sql(query)
    assert whole.headers["content-type"] == "application/json"
    assert whole.json()["rows"] == rows
    assert [column["name"] for column in whole.json()["columns"]] == ["message", "number"]
    assert whole.json()["row_count"] == 2
    lines = running.post_sql(query, {"accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert ndjson(lines.text) == rows
    events = running.post_sql(query, {"accept": "text/event-stream"})
    assert events.headers["content-type"].startswith("text/event-stream")
    parsed = [json.loads(line[6:]) for line in events.text.split("\n\n") if line]
    parsed = [event for event in parsed if event["type"] not in ("progress", "heartbeat")]
    assert [event["type"] for event in parsed] == ["schema", "result", "result", "done"]
    assert [event["data"] for event in parsed[1:3]] == rows
    closing = {"type": "done", "complete": True, "row_count": 2, "missing": [], "degraded": None}
    assert closing.items() <= parsed[3].items()
    assert running.post_sql(query, {"accept": "text/html"}).status_code == 406


@pytest.mark.parametrize(
    ("query", "status", "words", "position"),
    [
        ("selec 1", 400, "", {"line": 1, "column": 1}),
        ("select *\nfrom nowhere", 400, "nowhere", {"line": 2, "column": 6}),
        ("select mesage from logs", 400, "message", {"line": 1, "column": 8}),
        ("select * from read_parquet('x.parquet')", 400, "read_parquet", {"line": 1, "column": 15}),
        ("select getenv('HOME') from logs", 400, "getenv", {"line": 1, "column": 8}),
        ("drop table logs", 400, "", {"line": 1, "column": 1}),
        (
            "select count(*) from logs where organization_id = '00000000-0000-0000-0000-000000000001'",
            403,
            "organization",
            {"line": 1, "column": 51},
        ),
    ],
)
def test_sql_that_is_wrong_is_refused_with_what_and_where(
    running: Lake, query: str, status: int, words: str, position: dict[str, int]
) -> None:
    response = running.post_sql(query)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert words in error["message"]
    assert error["position"] == position


def test_the_command_line_client(running: Lake) -> None:
    drop(running, "cli", "logs.binpb", request_of("x", "y", service="shipping"))
    ended(running, "cli", 1)
    query = "select service_name, count(*) as n from logs where collector = 'cli' group by 1"
    assert json.loads(running.command("sql", "--format", "json", query).stdout) == [
        {"service_name": "shipping", "n": 2}
    ]
    assert running.command("sql", "--format", "csv", query).stdout == "service_name,n\nshipping,2\n"
    assert ndjson(running.command("sql", "--format", "ndjson", query).stdout) == [{"service_name": "shipping", "n": 2}]
    table = running.command("sql", query).stdout
    assert "shipping" in table
    assert "1 row" in table
    wrong = running.command("sql", "select mesage from logs")
    assert wrong.returncode == 1
    assert "line 1, column 8" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_health_and_metrics(running: Lake) -> None:
    for path in ("healthz", "readyz", "livez"):
        assert httpx.get(f"{running.url}/{path}", timeout=60).status_code == 200
    report = httpx.get(f"{running.url}/healthz", timeout=60).json()
    assert report["status"] == "ok"
    assert {"lister", "relay", "boxer logs", "ingest logs"} <= set(report["parts"])
    drop(running, "counted", "logs.binpb", request_of("counted"))
    ended(running, "counted", 1)
    metrics = httpx.get(f"{running.url}/metrics", timeout=60).text
    assert 'lakerunner_objects_ended_total{signal="logs",state="done"}' in metrics


@pytest.mark.heavy
@pytest.mark.timeout(900)  # three starts
def test_a_second_start_continues_with_the_data_and_stops_cleanly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with lake(home) as first:
        drop(first, "edge", "logs.binpb", request_of("kept"))
        ended(first, "edge", 1)
        family = psutil.Process(first.process.popen.pid).children(recursive=True)
        assert first.process.stop(signal.SIGINT) == 0
        assert "Traceback" not in first.process.text()
        assert not (home / "address").exists()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == [], "processes were left behind"
    with lake(home) as second:
        assert second.sql("select message from logs") == [{"message": "kept"}]
        family = psutil.Process(second.process.popen.pid).children(recursive=True)
        second.process.kill()
    with lake(home) as third:
        drop(third, "edge", "more.binpb", request_of("more"))
        ended(third, "edge", 2)
        assert third.sql("select message from logs order by 1") == [{"message": "kept"}, {"message": "more"}]
    psutil.wait_procs(family, timeout=60)
    assert [process for process in family if process.is_running() and process.status() != "zombie"] == []


def test_help_of_every_command_teaches() -> None:
    from servers.lake import LAKERUNNER

    for command in ("up", "demo", "pubsub", "boxer", "ingest", "query-api", "query-worker", "sql", "objects"):
        shown = subprocess.run([*LAKERUNNER, command, "--help"], capture_output=True, text=True, timeout=60, check=True)
        assert len(shown.stdout.splitlines()) > 6, shown.stdout
