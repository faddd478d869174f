"""A batch of log rows as columns: their lines, and codes for what is stored of each.

Comes in: Arrow batches of a scan that `LineNeeds` describes. Goes out: `LineColumns`. What always holds: rows that are
equal in all that can give a wanted label share an `RowOrigin`, which the code of rows makes (model/streams/), once; so
that labels are what they are row by row. A line that is not UTF-8, and a row that is stored with an error, is odd: the
row stages have to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.selected_streams import SelectedStreams
from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS, EXTRACTED, PRESERVE_ERROR
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.model.streams.body_lines import body_lines
from lakerunner.model.streams.line_level import line_level
from lakerunner.model.streams.line_levels import LINE_LEVELS, line_levels
from lakerunner.model.streams.log_record import (
    LEVEL_TELLING,
    RecordFields,
    ResourceLabels,
    ScopeFields,
    holds_stored_levels,
    metadata_of,
    scope_metadata_of,
    stated_level_of,
)
from lakerunner.model.streams.stored_attributes import attributes_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import ARRIVED, DETECTED_LEVEL, RESOURCE_ID, ROW_NUMBER, Scan

RELATION = "lines"
_ERRORS = (ERROR, ERROR_DETAILS, PRESERVE_ERROR)
_LINE = ("message", "body")
_RESOURCE = (RESOURCE.map_column, "resource_schema_url")
# The columns of fields by the labels that they give; their defaults give none.
_FIELDS = {
    "observed_timestamp": "observed_timestamp",
    "severity_number": "severity_number",
    "severity_text": "severity_text",
    "dropped_attributes_count": "dropped_attributes_count",
    "flags": "flags",
    "trace_id": "trace_id",
    "span_id": "span_id",
    "event_name": "event_name",
}
_SCOPE_FIELDS = {
    "scope_name": "scope_name",
    "scope_version": "scope_version",
    "scope_dropped_attributes_count": "scope_dropped_attributes",
}
_MAX_KNOWN = 50_000  # origins that are remembered for further batches


@dataclass(frozen=True)
class LineNeeds:
    """What a query needs of lines: `names` are the labels that can matter, None for all; `line` whether the text
    does."""

    names: frozenset[str] | None
    line: bool
    rules: StreamRules

    @classmethod
    def of(cls, names: Iterable[str] | None, rules: StreamRules, *, line: bool) -> LineNeeds:
        if names is None:
            return cls(None, line, rules)
        bases = (name.removesuffix(EXTRACTED) for name in names)
        return cls(frozenset((*names, *bases, *_ERRORS)) - {""}, line, rules)

    @property
    def level(self) -> bool:
        return self.rules.detect_levels and (self.names is None or DETECTED_LEVEL in self.names)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the columns of fields that can give a wanted label, in the order in which they are stored."""
        known = _FIELDS | _SCOPE_FIELDS
        names = known if self.names is None else (self.names | (LEVEL_TELLING if self.level else frozenset()))
        return tuple(column for name, column in known.items() if name in names)

    def scan(self, start_ns: int, end_ns: int) -> Scan:
        """Return the scan of the lines of [start_ns, end_ns)."""
        start, end = max(start_ns, MIN_NS), min(end_ns, MAX_NS)
        line = _LINE if self.line or self.level else ()
        level = (DETECTED_LEVEL,) if self.level and holds_stored_levels(self.rules) else ()
        wanted = frozenset(_LINE if self.line else ()) | (self.names or frozenset()) | {DETECTED_LEVEL}
        sources = {*LEVEL_TELLING, *_LINE} - wanted if level and self.names is not None else set()
        labels = None if self.names is None else tuple(sorted(self.names | (LEVEL_TELLING if self.level else set())))
        return Scan(
            RELATION,
            "logs",
            TimeRange(start, max(start, end)),
            ("timestamp", *line, *self.fields, "resource_schema_url", "delivery", "delivery_row"),
            internal=(
                ARRIVED,
                ROW_NUMBER,
                RESOURCE_ID,
                RESOURCE.map_column,
                ATTRIBUTES.map_column,
                SCOPE.map_column,
                *level,
            ),
            labels=labels,
            level_sources=tuple(sorted(sources)),
        )


class RowOrigin(NamedTuple):
    """What rows that were stored alike have in common. `level` is None if their lines decide it; the metadata is
    without it."""

    resource: ResourceLabels
    metadata: Mapping[str, str]
    level: str | None

    def metadata_with(self, level: str) -> Mapping[str, str]:
        return {**self.metadata, DETECTED_LEVEL: level} if level else self.metadata


class Base(NamedTuple):
    """The stored labels of a row, by kind."""

    stream: Mapping[str, str]
    metadata: Mapping[str, str]


