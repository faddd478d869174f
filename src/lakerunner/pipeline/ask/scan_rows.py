"""A scan's rows of one segment, as Spark SQL gets them.

Comes in: a batch of the segment's Parquet columns. Goes out: the columns that the scan states, named by their place
(plan/spark.py) and in types that Spark carries: nanoseconds and unsigned numbers as whole numbers, ids as hexadecimal
text. What a query sees is the same as query/segment_cache/relation.py gives to DuckDB; tests hold them together.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.lakeql.tables import ColumnKind, TableColumn, table_of_signal
from lakerunner.model.errors import Corrupt, TooLarge
from lakerunner.model.segment import Segment
from lakerunner.model.signal import OVERFLOW, SCOPES, Attribute, signal_named
from lakerunner.objects.store import ObjectStore
from lakerunner.plan.scan import Scan
from lakerunner.plan.spark import place

_BATCH_ROWS = 8192
_BYTES = re.compile(r'\{"bytesValue":"([A-Za-z0-9+/=]*)"\}')
_DOUBLE = re.compile(r'\{"doubleValue":"(NaN|-?Infinity)"\}')
_PAIRS = '{"kvlistValue":'
Pair = tuple[str, str | None]
_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
# Columns that are not stored as a query sees them (query/segment_cache/relation.py), and what they are made from.
_MADE = {
    ("metrics", "value"): ("value", "int_value"),
    ("metrics", "int_value"): ("value", "int_value", "is_int"),
    ("metrics", "exemplar_trace"): ("exemplars",),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Spark gets values of a stored type."""
    if pa.types.is_timestamp(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32()):
        return pa.int64()
    if kind == pa.uint64():
        return pa.decimal128(20, 0)
    if pa.types.is_map(kind):
        return OVERFLOW
    if pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in kind])
    return pa.string() if pa.types.is_binary(kind) else kind


def scan_schema(scan: Scan) -> pa.Schema:
    columns = table_of_signal(scan.signal).named()
    kinds = [_column_type(scan.signal, columns[name]) for name in scan.columns]
    kinds += [pa.string()] * len(scan.attributes) + [pa.binary()] * len(scan.ids)
    # A relation needs a column, also where the query only counts rows.
    return pa.schema([pa.field(place(number), kind) for number, kind in enumerate(kinds or [pa.bool_()])])


def _column_type(signal: str, column: TableColumn) -> pa.DataType:
    if column.kind is ColumnKind.MAP:
        return OVERFLOW
    schema = signal_named(signal).schema
    return spark_type(schema.field(column.name).type) if column.name in schema.names else pa.string()


def segment_rows(store: ObjectStore, segment: Segment, scan: Scan) -> Iterator[pa.RecordBatch]:
    """Give the rows of the scan's time. The segment is held in memory while it is read."""
    try:
        data = store.get(segment.path, max_bytes=segment.bytes)
    except TooLarge as error:
        raise Corrupt(f"{segment.path} is larger than the {segment.bytes} bytes in the index") from error
    if len(data) != segment.bytes:
        raise Corrupt(f"{segment.path} has {len(data)} bytes, {segment.bytes} in the index")
    reading = _Reading(segment, scan)
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), page_checksum_verification=True)
        for batch in file.iter_batches(_BATCH_ROWS, columns=reading.wanted):
            yield reading.rows(batch)
    except MemoryError:  # also Arrow's: the query is too large, the segment is as it should be
        raise
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{segment.path} cannot be read: {error}") from error


