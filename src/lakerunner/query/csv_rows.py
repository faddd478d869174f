"""Rows as CSV: RFC 4180 with line feeds. docs/formats/sql_api.md states the form.

A null is nothing at all, an empty text is `""`: so the two can be told apart. Numbers, times and ids are written as in
JSON, without its quotes; lists, structs and maps as JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakerunner.query.rows import is_text, json_texts, plain_column

_TEXT = pa.large_string()
_NEEDS_QUOTES = r'[",\r\n]|^\s|\s$|^$'


def csv_header(names: Sequence[str]) -> bytes:
    return _lines([_quoted_texts(pa.array([name], _TEXT)) for name in names])


def csv_rows(batch: pa.RecordBatch) -> bytes:
    """A line for each row, in the order of the batch."""
    return _lines([_cells(column) for column in batch.columns]) if batch.num_rows else b""


def _lines(columns: Sequence[pa.Array]) -> bytes:
    filled = [pc.fill_null(column, "") for column in columns]
    rows = pc.binary_join_element_wise(*filled, pa.scalar(",", _TEXT)).cast(pa.large_binary())
    return b"".join(row + b"\n" for row in rows.to_pylist())


def _cells(column: pa.Array) -> pa.Array:
    column = plain_column(column)
    if is_text(column.type):
        return _quoted_texts(column.cast(_TEXT))
    if pt.is_null(column.type):
        return column.cast(_TEXT)
    texts = json_texts(column)
    cells = _quoted_texts(texts) if pt.is_nested(column.type) else pc.utf8_trim(texts, '"')
    return pc.if_else(column.is_valid(), cells, pa.scalar(None, _TEXT))


def _quoted_texts(texts: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(texts, _NEEDS_QUOTES)
    mark = pa.scalar('"', _TEXT)
    quoted = pc.binary_join_element_wise(mark, pc.replace_substring(texts, '"', '""'), mark, pa.scalar("", _TEXT))
    return pc.if_else(special, quoted, texts)
