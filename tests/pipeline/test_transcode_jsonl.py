"""JSON lines to OTLP logs: every value in its field or among the attributes, exactly, or the line that cannot be."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.source import Note
from lakerunner.pipeline.transcode import columns, lines, results
from lakerunner.pipeline.transcode.any_values import MAX_NESTING
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline.transcode_oracle import REQUESTS, SPAN_ID, TRACE_ID, logs_request, reason, same, transcoded

NS = 1_700_000_000_123_456_789


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """The record with dotted names."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        inner = flat(value) if isinstance(value, dict) else {}
        found |= {f"{name}.{key}": item for key, item in inner.items()} or {name: value}
    return found


def one(text: str | bytes) -> Any:
    return transcoded("jsonl", "logs", text.encode() if isinstance(text, str) else text)


def test_the_usual_names_become_fields_and_the_rest_attributes_with_their_types() -> None:
    record = {
        "@timestamp": "2023-11-14T22:13:20.123456789Z",
        "msg": "paid",
        "Level": "Warning",
        "traceId": TRACE_ID.hex().upper(),
        "span.id": SPAN_ID.hex(),
        "service.name": "cart",
        "trace_flags": 1,
        "int": 2**53 + 1,
        "least": -(2**63),
        "most": 2**63 - 1,
        "unsigned": 2**64 - 1,
        "double": 1.5,
        "yes": True,
        "nothing": None,
        "list": [1, "a", None, [2.5, False], {"k": 1}],
        "object": {"a": {"b": "c"}, "empty": {}, "none": []},
        "text": "not the message: msg stands before it",
    }
    attributes = flat({name: record[name] for name in list(record)[7:]})
    fields = {
        "time_unix_nano": NS,
        "body": "paid",
        "severity_text": "Warning",
        "severity_number": 13,
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "flags": 1,
    }
    same(one(json.dumps(record)), logs_request(("cart", fields, attributes)))


@pytest.mark.parametrize(
    ("text", "fields", "attributes"),
    [
        ('{"ts": 1700000000.123456789, "log": "a"}', {"time_unix_nano": NS, "body": "a"}, {}),
        ('{"ts": 1.7e9}', {"time_unix_nano": 1_700_000_000 * 10**9}, {}),
        ('{"timestamp_ms": 1700000000123}', {"time_unix_nano": 1_700_000_000_123 * 10**6}, {}),
        ('{"timeUnixNano": "86400000000000"}', {"time_unix_nano": 86_400_000_000_000}, {}),
        ('{"time": "yesterday"}', {}, {"time": "yesterday"}),
        ('{"time": null}', {}, {"time": None}),
        ('{"time": 0}', {}, {"time": 0}),
        (
            '{"time": "2023-11-14T22:13:20.1234567899Z"}',
            {"time_unix_nano": NS},
            {"time": "2023-11-14T22:13:20.1234567899Z"},
        ),
        ('{"time": 1700000000, "ts": 1700000001}', {"time_unix_nano": 1_700_000_000 * 10**9}, {"ts": 1700000001}),
        ('{"ts": 1700000001, "time": 1700000000}', {"time_unix_nano": 1_700_000_000 * 10**9}, {"ts": 1700000001}),
        ('{"message": {"a": [1]}}', {"body": {"a": [1]}}, {}),
        ('{"message": null}', {"body": None}, {}),
        ('{"message": 5, "msg": "b"}', {"body": 5}, {"msg": "b"}),
        ('{"level": 30}', {}, {"level": 30}),
        ('{"level": "odd"}', {"severity_text": "odd"}, {}),
        (
            '{"severity_number": 20, "severity": "info"}',
            {"severity_text": "info", "severity_number": 20},
            {},
        ),
        ('{"severityNumber": 25}', {}, {"severityNumber": 25}),
        ('{"trace_id": "xyz", "span_id": "00"}', {}, {"trace_id": "xyz", "span_id": "00"}),
        ('{"trace_id": "' + "0" * 32 + '"}', {}, {"trace_id": "0" * 32}),
        ('{"trace_id": "' + "+1" * 16 + '"}', {}, {"trace_id": "+1" * 16}),
        ('{"attributes": {"a": 1}, "b": 2}', {}, {"a": 1, "b": 2}),
        ('{"attributes": [1]}', {}, {"attributes": [1]}),
        ('{"service": 7, "resource": "x"}', {}, {"service": 7, "resource": "x"}),
        ("{}", {}, {}),
        (
            '{"http": {"status": 500, "tags": [{"a": {"b": 1}}], "none": {}, "null": null}}',
            {},
            {"http.status": 500, "http.tags": [{"a": {"b": 1}}], "http.none": {}, "http.null": None},
        ),
        (
            '{"log": {"level": "warn", "logger": "x"}}',
            {"severity_text": "warn", "severity_number": 13},
            {"log.logger": "x"},
        ),
        ('{"event": {"time": 1700000000.123456789}}', {"time_unix_nano": NS}, {}),
        ('{"trace": {"id": "' + TRACE_ID.hex() + '"}}', {"trace_id": TRACE_ID}, {}),
        ('{"level": "info", "log": {"level": 1}}', {"severity_text": "info", "severity_number": 9}, {"log.level": 1}),
        ('{"body": {"a": {"b": 1}}}', {"body": {"a": {"b": 1}}}, {}),
        ('{"attributes": {"a": {"b": 1}}}', {}, {"a": {"b": 1}}),
        ('{"big": 18446744073709551616}', {}, {"big": "18446744073709551616"}),
        ('{"big": [{"a": -9223372036854775809}]}', {}, {"big": [{"a": "-9223372036854775809"}]}),
        ('{"big": ' + "7" * 5000 + "}", {}, {"big": "7" * 5000}),
        ('{"huge": [1e400], "b": -1e999}', {}, {"huge": ["1e400"], "b": "-1e999"}),
        ('{"huge": 1e300, "b": 1}', {}, {"huge": 1e300, "b": 1}),
        ('{"\\u0000": "\\u0000"}', {}, {"\0": "\0"}),
    ],
)
def test_a_value_goes_to_its_field_or_stays(text: str, fields: dict[str, Any], attributes: dict[str, Any]) -> None:
    same(one(text), logs_request((None, fields, attributes)))