class LineColumns:
    """Rows of streams that meet the selector. `lines` has "" for odd lines, whose text is in `odd_lines`; it is None if
    no text is needed. `parsed` has the labels that parsers extracted. `alike` are odd rows of which row stages learn no
    more than that a parser fails."""

    def __init__(self, batch: pa.RecordBatch, lines: pa.Array | None, odd_lines: Mapping[int, str]) -> None:
        self.batch = batch
        self.lines = lines
        self._rows = np.arange(batch.num_rows)
        self._odd_lines = odd_lines
        self.odd = np.isin(self._rows, list(odd_lines)) if odd_lines else np.zeros(batch.num_rows, np.bool_)
        self.alike = np.zeros(batch.num_rows, np.bool_)
        self.parsed: dict[str, pa.Array] = {}
        self.origins: Sequence[RowOrigin] = ()
        self.origin_codes: Any = self._rows

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def keep(self, mask: Any) -> None:
        """Drop the rows where the mask is false; odd rows stay."""
        mask = mask | self.odd
        if mask.all():
            return
        kept = pa.array(mask)
        self.batch = self.batch.filter(kept)
        self.lines = None if self.lines is None else self.lines.filter(kept)
        self.parsed = {name: column.filter(kept) for name, column in self.parsed.items()}
        self._rows, self.odd, self.origin_codes = self._rows[mask], self.odd[mask], self.origin_codes[mask]
        self.alike = self.alike[mask]
        if "_bases" in self.__dict__:
            bases, codes = self._bases
            self.__dict__["_bases"] = bases, codes[mask]

    def set_origins(self, origins: Sequence[RowOrigin], codes: Any) -> None:
        self.origins, self.origin_codes = origins, codes
        self.odd |= np.array([not one.metadata.keys().isdisjoint(_ERRORS) for one in origins], np.bool_)[codes]

    def line(self, row: int) -> str:
        """Return the text of one row."""
        if self.lines is None:
            return ""
        odd = self._odd_lines.get(int(self._rows[row]))
        text: str = self.lines[row].as_py() if odd is None else odd
        return text

    def row_labels(self, row: int) -> Base:
        """Return the stored labels of one row, odd or not."""
        origin = self.origins[self.origin_codes[row]]
        level = line_level(self.line(row)) if origin.level is None else origin.level
        return Base(origin.resource.labels, origin.metadata_with(level))

    @property
    def bases(self) -> Sequence[Base]:
        return self._bases[0]

    @property
    def base_codes(self) -> Any:
        """Return the number of each row's stored labels among `bases`; those of odd rows mean nothing."""
        return self._bases[1]

    @cached_property
    def _bases(self) -> tuple[Sequence[Base], Any]:
        """Find the levels that lines state. Called after line filters, which leave fewer lines."""
        by_line = np.array([one.level is None for one in self.origins], np.bool_)[self.origin_codes]
        if not by_line.any() or self.lines is None:
            return [Base(one.resource.labels, one.metadata_with(one.level or "")) for one in self.origins], (
                self.origin_codes
            )
        levels = np.full(len(self), len(LINE_LEVELS), np.int64)
        levels[by_line] = line_levels(self.lines.filter(pa.array(by_line)))
        codes, first = joint_codes([self.origin_codes, levels])
        bases = []
        for row in first.tolist():
            origin, level = self.origins[self.origin_codes[row]], levels[row]
            named = LINE_LEVELS[level] if level < len(LINE_LEVELS) else origin.level or ""
            bases.append(Base(origin.resource.labels, origin.metadata_with(named)))
        return bases, codes


