"""The native API over a real socket and real segments: what the Grafana plugin asks, and what it must never be told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.native.native_api import NativeApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.labels.row_view import LOG_VIEW, SPAN_VIEW, known_keys
from lakerunner.model.organization import Caller, Organization, Role
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from query.sample_lake import HOUR, OTHER, OWN, START, Lake, Record

READ = frozenset({Role.READ})
KEYS = {name: Caller(Organization(id_, name), name, READ) for name, id_ in (("own", OWN), ("other", OTHER))}
KEYS["writer"] = Caller(Organization(OWN, "own"), "writer", frozenset({Role.WRITE}))
LIMITS = Capacity(concurrent=2, org_concurrent=2, org_queries_per_second=1000.0, queue_seconds=10.0)
NOW = START + HOUR
DAY = {"s": "2023-12-31T00:00:00Z", "e": "2024-01-02T00:00:00Z"}
HOSTILE = [
    "it's",
    'a"b',
    "back\\slash",
    "\\'",
    "nul\0key",
    "ключ",
    "x'] || (SELECT 1) --",
    "line\nbreak",
    "%_",
    "${x}",
    "",
]


class Served:
    """A lake and the native API over it; `ask` and `values` speak for one organization."""

    def __init__(self, directory: Path) -> None:
        self.lake = Lake(directory)
        limits = QueryLimits(LIMITS, time.monotonic)
        service = QueryService(Authenticator(KEYS.get, None), limits, lambda: NOW)
        api = NativeApi(self.lake.engine(), self.lake, service)
        self.server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)

    def add(self, signal: str, data: bytes, organization: UUID = OWN) -> None:
        raw = Raw(
            SourceObject("bucket", f"{signal}{len(self.lake.all)}.binpb", "etag", len(data), START), memoryview(data)
        )
        self.make(signal, raw, organization)

    def make(self, signal: str, raw: Raw, organization: UUID = OWN) -> None:
        put = self.lake.store.put
        made = make_segments(SIGNALS[signal], organization, "edge", [raw], lambda path, file: put(path, bytes(file)))
        self.lake.all += made.segments

    def post(self, path: str, body: Any = DAY, key: str | None = "own") -> httpx.Response:
        headers = {"x-cardinalhq-api-key": key} if key else {}
        return httpx.post(f"{self.server.url}/api/v1/{path}", json=body, headers=headers, timeout=30)

    def tags(self, path: str, body: Any = DAY, key: str = "own") -> list[str]:
        answer = self.post(f"{path}/tags", body, key)
        assert answer.status_code == 200, answer.text
        assert answer.json()["truncated"] is False
        tags: list[str] = answer.json()["tags"]
        return tags

    def events(self, path: str, name: str, body: Any = DAY, key: str = "own") -> list[dict[str, Any]]:
        query = httpx.QueryParams({"tagName": name})
        answer = self.post(f"{path}/tagvalues?{query}", body, key)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]

    def values(self, path: str, name: str, body: Any = DAY, key: str = "own") -> list[str]:
        *results, done = self.events(path, name, body, key)
        assert done == {"type": "done", "data": {"status": "ok"}}
        assert {event["type"] for event in results} <= {"result"}
        return [event["data"]["value"] for event in results]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Logs and spans of two organizations."""
    made = Served(tmp_path_factory.mktemp("native"))
    made.add("logs", logs())
    made.add("traces", spans())
    secret = logs(prefix="secret")
    made.add("logs", secret, OTHER)
    made.server.start()
    yield made
    made.server.stop()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.server.start()
    yield made
    made.server.stop()


def logs(prefix: str = "") -> bytes:
    """Two services; an attribute of each kind, one that is spelled in two ways, and all hostile keys."""
    found = ExportLogsServiceRequest()
    for number, service in enumerate(("cart", "pay")):
        resource_logs = found.resource_logs.add()
        resource_logs.resource.attributes.add(key="service.name").value.string_value = prefix + service
        resource_logs.resource.attributes.add(key=f"{prefix}k8s.pod.name").value.string_value = f"{service}-1"
        scope = resource_logs.scope_logs.add()
        scope.scope.name = "logger"
        scope.scope.attributes.add(key=f"{prefix}lib.kind").value.string_value = "std"
        for code in (200, 404):
            record = scope.log_records.add(time_unix_nano=START + number * HOUR + code, severity_number=9 + number * 8)
            record.body.string_value = f"{prefix}said {code}"
            record.attributes.add(key=f"{prefix}http.status").value.int_value = code
        record.attributes.add(key=f"{prefix}http_status").value.string_value = "teapot"
        record.attributes.add(key=f"{prefix}empty").value.string_value = ""
        for key in HOSTILE:
            record.attributes.add(key=prefix + key).value.string_value = f"{prefix}value of {key}"
    return found.SerializeToString()