def test_a_resource_is_taken_whole_and_its_own_service_counts() -> None:
    found = one('{"resource": {"service.name": "a", "host": {"n": 1}}, "service": "b", "msg": "x"}')
    wanted = logs_request((None, {"body": "x"}, {"service": "b"}))
    pairs = wanted.resource_logs[0].resource.attributes
    pairs.add(key="service.name").value.string_value = "a"
    pairs.add(key="host").value.kvlist_value.values.add(key="n").value.int_value = 1
    same(found, wanted)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a" : 1, "a":2}',
        '{"a\\\\":1, "b":1, "a\\\\":2}',
        '{"a":"\\"b\\":", "a":2}',
        '{"\\u0061":1,"a":2}',
        '{"a":{"b":1,"b":2}}',
        '{"x":[{"b":1,"b":2}],"m":"{\\"b\\":1}"}',
    ],
)
def test_names_that_stand_twice_are_both_kept(text: str) -> None:
    def fill(target: Any, pairs: Any) -> None:
        for key, value in pairs:
            _fill(target.add(key=key).value, value)

    def _fill(target: Any, value: Any) -> None:
        if isinstance(value, tuple):
            fill(target.kvlist_value.values, value)
        elif isinstance(value, list):
            for item in value:
                _fill(target.array_value.values.add(), item)
        elif isinstance(value, str):
            target.string_value = value
        else:
            target.int_value = value

    wanted = logs_request((None, {}, {}))
    pairs = json.loads(text, object_pairs_hook=tuple)
    if text == '{"a":{"b":1,"b":2}}':
        pairs = (("a.b", 1), ("a.b", 2))
    fill(wanted.resource_logs[0].scope_logs[0].log_records[0].attributes, pairs)
    same(one(text), wanted)


def test_the_first_of_equal_names_is_the_field() -> None:
    same(one('{"msg":"a","msg":"b"}'), logs_request((None, {"body": "a"}, {"msg": "b"})))


def test_lines_may_be_blank_end_in_crlf_and_begin_with_a_bom() -> None:
    data = b'\xef\xbb\xbf\n{"msg":"a"}\r\n\r\n  \n{"msg":"b"}'
    same(one(data), logs_request((None, {"body": "a"}, {}), (None, {"body": "b"}, {})))


def test_a_file_of_blank_lines_is_a_request_without_records() -> None:
    assert [len(resource.scope_logs) for resource in one(b"\n\n").resource_logs] == [0]


