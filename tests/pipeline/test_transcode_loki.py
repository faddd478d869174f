"""Loki pushes to OTLP logs. The protobuf is written here by hand, from Loki's own numbering of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.protobuf import varint
from lakerunner.model.streams.log_record import LOKI_STREAM, LOKI_STREAM_SERVICE
from lakerunner.pipeline.transcode.any_values import Unfit
from lakerunner.pipeline.transcode.loki import parse_labels
from pipeline.transcode_oracle import REQUESTS, SPAN_ID, TRACE_ID, add, fill, reason, same, transcoded

NS = 1_700_000_000_123_456_789
Entry = tuple[int, str, Mapping[str, str]]
Stream = tuple[Mapping[str, str], Sequence[Entry]]


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def framed(*messages: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in messages)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def push_protobuf(*streams: Stream) -> bytes:
    out = b""
    for labels, entries in streams:
        text = "{" + ", ".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}"
        data = field(1, text.encode())
        for ns, line, metadata in entries:
            seconds, nanos = divmod(ns, 10**9)
            time = number(1, seconds) + number(2, nanos)
            pairs = b"".join(field(3, field(1, k.encode()) + field(2, v.encode())) for k, v in metadata.items())
            data += field(2, field(1, time) + field(2, line.encode()) + pairs)
        out += field(1, data + number(3, 12345))
    return out


def push_json(*streams: Stream) -> bytes:
    return orjson.dumps(
        {
            "streams": [
                {
                    "stream": labels,
                    "values": [
                        [str(ns), line, metadata] if metadata else [str(ns), line] for ns, line, metadata in entries
                    ],
                }
                for labels, entries in streams
            ]
        }
    )


PUSHES = {"lokipb": push_protobuf, "lokijson": push_json}


def request(*streams: tuple[Mapping[str, Any], Sequence[tuple[Mapping[str, Any], str, Mapping[str, Any]]]]) -> Any:
    """Of (resource attributes, records as (fields, body, attributes))."""
    wanted = REQUESTS["logs"]()
    for resource, records in streams:
        mark = LOKI_STREAM_SERVICE if "service.name" in resource else LOKI_STREAM
        resource_logs = wanted.resource_logs.add(schema_url=mark)
        add(resource_logs.resource.attributes, resource)
        scope = resource_logs.scope_logs.add()
        for fields, body, attributes in records:
            record = scope.log_records.add(**fields)
            fill(record.body, body)
            add(record.attributes, attributes)
    return wanted


@pytest.mark.parametrize("name", sorted(PUSHES))
def test_labels_metadata_levels_and_ids(name: str) -> None:
    metadata = {"trace_id": TRACE_ID.hex(), "spanID": SPAN_ID.hex(), "detected_level": "error", "user": "ü"}
    streams: list[Stream] = [
        ({"job": "j", "app": 'a"\n\\', "level": "warn"}, [(NS, "first", metadata), (NS + 1, "", {})]),
        ({"host": "h"}, [(NS + 2, "third", {"trace_id": "xyz", "severity": "loud"})]),
    ]
    wanted = request(
        (
            {"service.name": 'a"\n\\', "job": "j", "app": 'a"\n\\', "level": "warn"},
            [
                (
                    {
                        "time_unix_nano": NS,
                        "severity_text": "error",
                        "severity_number": 17,
                        "trace_id": TRACE_ID,
                        "span_id": SPAN_ID,
                    },
                    "first",
                    metadata,
                ),
                ({"time_unix_nano": NS + 1, "severity_text": "warn", "severity_number": 13}, "", {}),
            ],
        ),
        (
            {"host": "h"},
            [({"time_unix_nano": NS + 2, "severity_text": "loud"}, "third", {"trace_id": "xyz", "severity": "loud"})],
        ),
    )
    same(transcoded(name, "logs", framed(PUSHES[name](*streams))), wanted)
    # Two pushes in one object are as one.
    same(transcoded(name, "logs", framed(PUSHES[name](streams[0]), PUSHES[name](streams[1]))), wanted)


@pytest.mark.parametrize("name", sorted(PUSHES))
def test_the_service_is_the_first_of_its_labels(name: str) -> None:
    order = ["service_name", "service", "app", "job"]
    for place, label in enumerate(order):
        labels = {other: f"is {other}" for other in reversed(order[place:])}
        found = transcoded(name, "logs", framed(PUSHES[name]((labels, [(NS, "x", {})]))))
        assert found.resource_logs[0].resource.attributes[0].key == "service.name"
        assert found.resource_logs[0].resource.attributes[0].value.string_value == f"is {label}"


def test_a_label_named_as_the_attribute_is_not_taken_for_an_added_one() -> None:
    labels = {"service.name": "own", "app": "a"}  # only JSON can have such a name
    found = transcoded("lokijson", "logs", framed(push_json((labels, [(NS, "x", {})]))))
    assert found.resource_logs[0].schema_url == LOKI_STREAM
    assert [pair.key for pair in found.resource_logs[0].resource.attributes] == ["service.name", "app"]


@pytest.mark.parametrize("name", sorted(PUSHES))
def test_a_time_that_otlp_cannot_hold_is_kept(name: str) -> None:
    found = transcoded(name, "logs", framed(PUSHES[name](({"a": "b"}, [(-5, "x", {}), (0, "y", {})]))))
    records = found.resource_logs[0].scope_logs[0].log_records
    assert [record.time_unix_nano for record in records] == [0, 0]
    assert [record.attributes[0].key for record in records] == ["timestamp", "timestamp"]
    assert [record.attributes[0].value.string_value for record in records] == ["-5", "0"]


def test_bytes_that_are_not_utf8_cost_nothing_else() -> None:
    entry = field(1, number(1, 1)) + field(2, b"\xff\xfe") + field(3, field(1, b"k") + field(2, b"\xff"))
    found = transcoded("lokipb", "logs", framed(field(1, field(1, b'{a="\\xff"}') + field(2, entry))))
    record = found.resource_logs[0].scope_logs[0].log_records[0]
    assert record.body.bytes_value == b"\xff\xfe"
    assert record.attributes[0].value.bytes_value == b"\xff"
    assert found.resource_logs[0].resource.attributes[0].value.bytes_value == b"\xff"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", []),
        (" { } ", []),
        ('{a="b"}', [("a", "b")]),
        ('{a="b",}', [("a", "b")]),
        ('{ a = "b" , c_1="d,}=" }', [("a", "b"), ("c_1", "d,}=")]),
        ('{a="\\"\\\\\\n\\t\\u00fc\\U0001F600\\303\\274"}', [("a", '"\\\n\tü😀ü')]),
        ("{a=`raw \\n`}", [("a", "raw \\n")]),
        ('{"dotted.name"="x", ns:b.c="y"}', [("dotted.name", "x"), ("ns:b.c", "y")]),
        ('{a="1",a="2"}', [("a", "1"), ("a", "2")]),
        ('{a=""}', [("a", "")]),
        ('{a="\\q\\x4\\ud800\n"}', [("a", "\\q\\x4\\ud800\n")]),
    ],
)
def test_labels(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(parse_labels(text.encode())) == expected
    assert list(parse_labels(text.encode() + b" " * 3000)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", " do not start with a brace"),
        ("a", " do not start with a brace"),
        ('{a="b"', ": unexpected end of input inside braces at byte 6"),
        ('{a="b}', ": unterminated quoted string at byte 3"),
        ("{a=b}", ": expected string at byte 3"),
        ('{a!="b"}', ": expected label matching operator at byte 2"),
        ('{"a"}', ": expected label matching operator at byte 4"),
        ('{ü="b"}', ": unexpected character inside braces: 'ü' at byte 1"),
        ('{a="ü" c="d"}', ': expected "," or "}" at byte 8'),
        ('{a="b"}x', ": nothing may follow the labels at byte 7"),
        ("{,}", ': expected identifier or "}" at byte 1'),
        ('{1a="b"}', ": unexpected character inside braces: '1' at byte 1"),
        ('{a="b",,}', ': expected identifier or "}" at byte 7'),
    ],
)
def test_what_are_no_labels(text: str, message: str) -> None:
    with pytest.raises(Unfit) as raised:
        parse_labels(text.encode())
    assert str(raised.value) == f"labels {text!r}{message}"


LABEL = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("level", "severity"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(PUSHES)),
    st.dictionaries(LABEL, TEXT, min_size=1),
    st.lists(st.tuples(st.integers(1, 2**62), TEXT), min_size=1),
)
def test_any_lines_come_back_equal(name: str, labels: dict[str, str], lines: list[tuple[int, str]]) -> None:
    stream = (labels, [(ns, line, {"x": line}) for ns, line in lines])
    found = transcoded(name, "logs", framed(PUSHES[name](stream)))
    records = found.resource_logs[0].scope_logs[0].log_records
    assert [(record.time_unix_nano, record.body.string_value) for record in records] == lines
    kept = {pair.key: pair.value.string_value for pair in found.resource_logs[0].resource.attributes}
    assert {key: kept[key] for key in labels} == labels


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("lokipb", b"\x05ab", "byte 0: a message of 5 bytes, but only 2 are left"),
        ("lokipb", framed(b"") + b"\xff" * 6, "byte 1: expected the length of a message"),
        ("lokipb", framed(b"\xff\xff"), "the message at byte 0: not a Loki push request"),
        ("lokipb", framed(field(1, field(1, b"a"))), "the message at byte 0: labels 'a' do not start with a brace"),
        ("lokijson", framed(b"{}", b"[", b"5"), "the message at byte 0: a Loki push request must be an object"),
        ("lokijson", framed(b'{"streams":[]}', b"["), "the message at byte 15: column 2: not JSON"),
        (
            "lokijson",
            framed(b'{"streams":[{"stream":{}}]}'),
            "the message at byte 0: stream 0: expected an object with",
        ),
        (
            "lokijson",
            framed(b'{"streams":[{"values":[["1","x"],["x","y"]]}]}'),
            "the message at byte 0: stream 0, value 1: time is not",
        ),
        (
            "lokijson",
            framed(b'{"streams":[{"values":[["1",2]]}]}'),
            "the message at byte 0: stream 0, value 0: expected [time, line]",
        ),
        (
            "lokijson",
            framed(b'{"streams":[{"stream":"a","values":[]}]}'),
            "the message at byte 0: stream 0: expected an object of labels, found str",
        ),
    ],
)
def test_what_is_no_push_is_named_with_its_place(name: str, data: bytes, expected: str) -> None:
    assert reason(name, "logs", data).startswith(expected)


def test_loki_holds_logs_alone() -> None:
    assert reason("lokipb", "metrics", framed(b"")) == "Loki push requests contain logs, not metrics"