class _Reading:
    """Makes the columns that a query sees from those of one segment."""

    def __init__(self, segment: Segment, scan: Scan) -> None:
        self._segment = segment
        self._scan = scan
        self._schema = scan_schema(scan)
        self._types = {column.name: column.type for column in segment.columns}
        named = table_of_signal(scan.signal).named()
        self._columns = [named[name] for name in scan.columns]
        inside = scan.time.start_ns <= segment.time.start_ns and segment.time.end_ns <= scan.time.end_ns
        self._cut = not inside
        self.wanted = sorted({name for name in self._needed() if name in self._types} or {"timestamp"})

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._cut:
            times = batch.column("timestamp").cast(pa.int64())
            after = pc.greater_equal(times, self._scan.time.start_ns)
            batch = batch.filter(pc.and_(after, pc.less(times, self._scan.time.end_ns)))
        arrays = [self._shown(column, batch) for column in self._columns]
        arrays += [self._attribute(attribute, batch) for attribute in self._scan.attributes]
        arrays += [self._stored(name, batch, pa.binary()) for name in self._scan.ids]
        arrays = arrays or [pa.nulls(batch.num_rows, pa.bool_())]
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)], schema=self._schema
        )

    def _needed(self) -> Iterator[str]:
        """Return stored columns; those that the segment lacks are NULL."""
        if self._cut:
            yield "timestamp"
        for column in self._columns:
            if column.kind is ColumnKind.MAP:
                yield column.scope
                yield from self._own(column.scope)
            else:
                yield from _MADE.get((self._scan.signal, column.name), (column.name,))
        for attribute in self._scan.attributes:
            yield attribute.scope
            yield _PREFIXES[attribute.scope] + attribute.key
        yield from self._scan.ids

    def _own(self, scope: str) -> list[str]:
        """Return the columns of the scope's shredded attributes."""
        return [name for name, kind in self._types.items() if kind and name.startswith(_PREFIXES[scope])]

    def _stored(self, name: str, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        if name not in self._types:
            return pa.nulls(batch.num_rows, kind)
        column = batch.column(name)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    def _shown(self, column: TableColumn, batch: pa.RecordBatch) -> pa.Array:
        match column.name, column.kind:
            case _, ColumnKind.ORGANIZATION:
                return pa.repeat(pa.scalar(str(self._segment.organization)), batch.num_rows)
            case "collector", _:
                return pa.repeat(pa.scalar(self._segment.collector), batch.num_rows)
            case _, ColumnKind.MAP:
                return self._map(column.scope, batch)
        if (self._scan.signal, column.name) in _MADE:
            return self._made(column.name, batch)
        kind = signal_named(self._scan.signal).schema.field(column.name).type
        stored = self._stored(column.name, batch, kind)
        if column.kind is ColumnKind.ITEMS:
            return pa.array([_shown(items, kind) or [] for items in _python(stored)], spark_type(kind))
        if pa.types.is_map(kind) or pa.types.is_binary(kind):
            values = [None if value is None else _shown(value, kind) for value in stored.to_pylist()]
            return pa.array(values, spark_type(kind))
        return stored.cast(spark_type(kind))

    def _made(self, name: str, batch: pa.RecordBatch) -> pa.Array:
        if name == "exemplar_trace":
            kind = signal_named("metrics").schema.field("exemplars").type
            shown = [_shown(items, kind) for items in _python(self._stored("exemplars", batch, kind))]
            return pa.array([items[0]["trace_id"] if items else None for items in shown], pa.string())
        double = self._stored("value", batch, pa.float64())
        whole = self._stored("int_value", batch, pa.int64())
        if name == "value":
            return pc.coalesce(double, whole.cast(pa.float64(), safe=False))
        is_int = pc.fill_null(self._stored("is_int", batch, pa.bool_()), False)
        exact = pc.if_else(is_int, double, pa.scalar(None, pa.float64())).cast(pa.int64())
        return pc.if_else(is_int, pc.coalesce(whole, exact), pa.scalar(None, pa.int64()))

    def _attribute(self, attribute: Attribute, batch: pa.RecordBatch) -> pa.Array:
        """Return an attribute's texts, from its own column if it has one; values of another type are in the map."""
        rest = look_up_text(self._stored(attribute.scope, batch, OVERFLOW), attribute.key)
        own = _PREFIXES[attribute.scope] + attribute.key
        return pc.coalesce(self._text(own, batch), rest) if self._types.get(own) else rest

    def _text(self, name: str, batch: pa.RecordBatch) -> pa.Array:
        return TEXT_OF[self._types[name]](batch.column(name))

    def _map(self, scope: str, batch: pa.RecordBatch) -> pa.Array:
        names = self._own(scope)
        keys = [name.removeprefix(_PREFIXES[scope]) for name in names]
        texts = [self._text(name, batch).to_pylist() for name in names]
        rest = self._stored(scope, batch, OVERFLOW).to_pylist()
        rows = zip(*texts, strict=True) if texts else [()] * batch.num_rows
        maps = [attribute_pairs(zip(keys, row, strict=True), left) for row, left in zip(rows, rest, strict=True)]
        return pa.array(maps, OVERFLOW)


def _shown(value: Any, kind: pa.DataType) -> Any:
    """Return a stored value for Python, with ids in hexadecimal and attributes as text."""
    if pa.types.is_map(kind):
        return attribute_pairs((), value)
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_shown(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _shown(value[field.name], field.type) for field in kind}
    return value.hex() if pa.types.is_binary(kind) else value


def _python(column: pa.Array) -> list[Any]:
    """Return the values of a column; times as nanoseconds, which Python's own times lack."""
    return list(column.cast(_counted(column.type)).to_pylist())


def _counted(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_counted(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _counted(field.type)) for field in kind])
    return kind


# The text that a query sees of an attribute, the same as the macros of query/sandbox/instance.py give it to DuckDB:
# wherever a value stands, in a column of its own or in the overflow map as typed JSON, its text is the same.


def typed_text(value: str) -> str | None:
    """Return the plain text of typed JSON (model/typed_json.py)."""
    if value.startswith('"'):
        return str(json.loads(value))
    if value == "null":
        return None
    if not value.startswith('{"'):
        return value
    if wrapped := _BYTES.fullmatch(value) or _DOUBLE.fullmatch(value):
        return wrapped[1]
    if value.startswith(_PAIRS + "{") and len(json.loads(value)) == 1:
        return value[len(_PAIRS) : -1]
    return value


def double_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def text_of_each(column: pa.Array, text: Callable[[Any], str | None]) -> pa.Array:
    """Return the texts of a column's values, of which each distinct one is converted once."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = pa.array([None if value is None else text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def _doubles(column: pa.Array) -> pa.Array:
    """Convert row by row: a dictionary of Arrow would take 0.0 and -0.0 for one value."""
    return pa.array([None if value is None else double_text(value) for value in column.to_pylist()], pa.string())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# By the type of a shredded column.
TEXT_OF: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": lambda column: column.cast(pa.string()),
    "int64": lambda column: column.cast(pa.string()),
    "double": _doubles,
    "bool": lambda column: column.cast(pa.string()),
    "bytes": lambda column: text_of_each(column, _base64),
    "json": lambda column: text_of_each(column, typed_text),
}


def look_up_text(overflow: pa.Array, key: str) -> pa.Array:
    """Return the text of the first value of this key."""
    return text_of_each(pc.map_lookup(overflow, pa.scalar(key), "first"), typed_text)


def attribute_pairs(own: Iterable[Pair], overflow: Iterable[tuple[str, str]] | None) -> list[Pair]:
    """Return all attributes, sorted by key; the first of several equal keys counts."""
    first: dict[str, str | None] = {key: text for key, text in own if text is not None}
    for key, value in overflow or ():
        if key not in first:
            first[key] = typed_text(value)
    return sorted(first.items(), key=lambda pair: pair[0].encode())
