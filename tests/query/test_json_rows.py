"""Rows as JSON: every type of an answer, exact, as docs/formats/lakeql.md states it."""

from __future__ import annotations

import json
import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.row_text import json_rows


def batch_of(sql: str) -> pa.RecordBatch:
    (batch,) = duckdb.connect().sql(sql).to_arrow_table().combine_chunks().to_batches()
    return batch


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NULL", "null"),
        ("true", "true"),
        ("9007199254740993", "9007199254740993"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615::UBIGINT", "18446744073709551615"),
        ("sum(9223372036854775807::BIGINT) OVER () + 1", "9223372036854775808"),
        ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
        ("1.50::DECIMAL(9, 2)", "1.50"),
        ("-0.001::DECIMAL(9, 3)", "-0.001"),
        ("0.1::DOUBLE", "0.1"),
        ("1.0::DOUBLE", "1.0"),
        ("1e22::DOUBLE", "1e+22"),
        ("5e-324::DOUBLE", "5e-324"),
        ("0.1::FLOAT", "0.1"),
        ("'nan'::DOUBLE", '"NaN"'),
        ("'inf'::DOUBLE", '"Infinity"'),
        ("'-inf'::FLOAT", '"-Infinity"'),
        ("'plain'", '"plain"'),
        ("''", '""'),
        ("'q\"\\' || chr(10) || chr(1) || 'é😀'", '"q\\"\\\\\\n\\u0001é😀"'),
        ("'\\xAA\\x00'::BLOB", '"aa00"'),
        ("TIMESTAMP_NS '2024-01-01 00:00:00.123456789'", '"2024-01-01T00:00:00.123456789Z"'),
        ("TIMESTAMP '2024-01-01 00:00:00.5'", '"2024-01-01T00:00:00.500000000Z"'),
        ("TIMESTAMP_S '1969-12-31 23:59:59'", '"1969-12-31T23:59:59.000000000Z"'),
        ("TIMESTAMP_MS '2024-01-01 00:00:00.5'", '"2024-01-01T00:00:00.500000000Z"'),
        ("TIMESTAMPTZ '2024-01-01 02:00:00+02'", '"2024-01-01T00:00:00.000000000Z"'),
        ("TIMESTAMP '9999-12-31 23:59:59.999999'", '"9999-12-31T23:59:59.999999000Z"'),
        ("'infinity'::TIMESTAMP", '"infinity"'),
        ("'-infinity'::TIMESTAMP", '"-infinity"'),
        ("DATE '2024-02-29'", '"2024-02-29"'),
        ("TIME '01:02:03.5'", '"01:02:03.500000"'),
        ("INTERVAL '14 months 3 days'", '"P14M3D"'),
        ("INTERVAL '-90 seconds'", '"PT-90S"'),
        ("INTERVAL '1.5 seconds'", '"PT1.5S"'),
        ("INTERVAL 0 SECOND", '"PT0S"'),
        ("UUID '00000000-0000-0000-0000-00000000000A'", '"00000000-0000-0000-0000-00000000000a"'),
        ("[1, NULL, 3]", "[1,null,3]"),
        ("[]::INTEGER[]", "[]"),
        ("NULL::INTEGER[]", "null"),
        ("[['a'], NULL]", '[["a"],null]'),
        ("[1, NULL]::INTEGER[2]", "[1,null]"),
        ("[TIMESTAMP_NS '2024-01-01 00:00:00.123456789']", '["2024-01-01T00:00:00.123456789Z"]'),
        ("{'a': 1, 'b': {'c': NULL}}", '{"a":1,"b":{"c":null}}'),
        ("NULL::STRUCT(a INTEGER)", "null"),
        ("MAP {'k': 'v', 'n': NULL}", '{"k":"v","n":null}'),
        ("MAP {1: 'x'}", '{"1":"x"}'),
        ("MAP {'nan'::DOUBLE: 1, 0.5::DOUBLE: 2}", '{"NaN":1,"0.5":2}'),
        ("MAP {['a']: [1, 2]}", '{"[\\"a\\"]":[1,2]}'),
        ("MAP {}::MAP(VARCHAR, VARCHAR)", "{}"),
        ("'{\"a\":1}'::JSON", '"{\\"a\\":1}"'),
        ("'x'::ENUM('x', 'y')", '"x"'),
    ],
)
def test_every_type(expression: str, expected: str) -> None:
    sql = f"SELECT {expression} AS v UNION ALL SELECT NULL"
    first, second = json_rows(batch_of(f"SELECT * FROM ({sql})"))
    assert first.decode() == f'{{"v":{expected}}}'
    assert second == b'{"v":null}'
    json.loads(first)


def test_names_are_escaped_and_rows_stay_in_order() -> None:
    batch = batch_of('SELECT x AS "a""b", x * 2 AS "é" FROM range(3) t(x) ORDER BY x')
    assert list(json_rows(batch)) == [f'{{"a\\"b":{n},"é":{2 * n}}}'.encode() for n in range(3)]


def test_slices_and_empty_batches() -> None:
    batch = batch_of("SELECT [x, x] AS l, MAP {'k': x} AS m, {'s': x} AS s FROM range(10) t(x) ORDER BY x")
    assert list(json_rows(batch.slice(7, 2))) == [
        b'{"l":[7,7],"m":{"k":7},"s":{"s":7}}',
        b'{"l":[8,8],"m":{"k":8},"s":{"s":8}}',
    ]
    assert list(json_rows(batch.slice(0, 0))) == []


def same(value: Any, read: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return read == ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return bool(value == read)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "i": st.none() | st.integers(-(2**63), 2**63 - 1),
                "f": st.none() | st.floats(),
                "s": st.none() | st.text(),
                "l": st.none() | st.lists(st.none() | st.text()),
            }
        )
    )
)
def test_what_is_written_reads_back(rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.string()))])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    read = [json.loads(row) for row in json_rows(batch)]
    assert len(read) == len(rows)
    assert all(same(row[key], back[key]) for row, back in zip(rows, read, strict=True) for key in row)