def spans() -> bytes:
    found = ExportTraceServiceRequest()
    resource_spans = found.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = "front"
    scope = resource_spans.scope_spans.add()
    root = scope.spans.add(trace_id=bytes(range(16)), span_id=b"rootroot", name="GET /", kind=2)
    root.start_time_unix_nano, root.end_time_unix_nano = START, START + 1_500_000_000
    root.attributes.add(key="http.route").value.string_value = "/"
    child = scope.spans.add(trace_id=bytes(range(16)), span_id=b"chilchil", parent_span_id=b"rootroot", name="query")
    child.kind, child.status.code = 3, 2
    child.start_time_unix_nano, child.end_time_unix_nano = START + 1, START + 2_000_001
    return found.SerializeToString()


def test_ping_and_features_need_a_key_and_say_what_there_is(served: Served) -> None:
    url = f"{served.server.url}/api/v1"
    for header in ({"x-cardinalhq-api-key": "own"}, {"Api-Key": "own"}, {"Authorization": "Bearer own"}):
        assert httpx.get(f"{url}/ping", headers=header).json() == {"status": "ok"}
    assert httpx.get(f"{url}/ping").status_code == 401
    assert httpx.get(f"{url}/features", headers={"api-key": "no such"}).status_code == 401
    features = {"metricsSummarySSE": False, "promql": True, "logql": True, "traceql": False, "sql": True}
    assert served.post("features", {}).json() == {"features": features}
    assert httpx.get(f"{url}/features", headers={"api-key": "own"}).json() == {"features": features}


@pytest.mark.parametrize("path", ["spans/query", "spans/tags", "logs/tagvalues?tagName=level"])
def test_nothing_is_told_without_a_key(served: Served, path: str) -> None:
    assert served.post(path, key=None).status_code == 401
    assert served.post(path, key="wrong").status_code == 401
    assert served.post(path, key="writer").status_code == 403


def test_a_query_is_refused_by_the_name_of_its_language(served: Served) -> None:
    refused = served.post("spans/query", DAY | {"q": '{a="b"}', "limit": 100, "reverse": True})
    assert refused.status_code == 400
    message = "TraceQL is not available yet: use SQL at /api/v1/sql"
    assert refused.json() == {"error": {"kind": "UserError", "message": message}}


def flat(key: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in key)


# What has no name cannot be asked for.
LOG_ATTRIBUTES = {"http_status", "empty", "k8s_pod_name", "lib_kind", *(flat(key) for key in HOSTILE if key)}


def test_tags_of_logs_come_from_the_index(served: Served) -> None:
    before = len(served.lake.picks)
    assert served.tags("logs") == sorted({*LOG_VIEW.fixed} | LOG_ATTRIBUTES)
    assert len(served.lake.picks) == before + 1, "the rows were read too"
    assert None not in [known_keys(segment) for segment in served.lake.all]


def test_tags_that_the_index_does_not_know_come_from_the_rows(empty: Served) -> None:
    empty.lake.add([Record(START, attributes=(("a.b", 1), ("gone", None)), scope=(("lib", "x"),))])
    assert known_keys(empty.lake.all[0]) is None
    assert empty.tags("logs") == sorted({*LOG_VIEW.fixed, "a_b", "gone", "lib"})
    assert empty.values("logs", "a.b") == ["1"]


def test_where_there_is_nothing_there_are_no_tags(empty: Served) -> None:
    for path in ("logs", "spans"):
        assert empty.tags(path) == []
        assert empty.values(path, "service_name") == empty.values(path, "no_such") == []


