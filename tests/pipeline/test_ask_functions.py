"""Our functions for Spark give what DuckDB's own give: of any text, number and typed JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakerunner.model.typed_json import KeyValues, encode_value
from lakerunner.pipeline.ask import spark_functions
from lakerunner.pipeline.ask.scan_rows import double_text, typed_text
from lakerunner.query.sandbox.instance import MACROS

NUMBERS = st.text(alphabet="0123456789+-._eExXbBaAfF infNtTyY\t", max_size=12) | st.integers().map(str)
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(macro)
        yield connection


def asked(plain: duckdb.DuckDBPyConnection, expression: str, value: Any) -> Any:
    (found,) = plain.execute(f"SELECT {expression} FROM (SELECT $1 AS x)", [value]).fetchone() or (None,)
    return found


@settings(max_examples=400, deadline=None)
@given(text=NUMBERS)
@example(text="9223372036854775807")
@example(text="-9223372036854775808.4")
@example(text="9223372036854775807.5")
@example(text="1_0.5e1")
@example(text="5.e1")
@example(text=".5")
@example(text="-0.5")
@example(text="0x1F")
@example(text="1e400")
def test_texts_are_the_same_whole_numbers(plain: duckdb.DuckDBPyConnection, text: str) -> None:
    assert spark_functions.whole_number(text) == asked(plain, "try_cast(CAST(x AS VARCHAR) AS BIGINT)", text)


@settings(max_examples=400, deadline=None)
@given(text=NUMBERS)
@example(text="-Infinity")
@example(text="nan")
@example(text="1_0")
@example(text="1e400")
@example(text="4.9e-325")
def test_texts_are_the_same_doubles(plain: duckdb.DuckDBPyConnection, text: str) -> None:
    found, expected = spark_functions.double_number(text), asked(plain, "try_cast(CAST(x AS VARCHAR) AS DOUBLE)", text)
    assert found == expected or (math.isnan(found or 0) and math.isnan(expected or 0))


@settings(max_examples=200, deadline=None)
@given(number=st.floats(allow_nan=False), digits=st.integers(0, 15))
@example(number=2.675, digits=2)
@example(number=0.49999999999999994, digits=0)
@example(number=-2.5, digits=0)
def test_numbers_are_rounded_the_same(plain: duckdb.DuckDBPyConnection, number: float, digits: int) -> None:
    (found,) = spark_functions.rounded(pa.array([number]), pa.array([digits])).to_pylist()
    assert found == asked(plain, f"round(CAST(x AS DOUBLE), {digits})", number)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
@example(text="STRAßE İ ΑΣ ŉ ǰ")
def test_case_is_folded_the_same(plain: duckdb.DuckDBPyConnection, text: str) -> None:
    assert spark_functions.lower(pa.array([text])).to_pylist() == [asked(plain, "lower(CAST(x AS VARCHAR))", text)]
    assert spark_functions.upper(pa.array([text])).to_pylist() == [asked(plain, "upper(CAST(x AS VARCHAR))", text)]


@pytest.mark.parametrize("pattern", ["a.b", "^b", r"\d+", "é$", "(?i)A", r"\bx", "[^a]", r"\pL+"])
def test_patterns_match_the_same(plain: duckdb.DuckDBPyConnection, pattern: str) -> None:
    texts = ["a\nb", "axb", "b", "A", "ß7", "été", "x y", ""]
    found = spark_functions.matches(pa.array(texts), pa.array([pattern] * 8), pa.array([""] * 8)).to_pylist()
    assert found == [asked(plain, f"regexp_matches(CAST(x AS VARCHAR), '{pattern}')", text) for text in texts]


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | TEXTS | st.binary(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(lambda pairs: KeyValues(tuple(pairs)))
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(value=VALUES)
@example(value=KeyValues((("bytesValue", "zz"),)))
@example(value=KeyValues((("kvlistValue", KeyValues(())),)))
def test_typed_json_is_the_same_text(plain: duckdb.DuckDBPyConnection, value: Any) -> None:
    text = encode_value(value)
    assert typed_text(text) == asked(plain, "typed_text(CAST(x AS VARCHAR))", text)


@settings(max_examples=200, deadline=None)
@given(number=st.floats())
def test_doubles_have_the_same_text(plain: duckdb.DuckDBPyConnection, number: float) -> None:
    assert double_text(number) == asked(plain, "double_text(CAST(x AS DOUBLE))", number)
