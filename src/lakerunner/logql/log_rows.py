"""Rows of the logs table as lines: their time, their line, the labels of their stream and their metadata.

Comes in: Arrow batches of the SELECT that `source_sql` writes. Goes out: the rows whose streams meet the selector. What
always holds: what a stream is, and what is metadata, is decided by model/streams/ from what was stored, with the
organization's rules; each distinct resource is looked at once. The WHERE of the SELECT may let rows pass that do not
meet the selector; those are dropped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.line_columns import RELATION
from lakerunner.logql.columns.selected_streams import SelectedStreams
from lakerunner.model.condition import Condition
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.row_view import within
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.model.streams.log_record import (
    RecordFields,
    ResourceLabels,
    ScopeFields,
    line_of,
    metadata_of,
    scope_metadata_of,
)
from lakerunner.model.streams.stored_attributes import attributes_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import ARRIVED, ROW_NUMBER, Scan, internal_column

_MAPS = (RESOURCE.map_column, ATTRIBUTES.map_column, SCOPE.map_column)
_FIELDS = (
    "message",
    "body",
    "severity_number",
    "severity_text",
    "trace_id",
    "span_id",
    "flags",
    "event_name",
    "dropped_attributes_count",
    "scope_name",
    "scope_version",
    "scope_dropped_attributes",
    "resource_schema_url",
    "delivery",
    "delivery_row",
)
_TIMES = ("timestamp", "observed_timestamp")
_RESOURCE = (RESOURCE.map_column, "resource_schema_url")
_SCOPE = (SCOPE.map_column, "scope_name", "scope_version", "scope_dropped_attributes")
COLUMNS = (*_TIMES, *_FIELDS)
INTERNAL = (ARRIVED, ROW_NUMBER, *_MAPS)


class Place(NamedTuple):
    """Where a row stands among all rows: those of equal time are in the order of their arrival."""

    timestamp: int
    arrived: int
    row_number: int


class _Values(NamedTuple):
    """The columns that are looked at in each row, as the SELECT names them."""

    timestamp: int
    observed_timestamp: int | None
    arrived: int
    row_number: int
    message: str
    body: str | None
    attributes: str | None
    severity_number: int
    severity_text: str
    dropped_attributes_count: int
    flags: int
    trace_id: str | None
    span_id: str | None
    event_name: str
    delivery: int | None
    delivery_row: int


_OF_ROW = _Values._fields


class LogRow(NamedTuple):
    """`delivery` identifies a row that was delivered twice, None if nothing does (docs/formats/segments.md)."""

    place: Place
    delivery: tuple[int, int] | None
    line: str
    stream: Mapping[str, str]
    metadata: Mapping[str, str]


def lines_scan(start_ns: int, end_ns: int, conditions: tuple[Condition, ...] = ()) -> Scan:
    """Return the scan of the lines of [start_ns, end_ns), with all columns; all lines meet the conditions."""
    start, end = max(start_ns, MIN_NS), min(end_ns, MAX_NS)
    return Scan(RELATION, "logs", TimeRange(start, max(start, end)), COLUMNS, conditions=conditions, internal=INTERNAL)


def source_sql(scan: Scan, where: Sequence[str] = ()) -> str:
    """Return the SELECT of the scan's columns, whose rows `LogReader` takes if they are all there."""
    relation = scan.relation
    listed = [f'epoch_ns("{name}") AS "{name}"' if name in _TIMES else f'"{name}"' for name in scan.columns]
    listed += [f'"{internal_column(relation, name)}" AS "{name}"' for name in scan.internal]
    conditions = " AND ".join((within(scan.time), *where))
    return f'SELECT {", ".join(listed)} FROM "{relation}" WHERE {conditions}'


class LogReader:
    """Reads the rows of the streams that meet the matchers. It remembers the streams and scopes of all batches of a
    unit."""

    def __init__(self, matchers: Matchers, rules: StreamRules) -> None:
        self._stream = SelectedStreams(matchers, rules)
        self._rules = rules
        self._scopes: dict[tuple[Any, ...], Mapping[str, str]] = {}

    def rows(self, batch: pa.RecordBatch) -> Iterator[LogRow]:
        resources, numbers = _distinct(batch, _RESOURCE)
        streams = [self._stream(*resource) for resource in resources]
        if None in streams:  # before the other columns are turned into Python's objects
            meets = [streams[number] is not None for number in numbers]
            batch = batch.filter(pa.array(meets, pa.bool_()))
            numbers = [number for number, kept in zip(numbers, meets, strict=True) if kept]
        scopes, scope_numbers = _distinct(batch, _SCOPE)
        metadata = [self._scope_metadata(scope) for scope in scopes]
        columns = zip(*(batch.column(name).to_pylist() for name in _OF_ROW), strict=True)
        for number, scope_number, values in zip(numbers, scope_numbers, columns, strict=True):
            stream = streams[number]
            if stream is not None:
                yield self._row(_Values(*values), stream, metadata[scope_number])

    def _scope_metadata(self, scope: tuple[Any, ...]) -> Mapping[str, str]:
        if scope not in self._scopes:
            fields = ScopeFields(attributes_of(scope[0]), *scope[1:])
            self._scopes[scope] = scope_metadata_of(fields, self._rules)
        return self._scopes[scope]

    def _row(self, row: _Values, stream: ResourceLabels, scope: Mapping[str, str]) -> LogRow:
        line = line_of(row.message, row.body, is_loki=stream.is_loki)
        record = RecordFields(
            attributes_of(row.attributes),
            row.timestamp,
            row.observed_timestamp or 0,
            row.severity_number,
            row.severity_text,
            row.dropped_attributes_count,
            row.flags,
            row.trace_id or "",
            row.span_id or "",
            row.event_name,
        )
        return LogRow(
            Place(row.timestamp, row.arrived, row.row_number),
            None if row.delivery is None else (row.delivery, row.delivery_row),
            line,
            stream.labels,
            metadata_of(record, stream, scope, line, self._rules),
        )


def _distinct(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Sequence[int]]:
    """Return the different values of these columns together, and for each row the number of its own."""
    numbers: Any = np.zeros(batch.num_rows, np.int64)
    first: Any = numbers[:1]
    for name in names:
        coded = batch.column(name).dictionary_encode("encode")
        # Numbered again after each column, so that products stay below the square of the rows.
        both = numbers * len(coded.dictionary) + coded.indices.to_numpy()
        _, first, numbers = np.unique(both, return_index=True, return_inverse=True)
    rows = zip(*(batch.column(name).take(pa.array(first)).to_pylist() for name in names), strict=True)
    return list(rows), numbers.tolist()
