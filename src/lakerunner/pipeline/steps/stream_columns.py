"""Derive the columns of log rows that LogQL reads in place of attributes: `resource_id` and `detected_level`.

Comes in: record batches of a segment that lack them, at ingest and in merges of older segments. Goes out: both columns.
What always holds: the level is that of `metadata_of` with DEFAULT_RULES (model/streams/log_record.py).

Few things but the line decide a level: a resource, the severity, and attributes with level-like names. Rows that are
equal in these are looked at once; the lines of the others go to the kernel of model/streams/line_levels.py. Rows with a
level-like name in a map, in a scope or inside a value are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES, LOGS, RESOURCE, SCOPE, Scope
from lakerunner.model.streams.body_lines import body_lines
from lakerunner.model.streams.label_names import label_name
from lakerunner.model.streams.line_level import line_level
from lakerunner.model.streams.line_levels import LINE_LEVELS, line_levels
from lakerunner.model.streams.log_record import (
    LEVEL_TELLING,
    LOKI_MARKS,
    RecordFields,
    Resource,
    ResourceLabels,
    ScopeFields,
    scope_metadata_of,
    stated_level_of,
    stream_of,
)
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.model.streams.stream_table import DETECTED_LEVEL, RESOURCE_ID
from lakerunner.pipeline.steps.arrow_columns import CODED_TEXT, column, find_column, plain, texts_are, value_numbers
from lakerunner.pipeline.steps.attribute_values import map_entries, row_attributes, shredded_columns
from lakerunner.pipeline.steps.resource_ids import resource_ids

DERIVED = (pa.field(RESOURCE_ID, pa.int64()), pa.field(DETECTED_LEVEL, CODED_TEXT))
_MAX_KNOWN = 100_000  # resources that are remembered
_SIMPLE = ("string", "int64")  # types whose text Arrow writes as value_text does
_BY_LINE, _NONE = -2, -1  # codes of rows: their lines decide, they have no level


class StreamColumns:
    """Derives the columns for batches of segments with these columns."""

    def __init__(self, columns: Iterable[Column]) -> None:
        columns = tuple(columns)
        self._types = {scope: shredded_columns(columns, scope) for scope in (ATTRIBUTES, RESOURCE, SCOPE)}
        own = self._types[ATTRIBUTES]
        self._telling = [key for key, kind in own.items() if kind in _SIMPLE and _tells(key)]
        self._odd = [ATTRIBUTES.prefix + key for key, kind in own.items() if kind not in _SIMPLE and _may_tell(key)]
        self._odd += [SCOPE.prefix + key for key in self._types[SCOPE] if _may_tell(key)]
        self._resources: dict[int, tuple[int, ResourceLabels]] = {}
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._names = list(LINE_LEVELS)
        self._codes = {name: code for code, name in enumerate(self._names)}

    def derive(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return both columns of these rows, by their names."""
        ids = resource_ids(batch, self._types[RESOURCE])
        codes = self._levels(batch, ids)
        return {RESOURCE_ID: pa.array(ids), DETECTED_LEVEL: self._level_array(codes)}

    def _levels(self, batch: pa.RecordBatch, ids: Any) -> Any:
        """Return the code of each row's level."""
        numbers, first = _distinct([ids])
        resources = [self._resource(batch, int(ids[row]), row) for row in first.tolist()]
        kinds = np.array([kind for kind, _ in resources], np.int64)[numbers]
        telling = {key: batch.column(ATTRIBUTES.prefix + key) for key in self._telling}
        telling = {key: array for key, array in telling.items() if array.null_count < len(array)}
        stating, places = _distinct(
            [kinds, *(value_numbers(one) for one in (batch.column("severity_text"), batch.column("severity_number")))]
            + [value_numbers(array) for array in telling.values()]
        )
        stated = []
        for row in places.tolist():
            attributes = {key: array[row].as_py() for key, array in telling.items()}
            given = {key: value for key, value in attributes.items() if value is not None}
            stated.append(self._stated(batch, row, given, resources[numbers[row]][1], {}))
        codes = np.array(stated, np.int64)[stating]
        for row in self._odd_rows(batch).tolist():
            attributes = row_attributes(batch, row, ATTRIBUTES, self._types[ATTRIBUTES])
            scope = ScopeFields(row_attributes(batch, row, SCOPE, self._types[SCOPE]), "", "", 0)
            metadata = scope_metadata_of(scope, DEFAULT_RULES)
            codes[row] = self._stated(batch, row, attributes, resources[numbers[row]][1], metadata)
        rows = np.flatnonzero(codes == _BY_LINE)
        if len(rows):
            codes[rows] = _levels_of_lines(batch, rows)
        return codes

    def _resource(self, batch: pa.RecordBatch, number: int, row: int) -> tuple[int, ResourceLabels]:
        """Return the resource of this row, and the number that it shares with those that state levels alike."""
        if number not in self._resources:
            if len(self._resources) >= _MAX_KNOWN:
                self._resources.clear()
            attributes = row_attributes(batch, row, RESOURCE, self._types[RESOURCE])
            found = stream_of(Resource(attributes, batch.column("resource_schema_url")[row].as_py()), DEFAULT_RULES)
            telling = ((name, value) for name, value in found.metadata.items() if name in LEVEL_TELLING)
            kind = found.is_loki, found.level, *sorted(telling)
            self._resources[number] = self._kinds.setdefault(kind, len(self._kinds)), found
        return self._resources[number]

    def _stated(
        self,
        batch: pa.RecordBatch,
        row: int,
        attributes: Mapping[str, Any],
        resource: ResourceLabels,
        scope: Mapping[str, str],
    ) -> int:
        number, text = batch.column("severity_number")[row].as_py(), batch.column("severity_text")[row].as_py()
        record = RecordFields(attributes, 0, 0, number, text, 0, 0, "", "", "")
        is_decided, level = stated_level_of(record, resource, scope, DEFAULT_RULES)
        if level is None:
            return _NONE if is_decided else _BY_LINE
        if level not in self._codes:
            self._codes[level] = len(self._names)
            self._names.append(level)
        return self._codes[level]

    def _odd_rows(self, batch: pa.RecordBatch) -> Any:
        """Return the rows whose levels may be stated where only a look at the whole row finds them."""
        is_odd = np.zeros(batch.num_rows, np.bool_)
        for name in self._odd:
            is_odd |= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        for scope in (ATTRIBUTES, SCOPE):
            is_odd |= _tells_in_map(batch, scope)
        return np.flatnonzero(is_odd)

    def _level_array(self, codes: Any) -> pa.Array:
        """Return the levels as a dictionary of those that occur, sorted, so that equal rows give equal bytes."""
        counts = np.bincount(codes[codes >= 0], minlength=len(self._names))
        used = sorted((self._names[code], code) for code in np.flatnonzero(counts).tolist())
        place = np.zeros(len(self._names) + 1, np.int32)
        place[[code for _, code in used]] = np.arange(len(used))
        indices = pa.array(place[codes], mask=codes == _NONE if (codes == _NONE).any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array([name for name, _ in used], pa.string()))


