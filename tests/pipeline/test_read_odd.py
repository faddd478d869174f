"""Odd yet right bytes: what protobuf merges or lets win, and which bytes are UTF-8."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lakerunner.pipeline.read.wire import is_utf8, varint
from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def text(content: bytes) -> bytes:
    return field(1, content)


def number(value: int) -> bytes:
    return b"\x18" + varint(value)


def array(*values: bytes) -> bytes:
    return field(5, b"".join(field(1, value) for value in values))


def kvlist(**values: bytes) -> bytes:
    return field(6, b"".join(field(1, field(1, key.encode()) + field(2, value)) for key, value in values.items()))


def pair(*values: bytes) -> bytes:
    return field(1, b"key") + b"".join(field(2, value) for value in values)


TWICE = {
    "two strings": ([text(b"first"), text(b"second")], '"second"'),
    "string, then number": ([text(b"first"), number(2)], "2"),
    "two arrays are merged": ([array(number(1)), array(number(2))], "[1,2]"),
    "two kvlists are merged": ([kvlist(a=number(1)), kvlist(a=number(2))], '{"a":1,"a":2}'),
    "array, string, array": ([array(number(1)), text(b"x"), array(number(3))], "[3]"),
    "a value, then an empty one": ([number(1), b""], "1"),
}


@pytest.mark.parametrize(("values", "wanted"), TWICE.values(), ids=TWICE)
def test_values_given_twice(values: list[bytes], wanted: str) -> None:
    """As two values of a pair, as two bodies, inside one value, and deep inside others."""
    in_one = b"".join(values)
    attributes = [pair(*values), pair(in_one), pair(array(in_one)), pair(kvlist(k=in_one))]
    bodies = b"".join(field(5, value) for value in values)
    record = bodies + b"".join(field(6, attribute) for attribute in attributes)
    owner = field(1, field(1, pair(*values)))
    data = field(1, owner + field(2, field(1, field(3, pair(in_one))) + field(2, record)))
    made, files = make(raw_of(data))
    (row,) = actual(made.segments, files)
    assert_same([row], expected([decoded(data)]))
    assert row["attributes"] == {"key": [wanted, wanted, f"[{wanted}]", f'{{"k":{wanted}}}']}
    assert row["resource_attributes"] == row["scope_attributes"] == {"key": [wanted]}
    assert row["body"] == (None if wanted.startswith('"') else wanted)


def test_heads_given_twice_and_last_are_merged() -> None:
    """Scope and resource may come in parts, and behind what they are about."""
    scope = [
        field(1, field(1, b"old") + field(3, pair(number(1)))),
        field(1, field(1, b"new") + field(3, pair(number(2)))),
    ]
    scope_logs = field(2, scope[0] + field(2, b"") + field(3, b"a") + scope[1] + field(3, b"b"))
    service = field(1, b"service.name") + field(2, text(b"late"))
    data = field(1, field(1, b"\x10\x05") + scope_logs + field(1, field(1, service) + b"\x10\x07") + field(3, b"url"))
    made, files = make(raw_of(data))
    (row,) = actual(made.segments, files)
    assert_same([row], expected([decoded(data)]))
    assert (row["service_name"], row["scope_name"], row["scope_schema_url"]) == ("late", "new", "b")
    assert (row["resource_dropped_attributes"], row["scope_attributes"]) == (7, {"key": ["1", "2"]})


def test_the_last_of_several_plain_fields_wins() -> None:
    record = b"\x10\x05\x10\x09" + field(3, b"a") + field(3, b"b") + field(9, b"x") + field(9, b"y")
    record += field(6, field(1, b"old") + field(2, number(1)) + field(1, b"new"))
    data = field(1, field(2, field(2, record)))
    made, files = make(raw_of(data))
    (row,) = actual(made.segments, files)
    assert_same([row], expected([decoded(data)]))
    assert (row["severity_number"], row["severity_text"], row["trace_id"]) == (9, "b", b"y")
    assert row["attributes"] == {"new": ["1"]}


def test_utf8_is_what_python_takes_for_it() -> None:
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF]
    edges += [0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    sequences = [bytes(parts) for size in (1, 2, 3) for parts in itertools.product(edges, repeat=size)]
    sequences += [
        bytes((lead, second, 0x80, last)) for lead in edges for second in edges for last in (0x7F, 0x80, 0xBF)
    ]
    for sequence in sequences:
        try:
            sequence.decode()
            well_formed = True
        except UnicodeDecodeError:
            well_formed = False
        data = np.frombuffer(b"a" + sequence + b"\x80", np.uint8)
        assert is_utf8(data, 1, 1 + len(sequence)) == well_formed, sequence
