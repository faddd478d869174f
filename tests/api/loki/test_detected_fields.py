"""Fields of sampled lines and their values: Loki's rules, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.loki.loki_lake import NOW, SECOND, LokiClient, lines_lake, loki_server
from conformance.answer import LogEntry
from lakerunner.logql.field_detection import SampledLine, detect_fields, detect_values, type_of
from query.sample_lake import START

WITHIN = {"start": START, "end": NOW}
WEB, KV = (("app", "web"),), (("app", "kv"),)
LINES = (
    LogEntry(START, '{"status":200,"user":{"id":7,"name":"ann"},"app":"x","none":null,"all":[1]}', WEB),
    LogEntry(START + SECOND, '{"status":404,"user":{"id":8}}', WEB, (("trace_id", "t1"),)),
    LogEntry(START + 2 * SECOND, "took=10ms size=5KB ok=true ratio=0.5 status=200", KV, (("trace_id", "t2"),)),
    LogEntry(START + 3 * SECOND, "plain words", KV),
)


@pytest.fixture(scope="module")
def loki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LokiClient]:
    with loki_server(lines_lake(tmp_path_factory.mktemp("fields"), LINES)) as client:
        yield client


def fields_of(loki: LokiClient, query: str, **given: Any) -> dict[str, tuple[Any, ...]]:
    found = loki.json("detected_fields", query=query, **WITHIN, **given)
    return {
        one["label"]: (one["type"], one["cardinality"], one["parsers"], one.get("jsonPath"))
        for one in found.get("fields", [])
    }


def test_fields_of_json(loki: LokiClient) -> None:
    assert fields_of(loki, '{app="web"}') == {
        "detected_level": ("string", 1, None, None),
        "trace_id": ("string", 1, None, None),
        "status": ("int", 2, ["json"], ["status"]),
        "user_id": ("int", 2, ["json"], ["user", "id"]),
        "user_name": ("string", 1, ["json"], ["user", "name"]),
        "app_extracted": ("string", 1, ["json"], ["app"]),  # the stream has `app`
    }


def test_fields_of_logfmt_and_of_both(loki: LokiClient) -> None:
    logfmt = ["logfmt"]
    own = fields_of(loki, '{app="kv"}')
    assert {name: own[name] for name in own if own[name][2]} == {
        "took": ("duration", 1, logfmt, None),
        "size": ("bytes", 1, logfmt, None),
        "ok": ("boolean", 1, logfmt, None),
        "ratio": ("float", 1, logfmt, None),
        "status": ("int", 1, logfmt, None),
    }
    # Streams come in the order of their labels: kv, then web.
    assert fields_of(loki, '{app=~".+"}')["status"] == ("int", 2, ["logfmt", "json"], ["status"])


def test_labels_that_the_query_parsed_count_too(loki: LokiClient) -> None:
    own = fields_of(loki, '{app="kv"} | regexp "(?P<word>plain)" | drop __error__, __error_details__')
    assert own["word"] == ("string", 1, ["logfmt"], None)
    assert fields_of(loki, '{app="web"} | json')["status"] == ("int", 2, ["json"], ["status"])
    assert not [name for name in fields_of(loki, '{app="kv"} | json') if name.startswith("__")]


def test_limits(loki: LokiClient) -> None:
    found = loki.json("detected_fields", query='{app=~".+"}', limit=2, **WITHIN)
    assert (len(found["fields"]), found["limit"]) == (2, 2)
    assert "took" not in fields_of(loki, '{app="kv"}', line_limit=1)  # the newest line is plain
    for given, message in (
        ({"line_limit": 5001}, "max entries limit per query exceeded"),
        ({"line_limit": -1}, "limit must be a positive value"),
        ({"limit": "x"}, "strconv.Atoi"),
    ):
        refused = loki.get("detected_fields", query='{app="kv"}', **WITHIN, **given)
        assert (refused.status_code, message in refused.text) == (400, True), refused.text
    metric = loki.get("detected_fields", query='rate({app="kv"}[1m])', **WITHIN)
    assert (metric.status_code, metric.text) == (400, "only log selector is supported")


def test_nothing_found_has_no_members(loki: LokiClient) -> None:
    assert loki.json("detected_fields", query='{app="none"}', **WITHIN) == {}
    assert loki.json("detected_field/status/values", query='{app="none"}', **WITHIN) == {}


def test_values(loki: LokiClient) -> None:
    def values(name: str, query: str = '{app=~".+"}', **given: Any) -> Any:
        return loki.json(f"detected_field/{name}/values", query=query, **WITHIN, **given)

    assert values("status") == {"values": ["200", "404"], "limit": 1000}
    assert values("trace_id")["values"] == ["t1", "t2"]
    assert values("size")["values"] == ["5.0kB"]  # as a query takes it
    assert values("status", limit=1)["values"] == ["200"]
    assert values("word", '{app="kv"} | regexp "(?P<word>plain)"')["values"] == ["plain"]


def test_only_lines_of_the_own_organization(loki: LokiClient) -> None:
    assert fields_of(loki, '{app="secret"}') == {}
    other = LokiClient(loki.url, "other")
    assert set(fields_of(other, '{app=~".+"}')) == {"detected_level"}
    assert other.json("detected_field/status/values", query='{app=~".+"}', **WITHIN) == {}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("12", "int"), ("-3", "int"), ("9223372036854775807", "int"), ("9223372036854775808", "float"),
        ("1e3", "float"), ("NaN", "float"), ("true", "boolean"), ("t", "boolean"), ("1h5m", "duration"),
        ("5 MB", "bytes"), ("7k", "bytes"), ("", "string"), ("abc", "string"), ("1 2", "string"), ("٣", "string"),
    ],
)  # fmt: skip
def test_types(value: str, name: str) -> None:
    assert type_of(value) == name


def test_the_last_line_decides_the_type() -> None:
    lines = [SampledLine(f"a={value}", {}, {}, {}) for value in ("1", "x", "2ms")]
    assert detect_fields(lines, 10)["a"].type == "duration"
    assert detect_values(lines, "a", 10) == ["1", "2ms", "x"]
