"""Rows as JSON (one object per row, for NDJSON, SSE and JSON arrays) and as CSV. docs/formats/lakeql.md and sql_api.md
state the forms.

Numbers are written with all their digits, including those that a double cannot hold. A column is converted as a whole,
by Arrow and orjson; a nested one from the JSON of its parts.

CSV is RFC 4180 with line feeds. A null is an empty field, an empty text is `""`, so that they differ. Numbers, times
and ids are written as in JSON without quotes; lists, structs and maps as JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_TEXT = pa.large_string()
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_ZEROS = {"s": ".000000000", "ms": "000000", "us": "000", "ns": ""}
_INFINITE = 2**63 - 1  # how DuckDB exports an infinite time
_SECOND_NS = 1_000_000_000
_NEEDS_QUOTES = r'[",\r\n]|^\s|\s$|^$'


def json_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield one JSON object per row, without a line end, in the order of the batch."""
    objects = _objects(batch.schema.names, batch.columns, batch.num_rows)
    return iter(objects.cast(pa.large_binary()).to_pylist())


def _objects(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if not columns:
        return pa.array(["{}"] * rows, _TEXT)
    parts: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        opening = "," if parts else "{"
        parts += [f"{opening}{orjson.dumps(name).decode()}:", json_texts(column)]
    return pc.binary_join_element_wise(*(_large(part) for part in parts), _large("}"), _large(""))


def json_texts(column: pa.Array) -> pa.Array:
    """Return the JSON of each value, `null` where there is none."""
    column = plain_column(column)
    if pt.is_null(column.type):
        return pa.array(["null"] * len(column), _TEXT)
    write = next(write for matches, write in _WRITERS if matches(column.type))
    return pc.fill_null(_large(write(column)), "null")


def plain_column(column: pa.Array) -> pa.Array:
    """Return the column without dictionary encoding and extension type."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _plain(column: pa.Array) -> pa.Array:
    """Write numbers and booleans, whose text is JSON already."""
    return column.cast(pa.string())


def _doubles(column: pa.Array) -> pa.Array:
    """Write the shortest digits that read back the same. JSON has no NaN and infinities: those are strings."""
    finite = pc.fill_null(pc.is_finite(column), False)
    numbers = pc.if_else(finite, column, pa.scalar(0.0, column.type)).to_numpy(zero_copy_only=False)
    digits = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",") if len(column) else []
    texts = pa.array(digits, pa.binary()).cast(pa.string())
    if pc.all(finite).as_py():
        return texts
    named = [_UNBOUNDED.get(value, '"NaN"') for value in column.filter(pc.invert(finite)).to_pylist()]
    return pc.replace_with_mask(texts, pc.invert(finite), pa.array(named, pa.string()))


_UNBOUNDED = {None: None, float("inf"): '"Infinity"', float("-inf"): '"-Infinity"'}


def _strings(column: pa.Array) -> pa.Array:
    texts = _large(column)
    quoted = _quoted(texts)
    special = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPE), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [orjson.dumps(value).decode() for value in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, _TEXT))


def _timestamps(column: pa.Array) -> pa.Array:
    """Write ISO 8601 with nine digits of a second and Z."""
    unit = column.type.unit
    ticks = column.cast(pa.int64())
    far = pc.fill_null(pc.or_(pc.equal(ticks, _INFINITE), pc.equal(ticks, -_INFINITE)), False)
    near = pc.if_else(far, pa.scalar(0, pa.int64()), ticks).cast(pa.timestamp(unit))
    printed = pc.replace_substring(near.cast(pa.string()), " ", "T", max_replacements=1)
    clock = pc.binary_join_element_wise(printed, f"{_ZEROS[unit]}Z", "")
    if pc.any(far).as_py():
        names = ["infinity" if value > 0 else "-infinity" for value in ticks.filter(far).to_pylist()]
        clock = pc.replace_with_mask(clock, far, pa.array(names, pa.string()))
    return _quoted(_large(clock))


def _printed(column: pa.Array) -> pa.Array:
    """Write dates and times of day."""
    return _quoted(_large(column.cast(pa.string())))


def _bytes(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else f'"{value.hex()}"' for value in column.to_pylist()], _TEXT)


def _intervals(column: pa.Array) -> pa.Array:
    """Write ISO 8601 durations: months, days and seconds do not convert into each other."""
    values = [None if value is None else f'"{_duration(*value)}"' for value in column.to_pylist()]
    return pa.array(values, _TEXT)


def _duration(months: int, days: int, ns: int) -> str:
    parts = [f"{months}M" if months else "", f"{days}D" if days else ""]
    if ns or not (months or days):
        seconds, fraction = divmod(abs(ns), _SECOND_NS)
        digits = f".{fraction:09}".rstrip("0") if fraction else ""
        parts.append(f"T{'-' if ns < 0 else ''}{seconds}{digits}S")
    return "P" + "".join(parts)


def _lists(column: pa.Array) -> pa.Array:
    return _joined(column, json_texts(column.flatten()), "[", "]")


def _maps(column: pa.Array) -> pa.Array:
    """Write maps as objects; a key that is not a string is written as one."""
    column = column.cast(pa.list_(column.type.field(0)))
    entries = column.flatten()
    keys, values = (json_texts(entries.field(n)) for n in (0, 1))
    names = pc.if_else(pc.starts_with(keys, '"'), keys, _strings(keys))
    return _joined(column, pc.binary_join_element_wise(names, values, _large(":")), "{", "}")


def _joined(column: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """Join the texts of each row's items, which follow each other; a null row has none.

    Uses Arrow alone: with Python strings, the items of one long list would block every other query (the GIL)."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), lengths]))
    texts = pc.binary_join(pa.LargeListArray.from_arrays(ends, items), _large(","))
    whole = pc.binary_join_element_wise(_large(opening), texts, _large(closing), _large(""))
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, _TEXT))


def _structs(column: pa.Array) -> pa.Array:
    names = [field.name for field in column.type]
    objects = _objects(names, column.flatten(), len(column))
    return pc.if_else(column.is_valid(), objects, pa.scalar(None, _TEXT))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_large('"'), texts, _large('"'), _large(""))


def _large(value: str | pa.Array) -> Any:
    return pa.scalar(value, _TEXT) if isinstance(value, str) else value.cast(_TEXT)


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (is_text, _strings),
    (pt.is_integer, _plain),
    (pt.is_boolean, _plain),
    (pt.is_decimal, _plain),
    (pt.is_floating, _doubles),
    (pt.is_timestamp, _timestamps),
    (pt.is_interval, _intervals),
    (pt.is_temporal, _printed),
    (_is_bytes, _bytes),
    (pt.is_map, _maps),
    (_is_list, _lists),
    (pt.is_struct, _structs),
)


def csv_header(names: Sequence[str]) -> bytes:
    return _lines([_quoted_texts(pa.array([name], _TEXT)) for name in names])


def csv_rows(batch: pa.RecordBatch) -> bytes:
    """Return a line for each row, in the order of the batch."""
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