class ColumnReader:
    """Reads the rows of the streams that meet the matchers. It remembers streams, and this many origins, for further
    batches."""

    def __init__(self, matchers: Matchers, needs: LineNeeds, most_known: int = _MAX_KNOWN) -> None:
        self._stream = SelectedStreams(matchers, needs.rules)
        self._needs = needs
        self._rules = needs.rules
        self._unlevelled = replace(needs.rules, detect_levels=False)
        self._most_known = most_known
        self._origins: dict[tuple[Any, ...], RowOrigin] = {}

    def select(self, batch: pa.RecordBatch) -> LineColumns:
        """Return the lines of streams that meet the matchers."""
        codes, first = joint_codes([batch.column(name) for name in _resource_key(batch)])
        streams = [self._stream(*resource) for resource in _values(batch, _RESOURCE, first)]
        if None in streams:
            meets = np.array([stream is not None for stream in streams], np.bool_)[codes]
            batch = batch.filter(pa.array(meets))
        return (
            LineColumns(batch, *self._lines(batch)) if "message" in batch.schema.names else LineColumns(batch, None, {})
        )

    def find_origins(self, columns: LineColumns) -> None:
        """Find what rows have in common."""
        names = self._origin_columns(columns.batch)
        key = (*_resource_key(columns.batch), *names[len(_RESOURCE) :])
        codes, first = joint_codes([columns.batch.column(name) for name in key])
        columns.set_origins([self._origin(names, one) for one in _values(columns.batch, names, first)], codes)
        if len(self._origins) > self._most_known:
            self._origins.clear()

    def _origin_columns(self, batch: pa.RecordBatch) -> tuple[str, ...]:
        fields = self._needs.fields
        more = ["timestamp"] if "observed_timestamp" in fields else []
        more += [
            name for name in (ATTRIBUTES.map_column, SCOPE.map_column, DETECTED_LEVEL) if name in batch.schema.names
        ]
        return (*_RESOURCE, *fields, *more)

    def _origin(self, names: Sequence[str], values: tuple[Any, ...]) -> RowOrigin:
        found = self._origins.get(values)
        if found is None:
            found = self._origins[values] = self._read_origin(dict(zip(names, values, strict=True)))
        return found

    def _read_origin(self, row: Mapping[str, Any]) -> RowOrigin:
        resource = self._stream(row[RESOURCE.map_column], row["resource_schema_url"])
        if resource is None:
            raise ValueError("a row of a stream that does not meet the matchers")
        fields = ScopeFields(
            attributes_of(row[SCOPE.map_column]),
            row.get("scope_name") or "",
            row.get("scope_version") or "",
            row.get("scope_dropped_attributes") or 0,
        )
        scope = scope_metadata_of(fields, self._rules)
        record = RecordFields(
            attributes_of(row[ATTRIBUTES.map_column]),
            row.get("timestamp") or 0,
            row.get("observed_timestamp") or 0,
            row.get("severity_number") or 0,
            row.get("severity_text") or "",
            row.get("dropped_attributes_count") or 0,
            row.get("flags") or 0,
            row.get("trace_id") or "",
            row.get("span_id") or "",
            row.get("event_name") or "",
        )
        level: str | None = row.get(DETECTED_LEVEL)
        if level is None:
            is_stated, stated = stated_level_of(record, resource, scope, self._rules)
            level = (stated or "") if is_stated else None
        if not self._needs.level:
            level = ""
        return RowOrigin(resource, metadata_of(record, resource, scope, "", self._unlevelled), level)

    def _lines(self, batch: pa.RecordBatch) -> tuple[pa.Array, Mapping[int, str]]:
        """Return the lines, and those that no array can hold."""
        body = batch.column("body")
        is_body = body.is_valid()
        resources = zip(*(batch.column(name).filter(is_body).to_pylist() for name in _RESOURCE), strict=True)
        streams = (self._stream(*one) for one in resources)
        is_loki = [stream is not None and stream.is_loki for stream in streams]
        return line_texts(batch.column("message").fill_null(""), body, is_loki)


def line_texts(messages: pa.Array, bodies: pa.Array, is_loki: Sequence[bool]) -> tuple[pa.Array, Mapping[int, str]]:
    """Return the lines of rows, and those that no array can hold. `is_loki` is for each row with a body."""
    if bodies.null_count == len(bodies):
        return messages, {}
    is_body = bodies.is_valid()
    texts = body_lines(bodies.filter(is_body), is_loki)
    rows = np.flatnonzero(is_body.to_numpy(zero_copy_only=False)).tolist()
    odd = {
        row: text
        for row, text in zip(rows, texts, strict=True)
        if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text)
    }
    plain = ["" if row in odd else text for row, text in zip(rows, texts, strict=True)]
    return pc.replace_with_mask(messages, is_body, pa.array(plain, messages.type)), odd


def _resource_key(batch: pa.RecordBatch) -> tuple[str, ...]:
    """Return the columns that tell resources apart: their ids if all rows have them, since texts take longer."""
    return _RESOURCE if batch.column(RESOURCE_ID).null_count else (RESOURCE_ID,)


def joint_codes(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return (the number of each row's values of these columns together, the first row with each). A column is an
    array of Arrow, or the numbers of one."""
    numbers: Any = np.zeros(len(columns[0]), np.int64)
    count = min(1, len(numbers))
    for column in columns:
        coded = (pa.array(column) if isinstance(column, np.ndarray) else column).dictionary_encode("encode")
        size = len(coded.dictionary)
        if size > 1:
            # Numbered again after each column, so that products stay below the square of the rows.
            both = numbers * size + coded.indices.to_numpy()
            coded = pa.array(both).dictionary_encode()
            numbers, count = coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    first = np.empty(count, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # reversed, because the last assignment wins
    return numbers, first


def _values(batch: pa.RecordBatch, names: Sequence[str], rows: Any) -> list[tuple[Any, ...]]:
    """Return the values of these columns in these rows."""
    places = pa.array(rows, pa.int64())
    return list(zip(*(batch.column(name).take(places).to_pylist() for name in names), strict=True))
