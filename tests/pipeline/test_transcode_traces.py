"""Records to OTLP spans, against requests built with protobuf."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.pipeline.transcode.columns import Columns
from pipeline.transcode_oracle import REQUESTS, SPAN_ID, TRACE_ID, add, same, transcoded

START = 1_700_000_000_000_000_000
PARENT = bytes(range(11, 19))


def span_request(fields: dict[str, Any], attributes: dict[str, Any], resource: dict[str, Any] | None = None) -> Any:
    request = REQUESTS["traces"]()
    resource_spans = request.resource_spans.add()
    if resource is not None:
        add(resource_spans.resource.attributes, resource)
    fields = dict(fields)
    events, links, status = fields.pop("events", ()), fields.pop("links", ()), fields.pop("status", None)
    span = resource_spans.scope_spans.add().spans.add(**fields)
    for event, own in events:
        add(span.events.add(**event).attributes, own)
    for link, own in links:
        add(span.links.add(**link).attributes, own)
    if status is not None:
        span.status.SetInParent()
        span.status.code, span.status.message = status
    add(span.attributes, attributes)
    return request


FULL = {
    "traceId": TRACE_ID.hex(),
    "spanId": SPAN_ID.hex(),
    "parentSpanId": PARENT.hex(),
    "traceState": "a=b",
    "name": "GET /",
    "kind": "SPAN_KIND_SERVER",
    "startTimeUnixNano": str(START),
    "endTimeUnixNano": START + 5,
    "status": {"code": "STATUS_CODE_ERROR", "message": "bad"},
    "flags": 257,
    "attributes": {"http.status": 500, "nested": {"a": [1]}},
    "resource": {"service.name": "cart", "host": "h"},
    "events": [
        {"name": "e", "timeUnixNano": str(START + 1), "attributes": {"x": 1}, "y": 2},
        {"name": 5, "time": 1700000000.123456789, "ts": 7},
    ],
    "links": [
        {"traceId": TRACE_ID.hex(), "spanId": SPAN_ID.hex(), "traceState": "s", "attributes": {"l": True}, "m": 1}
    ],
    "more": 1.5,
}
FIELDS = {
    "trace_id": TRACE_ID,
    "span_id": SPAN_ID,
    "parent_span_id": PARENT,
    "trace_state": "a=b",
    "name": "GET /",
    "kind": 2,
    "start_time_unix_nano": START,
    "end_time_unix_nano": START + 5,
    "status": (2, "bad"),
    "flags": 257,
    "events": [
        ({"name": "e", "time_unix_nano": START + 1}, {"x": 1, "y": 2}),
        ({"time_unix_nano": START + 123_456_789}, {"name": 5, "ts": 7}),
    ],
    "links": [({"trace_id": TRACE_ID, "span_id": SPAN_ID, "trace_state": "s"}, {"l": True, "m": 1})],
}
ATTRIBUTES = {"http.status": 500, "nested": {"a": [1]}, "more": 1.5}


def test_every_field_of_a_span() -> None:
    text = json.dumps(FULL).replace("1700000000.1234567", "1700000000.123456789")
    assert "1700000000.123456789" in text
    wanted = span_request(FIELDS, ATTRIBUTES, FULL["resource"])  # type: ignore[arg-type]
    same(transcoded("jsonl", "traces", text.encode()), wanted)


def test_csv_says_the_same_with_json_in_its_cells() -> None:
    names = [name for name in FULL if name not in ("more", "attributes")]
    cells = [FULL[name] if isinstance(FULL[name], str) else json.dumps(FULL[name]) for name in names]
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)  # type: ignore[attr-defined]
    data = f"{','.join(names)}\n{quoted}\n".replace("1700000000.1234567", "1700000000.123456789")
    wanted = span_request(FIELDS, {}, FULL["resource"])  # type: ignore[arg-type]
    same(transcoded("csv", "traces", data.encode()), wanted)


def test_parquet_says_the_same_with_nested_columns() -> None:
    table = pa.table(
        {
            "trace_id": [TRACE_ID],
            "span_id": [SPAN_ID],
            "start": pa.array([START], pa.timestamp("ns", "UTC")),
            "duration": pa.array([7], pa.duration("us")),
            "status": [{"code": "ok", "message": ""}],
            "events": [[{"name": "e", "time": START + 1, "x": 1}]],
            "attributes": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    fields = {
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 7000,
        "events": [({"name": "e", "time_unix_nano": START + 1}, {"x": 1})],
    }
    found = transcoded("parquet", "traces", out.getvalue())
    span = found.resource_spans[0].scope_spans[0].spans[0]
    # A struct is taken apart before its name is looked at: status.code is the status, status.message its message.
    assert span.status.code == 1
    span.ClearField("status")
    same(found, span_request(fields, {"a": "b"}))


@pytest.mark.parametrize(
    ("text", "fields", "attributes"),
    [
        (
            '{"start":1700000000000,"duration":5}',
            {"start_time_unix_nano": START, "end_time_unix_nano": START + 5_000_000},
            {},
        ),
        (
            '{"start":"2023-11-14T22:13:20Z","duration_ms":1.5}',
            {"start_time_unix_nano": START, "end_time_unix_nano": START + 1_500_000},
            {},
        ),
        (
            '{"start":"2023-11-14T22:13:20Z","duration":"20us"}',
            {"start_time_unix_nano": START, "end_time_unix_nano": START + 20_000},
            {},
        ),
        ('{"start":"2023-11-14T22:13:20Z","duration":5}', {"start_time_unix_nano": START}, {"duration": 5}),
        ('{"duration":"5ms"}', {}, {"duration": "5ms"}),
        (
            '{"start":1700000000,"end":1700000001,"duration":9}',
            {"start_time_unix_nano": START, "end_time_unix_nano": START + 10**9},
            {"duration": 9},
        ),
        (
            '{"start":1700000000,"end":"never","duration":9}',
            {"start_time_unix_nano": START, "end_time_unix_nano": START + 9 * 10**9},
            {"end": "never"},
        ),
        ('{"start":"now"}', {}, {"start": "now"}),
        ('{"kind":3}', {"kind": 3}, {}),
        ('{"kind":"client"}', {"kind": 3}, {}),
        ('{"kind":6}', {}, {"kind": 6}),
        ('{"status":"ok"}', {"status": (1, "")}, {}),
        ('{"status":2,"status_message":"m"}', {"status": (2, "m")}, {}),
        ('{"status_message":"m"}', {}, {"status_message": "m"}),
        ('{"status":200}', {}, {"status": 200}),
        ('{"status":{"code":1,"more":2}}', {"status": (1, "")}, {"status.more": 2}),
        (
            '{"status":{"code":1,"message":"a"},"status_message":"b"}',
            {"status": (1, "a")},
            {"status_message": "b"},
        ),
        ('{"events":[{"name":"e"},5]}', {}, {"events": [{"name": "e"}, 5]}),
        ('{"links":"none"}', {}, {"links": "none"}),
        ('{"trace_id":"1234"}', {}, {"trace_id": "1234"}),
        ('{"links":[{"trace_id":"12"}]}', {"links": [({}, {"trace_id": "12"})]}, {}),
    ],
)
def test_a_value_goes_to_its_field_or_stays(text: str, fields: dict[str, Any], attributes: dict[str, Any]) -> None:
    same(transcoded("jsonl", "traces", text.encode()), span_request(fields, attributes))


def test_a_mapping_says_the_unit_of_a_duration() -> None:
    columns = Columns({"start": "began", "duration": "took"}, {"duration": "ms", "start": "s"})
    text = b'{"began":"1700000000","took":5,"start":1,"duration":2}'
    fields = {"start_time_unix_nano": START, "end_time_unix_nano": START + 5_000_000}
    same(transcoded("jsonl", "traces", text, columns), span_request(fields, {"start": 1, "duration": 2}))
