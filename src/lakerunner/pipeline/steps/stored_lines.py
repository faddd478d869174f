"""Read rows of a segment as LogQL's columns of lines (logql/columns/line_columns.py), without a query's SQL.

Comes in: record batches of a segment with `resource_id` and `detected_level`, and which of their rows. Goes out:
`LineColumns`. What always holds: what is read of a row is what a scan with the same needs gives of it
(plan/scan.py), so that its labels are those of a query. Rows are told apart by the columns that can give a wanted
label alone, as numbers, which all readers share; texts are made once for all rows that are stored alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.line_columns import ColumnReader, LineColumns, LineNeeds, joint_codes, line_texts
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE, Scope
from lakerunner.model.streams.label_sources import LabelSources
from lakerunner.model.streams.log_record import LOKI_MARKS
from lakerunner.model.streams.stream_table import DETECTED_LEVEL, RESOURCE_ID
from lakerunner.pipeline.steps.arrow_columns import find_column, plain, texts_are, value_numbers
from lakerunner.pipeline.steps.attribute_values import attributes_text, map_entries, row_attributes, shredded_columns

ROW = "row"
_TIMES, _IDS = ("timestamp", "observed_timestamp"), ("trace_id", "span_id")
_SCOPES = (ATTRIBUTES, SCOPE)
_MAX_KNOWN = 300  # origins that each reader remembers: there is one for each rule


class StoredBatch:
    """A batch of a segment. `resources` are the attributes and the schema URL of each resource in it, by its id."""

    def __init__(self, batch: pa.RecordBatch, resources: Mapping[int, tuple[str, str]]) -> None:
        self.batch = batch
        self.resources = resources
        self._numbers: dict[str, Any] = {}

    @cached_property
    def times(self) -> Any:
        return self.batch.column("timestamp").cast(pa.int64()).to_numpy()

    def numbers(self, name: str) -> Any:
        """Return a number for each row, equal for equal values of this column; None if no row has a value."""
        if name not in self._numbers:
            found = find_column(self.batch, name)
            is_empty = found is None or found.null_count == len(found)
            self._numbers[name] = None if is_empty else value_numbers(found)
        return self._numbers[name]

    def entry_numbers(self, scope: Scope, is_wanted: Callable[[str], bool]) -> Any:
        """Return a number for each row, equal for equal wanted entries of the map; None if there are none."""
        maps = self.batch.column(scope.map_column)
        rows, places = map_entries(maps, is_wanted)
        if not len(rows):
            return None
        own: dict[int, list[Any]] = {}
        taken = (entries.take(pa.array(places)).to_pylist() for entries in (maps.keys, maps.items))
        for row, *entry in zip(rows.tolist(), *taken, strict=True):
            own.setdefault(row, []).append(tuple(entry))
        known: dict[tuple[Any, ...], int] = {}
        numbers = np.zeros(len(maps), np.int64)
        numbers[list(own)] = [known.setdefault(tuple(entries), len(known) + 1) for entries in own.values()]
        return numbers

    def values(self, name: str, rows: pa.Array) -> pa.Array | None:
        """Return the values of these rows as a scan gives them, None if the batch lacks the column."""
        found = find_column(self.batch, name)
        if found is None:
            return None
        taken = plain(found.take(rows))
        if name in _TIMES:
            return taken.cast(pa.int64())
        if name in _IDS:
            return pa.array([None if one is None else one.hex() for one in taken.to_pylist()], pa.string())
        return taken


class StoredRows:
    """Rows of a batch, by their numbers; all without."""

    def __init__(self, of: StoredBatch, numbers: Any = None) -> None:
        self.of = of
        self._numbers = numbers

    @cached_property
    def places(self) -> pa.RecordBatch:
        """Return the time and the number of each row."""
        numbers = np.arange(self.of.batch.num_rows) if self._numbers is None else self._numbers
        times = self.of.times if self._numbers is None else self.of.times[numbers]
        return pa.record_batch([pa.array(times), pa.array(numbers)], ["timestamp", ROW])

    @cached_property
    def lines(self) -> tuple[pa.Array, Mapping[int, str]]:
        """Return the lines, and those that no array can hold."""
        messages, bodies = self._taken("message"), self._taken("body")
        if bodies.null_count == len(bodies):
            return messages, {}
        is_loki = texts_are(self.of.batch, "resource_schema_url", LOKI_MARKS)[self.places.column(ROW).to_numpy()]
        return line_texts(messages, bodies, is_loki[bodies.is_valid().to_numpy(zero_copy_only=False)].tolist())

    def _taken(self, name: str) -> pa.Array:
        found = find_column(self.of.batch, name)
        if found is None:
            return pa.nulls(self.places.num_rows, pa.string())
        return plain(found if self._numbers is None else found.take(pa.array(self._numbers)))


class StoredLines:
    """Reads what a query needs of lines. `columns` are those of the segment. It remembers the origins of rows."""

    def __init__(self, matchers: Matchers, needs: LineNeeds, columns: Iterable[Column]) -> None:
        scan = needs.scan(0, 1)
        if scan.labels is None:
            raise ValueError("stored lines are read for the labels of a few names")
        unused = frozenset(scan.level_sources)  # all rows have their level
        self._wanted = LabelSources(name for name in scan.labels if name not in unused)
        columns = tuple(columns)
        self._types = {scope: self._types_of(columns, scope) for scope in _SCOPES}
        self._fields = {name: name not in unused for name in needs.fields}
        self._has_level = DETECTED_LEVEL in scan.internal
        self._reads_line = needs.line or (needs.level and not self._has_level)
        self._reader = ColumnReader(matchers, needs, _MAX_KNOWN)
        self._batch: StoredBatch | None = None

    def select(self, rows: StoredRows) -> LineColumns:
        """Return these rows, whose streams meet the matchers."""
        self._batch = rows.of
        return LineColumns(rows.places, *rows.lines) if self._reads_line else LineColumns(rows.places, None, {})

    def find_origins(self, columns: LineColumns) -> None:
        """Find what rows have in common that were selected last."""
        if self._batch is None:
            raise ValueError("no rows were selected")
        rows = columns.batch.column(ROW).to_numpy()
        entries = {scope: self._batch.entry_numbers(scope, self._may_be) for scope in _SCOPES}
        keys = [*self._keys(self._batch), *(one for one in entries.values() if one is not None)]
        numbers, first = joint_codes([one[rows] for one in keys])
        filled = [scope for scope in _SCOPES if self._types[scope] or entries[scope] is not None]
        kinds = LineColumns(self._kinds(self._batch, rows[first], filled), None, {})
        self._reader.find_origins(kinds)
        columns.set_origins(kinds.origins, kinds.origin_codes[numbers])

    def _types_of(self, columns: Iterable[Column], scope: Scope) -> Mapping[str, str]:
        """Return the types of the columns of the scope's attributes that can give a wanted label, by key."""
        types = shredded_columns(columns, scope)
        return {key: type_ for key, type_ in types.items() if self._wanted.can_be(key, is_map=type_ == "json")}

    def _may_be(self, key: str) -> bool:
        """Return whether an attribute with this key, of any type, can give a wanted label."""
        return self._wanted.can_be(key, is_map=True)

    def _keys(self, batch: StoredBatch) -> list[Any]:
        """Return numbers of all columns that can tell the labels of two rows apart, but for maps."""
        names = [RESOURCE_ID, *(name for name, is_read in self._fields.items() if is_read)]
        names += [scope.prefix + key for scope, types in self._types.items() for key in types]
        names += [DETECTED_LEVEL] if self._has_level else []
        keys = [batch.numbers(name) for name in names]
        keys += [batch.times] if self._fields.get("observed_timestamp") else []
        return [one for one in keys if one is not None]

    def _kinds(self, batch: StoredBatch, numbers: Any, filled: Collection[Scope]) -> pa.RecordBatch:
        """Return the columns of these rows that decide what rows have in common. The scopes that are `filled` may have
        wanted attributes."""
        rows = pa.array(numbers)
        ids = batch.batch.column(RESOURCE_ID).take(rows)
        resources = [batch.resources[id_] for id_ in ids.to_pylist()]
        found = {
            RESOURCE_ID: ids,
            "timestamp": pa.array(batch.times[numbers]),
            RESOURCE.map_column: pa.array([one for one, _ in resources], pa.string()),
            "resource_schema_url": pa.array([url for _, url in resources], pa.string()),
        }
        for name, is_read in self._fields.items():
            values = batch.values(name, rows) if is_read else None
            found[name] = pa.nulls(len(rows), pa.string()) if values is None else values
        for scope, types in self._types.items():
            texts = [self._text(batch, row, scope, types) if scope in filled else None for row in numbers.tolist()]
            found[scope.map_column] = pa.array(texts, pa.string())
        if self._has_level:
            found[DETECTED_LEVEL] = plain(batch.batch.column(DETECTED_LEVEL).take(rows)).fill_null("")
        return pa.record_batch(list(found.values()), list(found))

    def _text(self, batch: StoredBatch, row: int, scope: Scope, types: Mapping[str, str]) -> str | None:
        found = row_attributes(batch.batch, row, scope, types)
        wanted = {key: value for key, value in found.items() if key in types or self._may_be(key)}
        return attributes_text(wanted) if wanted else None