def test_tags_are_of_the_time_asked_for(empty: Served) -> None:
    empty.lake.add([Record(START, attributes=(("early", "1"),))])
    empty.lake.add([Record(START + HOUR, attributes=(("late", "2"),))])
    morning = {"s": START // 1_000_000, "e": str(START // 1_000_000 + 1000)}
    assert {"early", "late"} & {*empty.tags("logs", morning)} == {"early"}
    assert {"early", "late"} & {*empty.tags("logs", {"s": "now-5m", "e": "now+5m"})} == {"late"}
    assert empty.values("logs", "late", morning) == []


VALUES = {
    ("logs", "service_name"): ["cart", "pay"],
    ("logs", "service.name"): ["cart", "pay"],
    ("logs", "resource_service_name"): ["cart", "pay"],
    ("logs", "level"): ["ERROR", "INFO"],
    ("logs", "log_level"): ["ERROR", "INFO"],
    ("logs", "severity"): ["ERROR", "INFO"],
    ("logs", "message"): ["said 200", "said 404"],
    ("logs", "scope_name"): ["logger"],
    ("logs", "lib.kind"): ["std"],
    ("logs", "k8s_pod_name"): ["cart-1", "pay-1"],
    ("logs", "http_status"): ["200", "404"],  # the first spelling wins where a record has both
    ("logs", "empty"): [],
    ("logs", "no_such"): [],
    ("logs", "collector"): ["edge"],
    ("spans", "name"): ["GET /", "query"],
    ("spans", "kind"): ["Client", "Server"],
    ("spans", "span_kind"): ["Client", "Server"],
    ("spans", "status_code"): ["Error", "Unset"],
    ("spans", "duration"): ["1500", "2"],
    ("spans", "trace_id"): [bytes(range(16)).hex()],
    ("spans", "id"): [b"chilchil".hex(), b"rootroot".hex()],
    ("spans", "parent_span_id"): [b"rootroot".hex()],
    ("spans", "http.route"): ["/"],
}


@pytest.mark.parametrize(("path", "name"), VALUES)
def test_values(served: Served, path: str, name: str) -> None:
    assert served.values(path, name) == VALUES[path, name]


@pytest.mark.parametrize("key", [key for key in HOSTILE if key])
def test_a_hostile_key_is_a_key(served: Served, key: str) -> None:
    meant = [other for other in HOSTILE if len(other) == len(key) and flat(other) == flat(key)]
    assert served.values("logs", key) == sorted({f"value of {min(meant)}"})


SCOPED = {
    '{service_name="pay"}': ["pay-1"],
    '{service_name!="pay"}': ["cart-1"],
    '{service_name=~"c.*"}': ["cart-1"],
    '{service_name=~"c"}': [],
    '{service_name!~"c.*"}': ["pay-1"],
    '{http_status="404", level="INFO"}': ["cart-1"],
    '{no_such=""}': ["cart-1", "pay-1"],
    '{no_such="x"}': [],
    '{no_such!="x"}': ["cart-1", "pay-1"],
    '{"it\'s"="value of it\'s"}': ["cart-1", "pay-1"],
    '{service_name="\'; DROP TABLE logs; --"}': [],
    '{service_name="\\x00"}': [],
    "sum(rate({service_name=`cart`}[5m]))": ["cart-1"],
}


@pytest.mark.parametrize("q", SCOPED)
def test_values_of_the_rows_a_selector_chooses(served: Served, q: str) -> None:
    assert served.values("logs", "k8s.pod.name", DAY | {"q": q}) == SCOPED[q]


def test_a_regular_expression_matches_values_of_several_lines(empty: Served) -> None:
    empty.lake.add([Record(START, message="failed\n  at main", attributes=(("n", 1),))])
    assert empty.values("logs", "n", DAY | {"q": '{message=~"failed.*main"}'}) == ["1"]
    assert empty.values("logs", "n", DAY | {"q": '{message!~"failed.*"}'}) == []


def test_tags_of_the_rows_a_selector_chooses(served: Served) -> None:
    scoped = served.tags("logs", DAY | {"q": '{message="said 200"}'})
    assert scoped == sorted({*LOG_VIEW.fixed, "http_status", "k8s_pod_name", "lib_kind", "service_name"})
    assert served.tags("logs", DAY | {"q": '{service_name="nobody"}'}) == []


def test_what_is_asked_wrong_is_refused_before_the_stream_begins(served: Served) -> None:
    wrong: dict[str, tuple[str, Any]] = {
        "s 'soon' is not a time": ("logs/tags", {"s": "soon"}),
        "s must be before e": ("spans/tagvalues?tagName=a", {"s": "now", "e": "now-1h"}),
        "tagName is missing": ("logs/tagvalues", DAY),
        "tagName is longer than 4096": (f"logs/tagvalues?tagName={'a' * 4097}", DAY),
        "LogQL is not available yet: q may be one selector": (
            "logs/tagvalues?tagName=a",
            DAY | {"q": '{a="b"} |= "c"'},
        ),
        "q names a metric, but spans have no metrics": ("spans/tags", DAY | {"q": "up"}),
        "q must be text": ("logs/tags", DAY | {"q": 1}),
        "the body must be a JSON object": ("spans/tags", []),
    }
    for message, (path, body) in wrong.items():
        refused = served.post(path, body)
        assert refused.status_code == 400
        assert message in refused.json()["error"]["message"]


def test_a_failure_on_the_way_is_an_error_event_and_no_done(served: Served) -> None:
    (event,) = served.events("logs", "level", DAY | {"q": '{message=~"("}'})
    assert event["type"] == "error"
    assert event["data"]["code"] == "UserError"
    assert "missing closing )" in event["data"]["message"]


def test_tags_of_spans(served: Served) -> None:
    assert served.tags("spans") == sorted({*SPAN_VIEW.fixed, "http_route"})


def test_another_organizations_names_and_values_are_never_told(served: Served) -> None:
    assert [tag for tag in served.tags("logs") if "secret" in tag] == []
    theirs = [tag for tag in served.tags("logs", key="other") if tag not in LOG_VIEW.fixed]
    assert len(theirs) == len(LOG_ATTRIBUTES) + 1  # with the prefix all keys have a name
    assert all(tag.startswith("secret") for tag in theirs)
    for tag in ("message", "service_name", theirs[0]):
        for q in ("", '{secrethttp_status=~".*"}'):
            assert "secret" not in json.dumps(served.values("logs", tag, DAY | {"q": q}))
    assert served.values("logs", "service_name", key="other") == ["secretcart", "secretpay"]
    assert served.tags("spans", key="other") == []
    orgs = DAY | {"orgId": str(OTHER), "organization_id": str(OTHER)}
    assert "secret" not in json.dumps(served.values("logs", "service_name", orgs))


def test_the_most_values_are_told_and_one_more_is_said_to_be_missing(empty: Served) -> None:
    limit = 10_000
    empty.lake.add([Record(START + n, attributes=(("n", f"{n:05}"),)) for n in range(limit)])
    assert empty.values("logs", "n") == [f"{n:05}" for n in range(limit)]
    empty.lake.add([Record(START, attributes=(("n", "99999"),))])
    *results, done = empty.events("logs", "n")
    assert done == {"type": "done", "data": {"status": "truncated", "limit": limit}}
    assert [event["data"]["value"] for event in results] == [f"{n:05}" for n in range(limit)]


def test_more_tags_than_are_listed_are_said_to_be_missing(empty: Served) -> None:
    room = 10_000 - len(LOG_VIEW.fixed)
    resource = (("service.name", "shop"),)
    empty.lake.add([Record(START, attributes=tuple((f"k{n:05}", 1) for n in range(room)), resource=resource)])
    assert len(empty.tags("logs")) == 10_000
    empty.lake.add([Record(START, attributes=(("one.more", 1),), resource=resource)])
    told = empty.post("logs/tags").json()
    assert told["truncated"] is True
    assert len(told["tags"]) == 10_000


def test_what_has_expired_of_the_range_is_said(empty: Served) -> None:
    empty.lake.add([Record(START + 1, attributes=(("n", "1"),))])
    empty.lake.expired_ns["logs"] = START
    warned = {"warnings": ["logs: rows up to 2024-01-01 00:00:00 UTC have expired by retention"]}
    later = DAY | {"s": "2024-01-01T00:00:00Z"}
    for selector in ({}, {"q": '{n="1"}'}):
        told, young = (empty.post("logs/tags", body | selector).json() for body in (DAY, later))
        assert told == young | warned
        assert "n" in told["tags"]
        assert "warnings" not in young
    for name in ("service_name", "n", "no_such"):
        assert empty.events("logs", name)[-1] == {"type": "done", "data": {"status": "ok"} | warned}
        assert empty.events("logs", name, later)[-1] == {"type": "done", "data": {"status": "ok"}}
    assert empty.post("spans/tags").json() == {"tags": [], "truncated": False}


def test_a_tag_of_too_many_spellings_is_refused(empty: Served) -> None:
    keys = [f"a{chr(0x400 + n)}" for n in range(101)]
    empty.lake.add([Record(START, attributes=tuple((key, key) for key in keys[:100]))])
    assert empty.values("logs", "a_") == [keys[0]]
    empty.lake.add([Record(START, attributes=((keys[100], "x"),))])
    (event,) = empty.events("logs", "a_")
    assert event["type"] == "error"
    assert event["data"]["message"].startswith("label 'a_' stands for 101 attributes, the limit is 100")