def test_a_document_over_many_lines_is_one_record_or_a_list_of_them() -> None:
    records = [{"msg": "a", "ts": 1700000000.5, "n": 1}, {"msg": "b", "big": 2**70}]
    wanted = logs_request(
        (None, {"body": "a", "time_unix_nano": 1_700_000_000_500_000_000}, {"n": 1}),
        (None, {"body": "b"}, {"big": str(2**70)}),
    )
    for indent in (None, 2):
        same(one(json.dumps(records, indent=indent)), wanted)
    same(one(json.dumps(records[1], indent=2)), logs_request((None, {"body": "b"}, {"big": str(2**70)})))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}\n{"a":}\n', "line 2: column 6: not JSON: "),
        ('{"a":1}\n\n{"a"\nnot\n{"b":2}\n[1]', "; 2 further bad lines"),
        ('{"a":1}\n5', "line 2: expected a JSON object as a record, found a number"),
        ('"a"', "line 1: expected a JSON object as a record, found a string"),
        ('{"a":1}\n[{"b":1}, null]', "line 2: item 1: expected a JSON object as a record, found a null"),
        ('{\n "a": 1,\n "b": x\n}', "from line 1: line 3, column 7: not JSON: "),
        ('{"a": "\\ud800"}', "line 1: column 8: not JSON: "),
        ('{"a": NaN}', "line 1: column 7: not JSON: "),
        ('{"a": 1e999, "b": NaN}', "line 1: not JSON: NaN"),
        ('{"a": 1e999, "b": }', "line 1: column 19: not JSON: "),
        ('{"a": 1e999, "b": "\\ud800"}', "line 1: not JSON: text is not valid Unicode"),
        ('{"resourceSpans":[]}', "OTLP request of traces in an object of logs"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, expected: str) -> None:
    said = reason("jsonl", "logs", text.encode())
    assert expected in said if expected.startswith(";") else said.startswith(expected)


def test_text_that_is_not_utf8_is_named_with_its_line() -> None:
    assert reason("jsonl", "logs", b'{"a":1}\n{"a":"\xff"}') == "line 2: byte 7: not UTF-8"


@pytest.mark.parametrize(
    ("text", "kept", "rejected"),
    [
        (b'{"msg":"a"}\n{"msg":"b"}\n{"msg":"c', "ab", [(3, 24, "column 10: not JSON: unexpected end of data")]),
        # The first line is cut short: it is not the beginning of a document.
        (b'\xef\xbb\xbf{"msg":\n\n{"msg":"b"}\n', "b", [(1, 3, "column 8: not JSON: unexpected end of data")]),
        (b'{"msg":"a"}\r\n{"msg":"\xff"}\r\n{"msg":"c"}', "ac", [(2, 13, "byte 9: not UTF-8")]),
        (b'{"msg":"a"}\n{"msg":"b","x":1e999,"y":"\\ud800"}', "a", [(2, 12, "not JSON: text is not valid Unicode")]),
        (
            b'[{"msg":"a"},5,\n{"msg":"b"}]',
            "ab",
            [(1, 0, "item 1: expected a JSON object as a record, found a number")],
        ),
        (
            b'{"msg":"a"}\n{"resourceSpans":[]}',
            "a",
            [(2, 12, "OTLP request of traces in an object of logs")],
        ),
    ],
)
def test_the_other_lines_of_a_bad_one_are_kept(text: bytes, kept: str, rejected: list[tuple[int, int, str]]) -> None:
    made = TRANSCODERS["jsonl"]("logs", memoryview(text), GUESSED)
    (resource,) = REQUESTS["logs"].FromString(made.data).resource_logs
    assert [record.body.string_value for record in resource.scope_logs[0].log_records] == list(kept)
    found = made.findings.rejects
    assert (found.count, found.lines) == (len(rejected), len(rejected) + len(kept))
    assert [(one.line, one.offset, one.reason) for one in found.first] == rejected


def test_rejects_are_bounded_and_all_are_counted() -> None:
    bad = ("é" * 150).encode()
    made = TRANSCODERS["jsonl"]("logs", memoryview(b'{"msg":"a"}\n' + (bad + b"\n") * 500), GUESSED)
    rejects = made.findings.rejects
    assert (rejects.count, rejects.lines, len(rejects.first)) == (500, 501, 100)
    assert rejects.first[-1].line == 101
    assert rejects.first[0].excerpt == "é" * 100


NOW = 1_800_000_000
NOTED = [
    ({"msg": "a", "ts": "soon", "app": "x"}, "time not understood", "timestamp 'soon' is not a time"),
    ({"msg": "a", "app": "x"}, "no timestamp", "no column is the timestamp"),
    ({"ts": NOW, "app": "x"}, "no message", "no column is the message"),
    ({"msg": "a", "ts": NOW}, "no service", "no column is the service"),
    (
        {"msg": "a", "ts": NOW, "app": "x", "span_id": "7"},
        "id not hex",
        "span_id '7' is not an id in hex digits",
    ),
]


@pytest.mark.parametrize(("record", "kind", "text"), NOTED)
def test_what_is_guessed_is_noted(record: dict[str, Any], kind: str, text: str) -> None:
    sound = {"msg": "a", "ts": NOW, "resource": {"service.name": "x"}, "trace_id": "0" * 32, "span_id": ""}
    data = "\n".join(map(json.dumps, [sound, record, sound, record])).encode()
    assert TRANSCODERS["jsonl"]("logs", memoryview(data), GUESSED).findings.notes == (Note(kind, 2, 2, text),)


def nested(levels: int) -> bytes:
    return b'{"a":' + b'{"b":' * levels + b"1" + b"}" * levels + b"}"


