"""Typed JSON: every OTLP value comes back with its type, and the jitted writer writes the same text as the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from lakerunner.model.errors import Corrupt
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.walk import read_value
from lakerunner.pipeline.steps.json_text import put_value, room, stack

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.one_of(st.sampled_from(["a", "bytesValue", "doubleValue", "kvlistValue", "bytesvalue", ""]), texts)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), texts, st.binary(max_size=10)
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.tuples(names, inner), max_size=3).map(lambda pairs: KeyValues(tuple(pairs))),
    ),
    max_leaves=12,
)

EXAMPLES = [
    ("text", '"text"'),
    ('"\\/\b\f\n\r\t\x00\x1f\x7fé\u2028😀', '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7fé\u2028😀"'),
    (42, "42"),
    (-(2**63), "-9223372036854775808"),
    (42.0, "42.0"),
    (-0.0, "-0.0"),
    (1e16, "1e+16"),
    (0.1, "0.1"),
    (math.nan, '{"doubleValue":"NaN"}'),
    (math.inf, '{"doubleValue":"Infinity"}'),
    (-math.inf, '{"doubleValue":"-Infinity"}'),
    (True, "true"),
    (None, "null"),
    (b"\x00\xff", '{"bytesValue":"AP8="}'),
    (b"", '{"bytesValue":""}'),
    ((), "[]"),
    ((1, 1.0, "1", (b"a",)), '[1,1.0,"1",[{"bytesValue":"YQ=="}]]'),
    (KeyValues(()), "{}"),
    (KeyValues((("b", 1), ("a", None), ("b", 2))), '{"b":1,"a":null,"b":2}'),
    (KeyValues((("bytesValue", "AP8="),)), '{"kvlistValue":{"bytesValue":"AP8="}}'),
    (KeyValues((("kvlistValue", KeyValues(())),)), '{"kvlistValue":{"kvlistValue":{}}}'),
    (KeyValues((("bytesValue", 1), ("a", 2))), '{"bytesValue":1,"a":2}'),
]


@pytest.mark.parametrize(("value", "text"), EXAMPLES, ids=[text for _, text in EXAMPLES])
def test_examples(value: Value, text: str) -> None:
    assert encode_value(value) == text
    assert written(value) == text
    assert same(decode_value(text), value)


@settings(max_examples=400, deadline=None)
@given(values)
def test_any_value_comes_back_with_its_type(value: Value) -> None:
    text = encode_value(value)
    assert same(decode_value(text), value)
    assert written(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "Infinity",
        '{"bytesValue":"%%"}',
        '{"bytesValue":1}',
        '{"doubleValue":"1"}',
        '{"kvlistValue":[]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_typed_json_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="not typed JSON"):
        decode_value(text)


def same(one: Value, other: Value) -> bool:
    """Equal in type and value; NaN equals NaN, and 0.0 is not -0.0."""
    return repr(one) == repr(other)


@njit
def write(data: Any, end: Any, out: Any, levels: Any) -> Any:
    return put_value(data, read_value(data, np.int64(0), end), out, np.int64(0), levels)


def written(value: Value) -> str:
    """The text that the jitted writer makes of the value's protobuf."""
    message = AnyValue()
    fill(message, value)
    wire = message.SerializeToString()
    data = np.frombuffer(wire + bytes(PADDING), np.uint8).copy()
    out = np.zeros(room(len(wire)), np.uint8)
    end = write(data, len(wire), out, stack())
    return out[:end].tobytes().decode()


def fill(message: Any, value: Value) -> None:
    match value:
        case bool():
            message.bool_value = value
        case int():
            message.int_value = value
        case float():
            message.double_value = value
        case str():
            message.string_value = value
        case bytes():
            message.bytes_value = value
        case tuple():
            message.array_value.SetInParent()
            for item in value:
                fill(message.array_value.values.add(), item)
        case KeyValues(pairs):
            message.kvlist_value.SetInParent()
            for key, item in pairs:
                fill(message.kvlist_value.values.add(key=key).value, item)
