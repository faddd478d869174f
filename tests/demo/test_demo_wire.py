"""Messages written in bulk against protobuf's own reader and writer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList

from demo.demo_parsed import attributes_of
from lakerunner_demo.noise import below, draw, spread, wave
from lakerunner_demo.wire import (
    Column,
    Form,
    Hole,
    Value,
    constant,
    decimal_column,
    encode,
    fixed_column,
    hex_column,
    key_value,
    key_values,
    varint_column,
    words_column,
)

SIZES = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20)
_VALUES = st.recursive(
    st.text(alphabet=st.characters(exclude_characters="{}", exclude_categories=["Cs"]))
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)


def texts(column: Column) -> list[bytes]:
    return encode([Hole("x")], lambda _: column, len(column.matrix))


@given(SIZES)
def test_numbers_as_text_and_varints(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert texts(decimal_column(array)) == [str(n).encode() for n in numbers]
    part = key_value(1, "n", Hole("n", Form.INT))
    encoded = encode([part], lambda _: varint_column(array), len(numbers))
    assert [KeyValueList.FromString(data).values[0].value.int_value for data in encoded] == numbers
    assert encoded == [KeyValueList.FromString(data).SerializeToString(deterministic=True) for data in encoded]


def test_decimal_points_and_hexadecimal_digits() -> None:
    assert texts(decimal_column(np.array([0, 5, 99, 100, 123456]), point=2)) == [
        b"0.00", b"0.05", b"0.99", b"1.00", b"1234.56",
    ]  # fmt: skip
    assert texts(hex_column(np.array([0x0123456789ABCDEF], ">u8").view(np.uint64))) == [b"0123456789abcdef"]


@given(_VALUES)
def test_every_attribute_value_comes_back(value: Value) -> None:
    data = constant(key_value(1, "key", value))
    parsed = KeyValueList.FromString(data)
    assert attributes_of(parsed.values) == {"key": value}
    assert parsed.SerializeToString(deterministic=True) == data


@given(st.lists(st.text(max_size=300), min_size=1, max_size=12), st.data())
def test_rows_of_different_widths_keep_their_lengths(words: list[str], data: st.DataObject) -> None:
    index = np.array(data.draw(st.lists(st.integers(0, len(words) - 1), min_size=1, max_size=12)))
    doubles = index / 7
    held = {"word": words_column(tuple(words), index), "half": fixed_column(doubles)}
    attributes: dict[str, Value] = {
        "said": "<{word}> and {word}",
        "deep": {"list": ["{word}", Hole("half", Form.DOUBLE)]},
        "true": True,
    }
    encoded = encode(key_values(1, attributes), lambda hole: held[hole.name], len(index))
    for message, at, double in zip(encoded, index, doubles, strict=True):
        word = words[at]
        parsed = KeyValueList.FromString(message)
        assert attributes_of(parsed.values) == {
            "said": f"<{word}> and {word}",
            "deep": {"list": [word, double]},
            "true": True,
        }
        assert parsed.SerializeToString(deterministic=True) == message


def test_a_part_with_a_hole_is_no_constant() -> None:
    assert (
        constant(key_value(1, "k", 1))
        == KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=1))]).SerializeToString()
    )
    with pytest.raises(TypeError, match="hole"):
        constant(key_value(1, "k", "{x}"))


def test_draws_are_even_and_independent() -> None:
    keys = np.arange(100_000, dtype=np.uint64)
    first, second = below(draw(1, "a", keys), 10), below(draw(1, "b", keys), 10)
    together = np.bincount(first * 10 + second, minlength=100)
    assert 850 < together.min() <= together.max() < 1150
    assert (draw(1, "a", keys) == draw(1, "a", keys[::-1])[::-1]).all()
    assert not (draw(1, "a", keys) == draw(2, "a", keys)).any()
    factors = spread(draw(1, "c", keys))
    assert abs(np.median(factors) - 1024) < 15
    assert 1.8 * 1024 < np.quantile(factors, 0.9) < 2.1 * 1024


def test_waves_are_smooth() -> None:
    at = np.arange(0, 10_000, 10)
    heights = wave(3, "tide", at, 1000)
    assert heights.min() >= 0
    assert 300 < heights.max() <= 1000
    assert np.abs(np.diff(heights)).max() <= 11