def test_nesting_is_taken_to_its_limit() -> None:
    same(one(nested(MAX_NESTING)), logs_request((None, {}, {"a" + ".b" * MAX_NESTING: 1})))
    for levels in (MAX_NESTING + 1, 500, 1000, 2000):
        assert "line 1" in reason("jsonl", "logs", nested(levels))
    assert "nested deeper than 30 levels" in reason("jsonl", "logs", nested(MAX_NESTING + 1))
    assert "nested deeper than 30 levels" in reason("jsonl", "logs", b'{"a":1,"a":' + b"[" * 900 + b"]" * 900 + b"}")


def test_a_line_is_taken_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 4 << 20)
    head, tail = b'{"msg":"', b'"}'
    longest = head + b"x" * ((4 << 20) - len(head) - len(tail)) + tail
    same(one(longest + b"\n{}"), logs_request((None, {"body": "x" * (len(longest) - 10)}, {}), (None, {}, {})))
    assert reason("jsonl", "logs", b"{}\n" + longest.replace(b"x", b"xy", 1)) == "line 2: longer than 4 MB"


def test_what_a_file_unfolds_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_RECORDS", 10)
    assert len(one(b"{}\n" * 10).resource_logs[0].scope_logs[0].log_records) == 10
    assert reason("jsonl", "logs", b"{}\n" * 11) == "the file has more than 10 records: send smaller files"
    monkeypatch.setattr(results, "MAX_RECORDS", 10_000)
    monkeypatch.setattr(results, "MAX_BYTES", 1 << 20)
    line = b'{"a":"' + b"x" * 1000 + b'"}\n'
    assert "more than 1 MB of OTLP" in reason("jsonl", "logs", line * 1100)


def test_shapes_of_records_are_forgotten_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_MAX_NAMES", 12)
    records = [{f"k{n}-{i}": i for i in range(n)} for n in (3, 5, 20, 3, 5, 0)]
    data = "\n".join(json.dumps(record) for record in records)
    same(one(data), logs_request(*((None, {}, record) for record in records)))
    plans = columns.ColumnPlans("logs", GUESSED)
    for width in (3, 5, 20, 3):
        plans(tuple(map(str, range(width))))
        assert plans._names <= 21
        assert sum(len(names) + 1 for names in plans._plans) <= 12


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.text("x", min_size=120, max_size=132),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
# Keys that are no field, so that what comes out can be told from what went in.
KEY = TEXT.map(lambda text: f"x-{text}")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(KEY, VALUE, max_size=6), min_size=1, max_size=5), st.sampled_from([None, 1]))
def test_any_record_comes_back_equal(records: list[dict[str, Any]], indent: int | None) -> None:
    data = json.dumps(records, indent=1) if indent else "\n".join(json.dumps(record) for record in records)
    same(one(data), logs_request(*((None, {}, flat(record)) for record in records)))


def test_orjson_and_the_slow_way_agree_on_doubles() -> None:
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 123456789.123456789, math.pi]
    same(one(orjson.dumps({"n": numbers})), logs_request((None, {}, {"n": numbers})))
    slow = orjson.dumps({"n": numbers})[:-1] + b',"big":' + b"1" * 30 + b"}"
    same(one(slow), logs_request((None, {}, {"n": numbers, "big": "1" * 30})))


def test_a_date_without_a_year_lies_near_the_time_at_which_its_object_was_modified() -> None:
    line, modified = b'{"time": "Nov 14 22:13:20", "msg": "a"}', 1_705_000_000 * 10**9
    request = transcoded("jsonl", "logs", line, GUESSED.near(modified))
    same(request, logs_request((None, {"time_unix_nano": 1_700_000_000 * 10**9, "body": "a"}, {})))
    same(one(line), logs_request((None, {"body": "a"}, {"time": "Nov 14 22:13:20"})))


def test_a_dotted_name_that_comes_out_twice_is_kept_twice() -> None:
    for text in ('{"a": {"b": 1}, "a.b": 2}', '{"a": {"b": 1}, "a": {"b": 2}}'):
        pairs = one(text).resource_logs[0].scope_logs[0].log_records[0].attributes
        assert [(pair.key, pair.value.int_value) for pair in pairs] == [("a.b", 1), ("a.b", 2)]


def test_a_struct_of_a_service_is_the_service() -> None:
    found = one('{"service": {"name": "cart", "version": "1"}, "msg": "a"}')
    same(found, logs_request(("cart", {"body": "a"}, {"service.version": "1"})))


def test_a_long_name_above_many_members_does_not_unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"n" * 100: {f"k{n}": n for n in range(50)}}
    same(one(json.dumps(record)), logs_request((None, {}, flat(record))))
    monkeypatch.setattr(columns, "MAX_REPEATED", 4_999)
    same(one(json.dumps(record)), logs_request((None, {}, record)))
