"""Parquet: one record per row, read a few rows at a time.

Structs and maps become columns with dotted names, lists become arrays. Numbers, booleans, strings and binaries keep
their type; other types become text without loss: timestamps as RFC 3339, dates and times of day likewise, decimals as
digits, durations as `1500ms`. Null is no value. Columns that a field takes as an object (`columns.py`) are not
flattened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.transcode.any_values import ABSENT, MAX_NESTING, Members, Unfit
from lakerunner.pipeline.transcode.columns import Columns, unflattened_columns
from lakerunner.pipeline.transcode.records import SignalRecords
from lakerunner.pipeline.transcode.results import Damage, FindingsBuilder, Transcoded
from lakerunner.pipeline.transcode.signal_records import RECORDS
from lakerunner.pipeline.transcode.times import LAST_NS, UNITS, Nanoseconds

_ROWS = 1024  # at a time

Values = list[Any]


def from_parquet(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """Return the export request of these rows."""
    findings, damage = FindingsBuilder(), Damage()
    records = RECORDS[signal](columns, findings)
    for row, names, values in _read(data, records):
        findings.begin_record(row, 0)
        try:
            records.add(names, values)
        except Unfit as error:
            damage.note(f"row {row}", str(error))
    damage.refuse()
    return findings.build(records.data())


def _read(data: memoryview, records: SignalRecords) -> Iterator[tuple[int, tuple[str, ...], Sequence[Any]]]:
    """Yield (number, names, values) of each row. Raise Corrupt where Arrow, or the conversion to Python, fails."""
    row = 0
    try:
        for batch in _batches(data):
            for names, values in _rows(batch, records):
                row += 1
                yield row, names, values
    except (pa.ArrowException, OSError, ValueError) as error:  # a text that is not UTF-8 is a ValueError
        raise Corrupt(f"after row {row}: cannot read Parquet: {error}") from None


def _batches(data: memoryview) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(pa.py_buffer(data))
    with pq.ParquetFile(source) as file:
        coded = [column.path_in_schema for column in _dictionaries(file.metadata)]
    source.seek(0)
    try:
        opened = pq.ParquetFile(source, read_dictionary=coded)
    except KeyError as error:
        raise Corrupt(f"the Parquet file has a column {error} that is not in its schema") from None
    with opened as file:
        if not file.schema_arrow.names:
            raise Corrupt("the Parquet file has no columns")
        yield from file.iter_batches(batch_size=_ROWS)


def _dictionaries(metadata: Any) -> Iterator[Any]:
    """Yield the columns of the first row group whose texts are in a dictionary. They stay there, so that a text takes
    memory once, however often it is used."""
    if metadata.num_row_groups:
        group = metadata.row_group(0)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.physical_type == "BYTE_ARRAY" and "." not in column.path_in_schema and column.has_dictionary_page:
                yield column


def _rows(batch: pa.RecordBatch, records: SignalRecords) -> Iterator[tuple[tuple[str, ...], Sequence[Any]]]:
    """Yield (names, values) of each row."""
    outer = batch.schema.names
    whole = {outer[index] for index in unflattened_columns(records.plans(tuple(outer)), outer)}
    flat = [leaf for name, array in zip(outer, batch.columns, strict=True) for leaf in _flat(name, array, whole)]
    plain = [(name, array) for name, array in flat if name in whole or not pa.types.is_map(array.type)]
    maps = [(name, _values(array)) for name, array in flat if name not in whole and pa.types.is_map(array.type)]
    names = tuple(name for name, _ in plain)
    times = set(records.plans(names).times)
    columns = [
        _instants(array) if index in times and pa.types.is_timestamp(array.type) else _values(array)
        for index, (_, array) in enumerate(plain)
    ]
    rows: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
    if not maps:
        yield from ((names, row) for row in rows)
        return
    for index, row in enumerate(rows):
        more = [(f"{name}.{key}", value) for name, of in maps if of[index] is not ABSENT for key, value in of[index]]
        yield (*names, *(name for name, _ in more)), [*row, *(value for _, value in more)]


def _flat(name: str, array: pa.Array, whole: set[str], level: int = 0) -> Iterator[tuple[str, pa.Array]]:
    if name in whole or not pa.types.is_struct(array.type):
        yield name, array
        return
    if level == MAX_NESTING:
        raise Corrupt(f"column {name[:80]!r} is nested deeper than {MAX_NESTING} levels")
    for field, member in zip(array.type, array.flatten(), strict=True):
        yield from _flat(f"{name}.{field.name}", member, set(), level + 1)


def _instants(array: pa.Array) -> Values:
    """Return timestamps as nanoseconds if OTLP can hold them, else as text."""
    factor = UNITS[array.type.unit]
    values: Values = [ABSENT if value is None else value * factor for value in array.cast(pa.int64()).to_pylist()]
    if all(value is ABSENT or 0 < value <= LAST_NS for value in values):
        return [ABSENT if value is ABSENT else Nanoseconds(value) for value in values]
    return [
        Nanoseconds(value) if value is not ABSENT and 0 < value <= LAST_NS else text
        for value, text in zip(values, _values(array), strict=True)
    ]


def _values(array: pa.Array) -> Values:
    """Return the values of a column, ABSENT for null."""
    if pa.types.is_dictionary(array.type):
        values = _values(array.dictionary)
        return [ABSENT if index is None else values[index] for index in array.indices.to_pylist()]
    spelled = _cast(array)
    values = spelled.to_pylist()
    form = _converter(array.type)
    if form is not None:
        return [ABSENT if value is None else form(value) for value in values]
    return [ABSENT if value is None else value for value in values] if array.null_count else values


def _cast(array: pa.Array) -> pa.Array:
    """Cast the values to types that Python and OTLP have."""
    for change in (_in_utc, _spelled):
        kind = _map_type(array.type, change)
        if kind != array.type:
            array = array.cast(kind)
    return array


def _map_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType], level: int = 0) -> pa.DataType:
    """Return the type with its innermost types changed."""
    if level > MAX_NESTING:
        raise Corrupt(f"a column is nested deeper than {MAX_NESTING} levels")
    if pa.types.is_map(kind):
        return pa.map_(_map_type(kind.key_type, change, level + 1), _map_type(kind.item_type, change, level + 1))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_map_type(field.type, change, level + 1)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.large_list(_map_type(kind.value_type, change, level + 1))
    if pa.types.is_dictionary(kind):
        return _map_type(kind.value_type, change, level + 1)
    return change(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _spelled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_duration(kind):
        return pa.int64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the conversion of a Python value of this type; None if it needs none."""
    if pa.types.is_timestamp(kind):
        return lambda value: value.replace(" ", "T", 1)
    if pa.types.is_duration(kind):
        return lambda value: f"{value}{kind.unit}"
    if pa.types.is_map(kind):
        item, key = _converter(kind.item_type), _converter(kind.key_type) or str
        return lambda value: Members((key(name), _convert(item, one)) for name, one in value)
    if pa.types.is_struct(kind):
        forms = {field.name: _converter(field.type) for field in kind}
        return lambda value: {name: _convert(forms[name], one) for name, one in value.items() if one is not None}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type)
        return None if inner is None else lambda value: [_convert(inner, one) for one in value]
    return None


def _convert(form: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if form is None or value is None else form(value)
