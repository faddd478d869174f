"""Rows as CSV: every type of an answer as docs/formats/sql_api.md states it, and read back by others."""

from __future__ import annotations

import csv
import io

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.row_text import csv_header, csv_rows


def cell(expression: str) -> str:
    (batch,) = duckdb.connect().sql(f"SELECT {expression} AS x, 0 AS last").to_arrow_table().to_batches()
    line = csv_rows(batch).decode()
    assert line.endswith(",0\n")
    return line.removesuffix(",0\n")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NULL", ""),
        ("NULL::VARCHAR", ""),
        ("NULL::INTEGER[]", ""),
        ("''", '""'),
        ("'plain'", "plain"),
        ("'null'", "null"),
        ("'a,b'", '"a,b"'),
        ("'say \"x\"'", '"say ""x"""'),
        ("'two' || chr(10) || 'lines'", '"two\nlines"'),
        ("' padded '", '" padded "'),
        ("true", "true"),
        ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
        ("1.50::DECIMAL(9, 2)", "1.50"),
        ("0.1::DOUBLE", "0.1"),
        ("'nan'::DOUBLE", "NaN"),
        ("'inf'::DOUBLE", "Infinity"),
        ("'-inf'::DOUBLE", "-Infinity"),
        ("TIMESTAMP_NS '2024-05-01 12:00:00.123456789'", "2024-05-01T12:00:00.123456789Z"),
        ("DATE '2024-05-01'", "2024-05-01"),
        ("INTERVAL '1 month 2 days'", "P1M2D"),
        ("'\\xAB'::BLOB", "ab"),
        ("[1, NULL, 3]", '"[1,null,3]"'),
        ("[1]", "[1]"),
        ("{'a': 'x', 'b': 1.5::DOUBLE}", '"{""a"":""x"",""b"":1.5}"'),
        ("MAP {'k': 'v'}", '"{""k"":""v""}"'),
    ],
)
def test_values(expression: str, expected: str) -> None:
    assert cell(expression) == expected


def test_names_are_quoted_as_values_are() -> None:
    assert csv_header(["plain", "count_star()", 'a "b"', "x,y"]) == b'plain,count_star(),"a ""b""","x,y"\n'


def test_a_batch_without_rows_is_nothing() -> None:
    assert csv_rows(pa.record_batch({"x": pa.array([], pa.string())})) == b""


def test_slices_give_their_own_rows() -> None:
    batch = pa.record_batch({"x": pa.array(["a", None, "c"]), "l": pa.array([[1], [2, 3], None])})
    assert csv_rows(batch.slice(1, 2)) == b',"[2,3]"\nc,\n'


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_any_text_is_read_back(rows: list[tuple[str | None, int | None]]) -> None:
    """By Python's reader, to which a null and an empty text are the same."""
    texts, numbers = pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int64())
    written = csv_rows(pa.record_batch({"t": texts, "n": numbers})).decode()
    read = list(csv.reader(io.StringIO(written, newline="")))
    assert read == [[text or "", "" if number is None else str(number)] for text, number in rows]


def test_duckdb_reads_it_back_nulls_and_all(tmp_path: object) -> None:
    texts = [None, "", "a,b", 'q"q', "line\nline", " x", "NaN", "ß\u2028"]
    batch = pa.record_batch({"t": pa.array(texts), "n": pa.array(range(len(texts)))})
    path = f"{tmp_path}/rows.csv"
    with open(path, "wb") as file:
        file.write(csv_header(["t", "n"]) + csv_rows(batch))
    read = duckdb.connect().execute(
        "SELECT t FROM read_csv(?, header = true, all_varchar = true, quote = '\"', escape = '\"', "
        "allow_quoted_nulls = false, new_line = '\\n') ORDER BY n::INT",
        [path],
    )
    assert [row[0] for row in read.fetchall()] == texts
