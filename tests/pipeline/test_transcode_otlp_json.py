"""OTLP/JSON becomes the same request as protobuf, for every field of every signal, held against protobuf's own JSON."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.pipeline.transcode.otlp_json import request_from_json
from pipeline.transcode_oracle import REQUESTS, reason, same, transcoded

REQUEST = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]},
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": "1766577984449000001",
                            "severityNumber": 9,
                            "body": {"stringValue": "hello"},
                            "traceId": "AAfe664bb5e1ed70e1a88b567356dd57",
                            "spanId": "cf14d481b826c905",
                            "attributes": [
                                {"key": "traceId", "value": {"intValue": "9007199254740993"}},
                                {"key": "raw", "value": {"bytesValue": "AAE="}},
                            ],
                            "fieldOfTheFuture": 1,
                        }
                    ]
                }
            ],
        }
    ]
}


def test_ids_are_hex_and_numbers_stay_exact() -> None:
    request = REQUESTS["logs"].FromString(request_from_json("logs", json.dumps(REQUEST).encode()))
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    assert record.trace_id.hex() == "aafe664bb5e1ed70e1a88b567356dd57"
    assert record.span_id.hex() == "cf14d481b826c905"
    assert record.time_unix_nano == 1766577984449000001
    assert record.attributes[0].key == "traceId"
    assert record.attributes[0].value.int_value == 9007199254740993
    assert record.attributes[1].value.bytes_value == b"\x00\x01"
    assert record.body.string_value == "hello"


RECORD = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[%s]}]}]}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "the body is not JSON: column 2"),
        ("[]", "an OTLP/JSON request must be an object"),
        ('{"resourceLogs": 5}', "the body is not an OTLP logs request: resourceLogs: 5 is not a list"),
        (RECORD % '{"traceId":"xyz"}', "resourceLogs[0].scopeLogs[0].logRecords[0].traceId: 'xyz' is not hex"),
        (RECORD % '{"traceId":"a"}', "'a' is not hex"),
        (RECORD % '{"spanId":"00 11"}', "'00 11' is not hex"),
        (RECORD % '{},{"timeUnixNano":-1}', "logRecords[1].timeUnixNano: -1 is not a whole number from 0 to"),
        (RECORD % '{"timeUnixNano":1.5}', "1.5 is not a whole number"),
        (RECORD % '{"timeUnixNano":18446744073709551616}', "is not a whole number"),
        (RECORD % '{"severityNumber":"LOUD"}', "'LOUD' is not a whole number"),
        (RECORD % '{"body":{"intValue":-9223372036854775809}}', "body.intValue: -9.223372036854776e+18 is not a whole"),
        (RECORD % '{"body":{"intValue":1,"stringValue":"a"}}', "body.stringValue: given twice, or together"),
        (RECORD % '{"body":{"intValue":1,"intValue":2}}', "body.intValue: given twice"),
        (RECORD % '{"flags":1},{"traceId":"","trace_id":""}', "logRecords[1].trace_id: given twice, or together"),
        (RECORD % '{"body":{"boolValue":"yes"}}', "'yes' is not true or false"),
        (RECORD % '{"body":{"doubleValue":"x"}}', "'x' is not a number"),
        (RECORD % '{"body":{"bytesValue":"*"}}', "'*' is not base64"),
        (RECORD % '{"severityText":5}', "5 is not a string"),
        (RECORD % '{"attributes":[{"key":"a","value":"b"}]}', "attributes[0].value: 'b' is not an object"),
        (RECORD % "[null]", "[None] is not an object"),
        ('{"resourceLogs":[],"resourceLogs":[]}', "resourceLogs: given twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(body: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        request_from_json("logs", body.encode())
    assert message in str(caught.value)


def test_a_signal_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="unknown signal 'profiles'"):
        request_from_json("profiles", b"{}")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"NaN"', math.nan),
        ('"Infinity"', math.inf),
        ('"-Infinity"', -math.inf),
        ('"1.5"', 1.5),
        ("2", 2.0),
        ("1e3", 1000.0),
        ("18446744073709551617", 2.0**64),
    ],
)
def test_doubles_as_proto3_json_has_them(written: str, value: float) -> None:
    request = REQUESTS["logs"].FromString(
        request_from_json("logs", (RECORD % f'{{"body":{{"doubleValue":{written}}}}}').encode())
    )
    found = request.resource_logs[0].scope_logs[0].log_records[0].body.double_value
    assert str(found) == str(value)


@pytest.mark.parametrize("written", ["5", '"5"', "5.0", "5e0"])
def test_integers_as_proto3_json_has_them(written: str) -> None:
    body = (RECORD % f'{{"timeUnixNano":{written},"severityNumber":{written},"flags":{written}}}').encode()
    record = REQUESTS["logs"].FromString(request_from_json("logs", body)).resource_logs[0].scope_logs[0].log_records[0]
    assert (record.time_unix_nano, record.severity_number, record.flags) == (5, 5, 5)


# ---- any request of any signal, written by protobuf


def any_message(message: Any, rng: random.Random, depth: int = 0) -> Any:
    """Some of the fields of this message, at random."""
    chosen: set[str] = set()
    for field in message.DESCRIPTOR.fields:
        group = field.containing_oneof.name if field.containing_oneof is not None else field.name
        if field.name.endswith("_strindex") or group in chosen or rng.random() < (0.3 if depth > 3 else 0.15):
            continue
        if field.type == field.TYPE_MESSAGE:
            if depth > 9:
                continue
            for _ in range(rng.randint(0, 2) if field.is_repeated else 1):
                target = getattr(message, field.name)
                inner = target.add() if field.is_repeated else target
                inner.SetInParent()
                any_message(inner, rng, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(scalar(field, rng) for _ in range(rng.randint(0, 3)))
        else:
            setattr(message, field.name, scalar(field, rng))
        chosen.add(group)
    return message


def scalar(field: Any, rng: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice(["", "a", 'quote " and \\', "ü\u2028\0", "x" * 130])
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(rng.choice([0, 1, 8, 16]))
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == field.TYPE_DOUBLE:
        return rng.choice([0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf, math.nan, rng.random()])
    if field.type == field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    bits = 32 if "32" in _TYPE_NAMES[field.type] else 64
    signed = _TYPE_NAMES[field.type].startswith(("INT", "S"))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return rng.choice([0, 1, low, high, rng.randint(low, high)])


_FIELD_TYPE = REQUESTS["logs"].DESCRIPTOR.fields[0].__class__
_TYPE_NAMES = {
    getattr(_FIELD_TYPE, name): name.removeprefix("TYPE_") for name in dir(_FIELD_TYPE) if name.startswith("TYPE_")
}


def with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
    return {name: base64.b64decode(item).hex() if name in ids else with_hex_ids(item) for name, item in value.items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(REQUESTS)), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_any_request_comes_back_equal(signal: str, seed: int, numbers: bool, snake: bool) -> None:
    rng = random.Random(seed)
    request = any_message(REQUESTS[signal](), rng)
    value = with_hex_ids(MessageToDict(request, use_integers_for_enums=numbers, preserving_proto_field_name=snake))
    data = orjson.dumps(value)
    same(REQUESTS[signal].FromString(request_from_json(signal, data)), request)
    if value:
        twice = data + b"\n" + json.dumps(value).encode()
        wanted = REQUESTS[signal]()
        wanted.MergeFrom(request)
        wanted.MergeFrom(request)
        same(transcoded("otlp_json", signal, twice), wanted)
        pretty = json.dumps(value, indent=2).encode()
        same(transcoded("otlp_json", signal, pretty), request)


@pytest.mark.heavy
def test_real_telemetry_comes_back_equal(shared_data: Path) -> None:
    files = sorted(shared_data.rglob("*.binpb.gz"))
    assert files
    for file in files:
        signal = file.parent.name
        request = REQUESTS[signal].FromString(gzip.decompress(file.read_bytes()))
        data = orjson.dumps(with_hex_ids(MessageToDict(request)))
        assert REQUESTS[signal].FromString(request_from_json(signal, data)) == request


def test_requests_and_records_may_stand_in_one_file() -> None:
    data = orjson.dumps(REQUEST) + b'\n{"msg":"x"}\n'
    found = transcoded("jsonl", "logs", data)
    bodies = [resource.scope_logs[0].log_records[0].body.string_value for resource in found.resource_logs]
    assert bodies == ["hello", "x"]


def test_a_bad_request_is_named_with_its_line_and_path() -> None:
    data = orjson.dumps(REQUEST) + b"\n" + (RECORD % '{"traceId":"xyz"}').encode() + b"\n{\n"
    assert reason("otlp_json", "logs", data) == (
        "line 2: resourceLogs[0].scopeLogs[0].logRecords[0].traceId: 'xyz' is not hex; 1 further bad line"
    )


def test_deep_nesting_is_refused_not_followed() -> None:
    deep = '{"arrayValue":{"values":[' * 300 + "{}" + "]}}" * 300
    assert "nested too deeply" in reason("otlp_json", "logs", (RECORD % f'{{"body":{deep}}}').encode())