def with_stream_columns(batch: pa.RecordBatch, streams: StreamColumns) -> pa.RecordBatch:
    """Return the batch with both columns, behind the other columns of the signal."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | streams.derive(batch)
    schema = with_derived_fields(batch.schema)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def with_derived_fields(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the fields of both columns."""
    place = sum(name in LOGS.schema.names for name in schema.names)
    return pa.schema([*list(schema)[:place], *DERIVED, *list(schema)[place:]])


@lru_cache(4096)
def _tells(key: str) -> bool:
    """Return whether an attribute of this key is metadata that states a level."""
    return key in LEVEL_TELLING or label_name(key) in LEVEL_TELLING


@lru_cache(4096)
def _may_tell(key: str) -> bool:
    """Return whether an attribute of this key, or something inside it if it is a map, may state a level."""
    name = label_name(key).rstrip("_")
    return _tells(key) or (name != "" and any(telling.startswith(name) for telling in LEVEL_TELLING))


def _tells_in_map(batch: pa.RecordBatch, scope: Scope) -> Any:
    """Return which rows have a level-like name in their map."""
    maps = batch.column(scope.map_column)
    rows, _ = map_entries(maps, _may_tell)
    return np.bincount(rows, minlength=len(maps)) > 0


def _distinct(columns: list[Any]) -> tuple[Any, Any]:
    """Return (the number of each row's values of these columns, the first row with each)."""
    numbers: Any = columns[0]
    for further in [None, *columns[1:]]:
        # Numbered again after each column, so that products stay below the square of the rows.
        both = numbers if further is None else numbers * (int(further.max()) + 2) + further
        numbers = pa.array(both, pa.int64()).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.empty(int(numbers.max()) + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # reversed, because the last assignment wins
    return numbers, first


def _levels_of_lines(batch: pa.RecordBatch, rows: Any) -> Any:
    """Return the codes of the levels that the lines of these rows state."""
    body = find_column(batch, "body")
    is_text = np.ones(len(rows), np.bool_)
    if body is not None and body.null_count < len(body):
        is_text = body.is_null().to_numpy(zero_copy_only=False)[rows]
    codes = np.empty(len(rows), np.int64)
    codes[is_text] = _levels_of_texts(batch.column("message"), rows[is_text])
    others = rows[~is_text]
    if len(others):
        codes[~is_text] = [LINE_LEVELS.index(line_level(line)) for line in lines_of_bodies(batch, others)]
    return codes


def _levels_of_texts(messages: pa.Array, rows: Any) -> Any:
    if pa.types.is_dictionary(messages.type) and len(messages.dictionary) < len(rows):
        return line_levels(messages.dictionary)[messages.indices.to_numpy()[rows]]
    chosen = messages if len(rows) == len(messages) else messages.take(pa.array(rows))
    return line_levels(plain(chosen))


def lines_of_bodies(batch: pa.RecordBatch, rows: Any) -> list[str]:
    """Return the lines of these rows, whose bodies are not strings."""
    is_loki = texts_are(batch, "resource_schema_url", LOKI_MARKS)[rows]
    bodies = column(batch, "body", pa.string()).take(pa.array(rows))
    return body_lines(bodies, is_loki.tolist())


def sizes_of_lines(batch: pa.RecordBatch) -> Any:
    """Return the bytes of each row's line."""
    messages = batch.column("message")
    if pa.types.is_dictionary(messages.type):
        sizes = pc.binary_length(messages.dictionary).to_numpy()[messages.indices.to_numpy()].astype(np.int64)
    else:
        sizes = pc.binary_length(messages).to_numpy().astype(np.int64)
    body = find_column(batch, "body")
    if body is not None and body.null_count < len(body):
        rows = np.flatnonzero(body.is_valid().to_numpy(zero_copy_only=False))
        sizes[rows] = [len(line.encode("utf-8", "surrogateescape")) for line in lines_of_bodies(batch, rows)]
    return sizes
