"""The operator of workers for patterns: lines by fingerprint, level and interval of time, with a sample of each group.

Comes in: rows of log segments. Goes out: rows of `SCHEMA`, one for each fingerprint and level. What always holds: for a
selector alone DuckDB groups by the stored fingerprint; with stages the lines that pass are grouped by the tokens that
the fingerprint is made of. A unit gives its most frequent groups only; lines longer than MAX_LINE have no pattern. A
row that was delivered twice counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import orjson
import pyarrow as pa

from lakerunner.logql.columns.line_columns import RELATION
from lakerunner.logql.columns.selected_streams import SelectedStreams
from lakerunner.logql.log_lines import LogLines
from lakerunner.logql.log_rows import lines_scan
from lakerunner.logql.pattern_text import SPACES, signature
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.labels.row_view import within
from lakerunner.model.segment import digest64
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.model.streams.line_level import UNKNOWN
from lakerunner.model.streams.log_record import (
    DETECTED_LEVEL,
    RecordFields,
    ResourceLabels,
    ScopeFields,
    line_of,
    metadata_of,
    scope_metadata_of,
)
from lakerunner.model.streams.stored_attributes import attributes_of
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import RowOperator
from lakerunner.plan.plan import Leaf, Plan, SqlFinish
from lakerunner.plan.scan import Scan, internal_column

MAX_LINE = 4096  # bytes
SAMPLE = 8  # lines of a group
MAX_GROUPS = 1000  # of a unit
_HELD_GROUPS = 20_000  # while a unit runs; then the least frequent ones are dropped
_GROUP_COLUMNS = (
    "timestamp",
    "fingerprint",
    "message",
    "body",
    "severity_number",
    "severity_text",
    "resource_schema_url",
)
_GROUP_INTERNAL = (RESOURCE.map_column, ATTRIBUTES.map_column, SCOPE.map_column, DETECTED_LEVEL)
_NUMBERS = pa.list_(pa.int64())
SCHEMA = pa.schema(
    [
        ("fingerprint", pa.int64()),
        ("is_odd", pa.bool_()),
        ("level", pa.string()),
        ("buckets", _NUMBERS),
        ("counts", _NUMBERS),
        ("lines", pa.list_(pa.string())),
        ("low", pa.string()),
        ("high", pa.string()),
    ]
)


class GroupKey(NamedTuple):
    """Lines of one fingerprint and level. `is_odd`: they may have other gaps than single spaces, and their common start
    is not known."""

    fingerprint: int
    is_odd: bool
    level: str


@dataclass
class LineGroup:
    """How many lines each interval has, some of the lines, and the least and the greatest of all."""

    counts: Counter[int] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    low: str = ""
    high: str = ""

    def add(self, counts: Mapping[int, int], lines: Iterable[str], low: str, high: str) -> None:
        is_new = not self.counts
        self.counts.update(counts)
        self.low = low if is_new else min(self.low, low)
        self.high = high if is_new else max(self.high, high)
        # Which lines stay does not depend on the order in which they come.
        for line in lines:
            if len(self.lines) < SAMPLE or _rank(line) < _rank(self.lines[-1]):
                self.lines = sorted({*self.lines, line}, key=_rank)[:SAMPLE]

    @property
    def total(self) -> int:
        return self.counts.total()


def _rank(line: str) -> tuple[int, str]:
    return crc32(line.encode()), line


class LineGroups:
    """The groups of a unit, or of an answer."""

    def __init__(self) -> None:
        self.by_key: dict[GroupKey, LineGroup] = {}

    def add(self, key: GroupKey, counts: Mapping[int, int], lines: Iterable[str], low: str, high: str) -> None:
        if key not in self.by_key and len(self.by_key) >= _HELD_GROUPS:
            self.keep_largest(MAX_GROUPS)
        self.by_key.setdefault(key, LineGroup()).add(counts, lines, low, high)

    def keep_largest(self, count: int) -> None:
        ordered = sorted(self.by_key.items(), key=lambda one: (-one[1].total, one[0]))
        self.by_key = dict(ordered[:count])

    def batch(self) -> pa.RecordBatch:
        self.keep_largest(MAX_GROUPS)
        rows = [
            (*key, list(one.counts), list(one.counts.values()), one.lines, one.low, one.high)
            for key, one in self.by_key.items()
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
        return pa.record_batch([pa.array(own, one.type) for own, one in zip(columns, SCHEMA, strict=True)], SCHEMA)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add what `batch` wrote."""
        for row in batch.to_pylist():
            key = GroupKey(row["fingerprint"], row["is_odd"], row["level"])
            counts = dict(zip(row["buckets"], row["counts"], strict=True))
            self.add(key, counts, row["lines"], row["low"], row["high"])


@dataclass(frozen=True)
class LogPatterns(RowOperator):
    """Groups of the lines that pass `lines`, by intervals of `bucket_ns` since the epoch."""

    name = "log_patterns"

    lines_of: LogLines
    bucket_ns: int

    @property
    def by_fingerprint(self) -> bool:
        """Return whether DuckDB groups the rows."""
        return not self.lines_of.pipeline.stages

    def source_sql(self, scan: Scan) -> str:
        if not self.by_fingerprint:
            return self.lines_of.source_sql(scan)
        # The stored level is that of the default rules.
        return _groups_sql(scan, self.bucket_ns, with_level=self.lines_of.rules == DEFAULT_RULES)

    @property
    def result_schema(self) -> pa.Schema:
        return SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = LineGroups()
        if self.by_fingerprint:
            reader = _GroupReader(self.lines_of.pipeline, self.lines_of.rules, groups)
            for batch in batches:
                reader.add(batch)
        else:
            for batch in self.lines_of.run(batches):
                self._add_lines(batch, groups)
        yield groups.batch()

    def _add_lines(self, batch: pa.RecordBatch, groups: LineGroups) -> None:
        columns = (batch.column(name).to_pylist() for name in ("timestamp", "line", "metadata"))
        for timestamp, line, metadata in zip(*columns, strict=True):
            if has_pattern(line):
                level = orjson.loads(metadata).get(DETECTED_LEVEL) or UNKNOWN
                key = GroupKey(digest64(*signature(line)), is_odd(line), level)
                groups.add(key, {timestamp // self.bucket_ns: 1}, (line,), line, line)

    def to_json(self) -> dict[str, Any]:
        return {"lines": self.lines_of.to_json(), "bucket_ns": self.bucket_ns}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogPatterns:
        bucket_ns = int(given["bucket_ns"])
        if bucket_ns <= 0:
            raise ValueError(f"intervals of {bucket_ns} ns")
        return cls(LogLines.from_json(given["lines"]), bucket_ns)

    def lines(self) -> Iterator[str]:
        yield f"patterns of {self.lines_of.query}"


def has_pattern(line: str) -> bool:
    try:
        return 0 < len(line.encode()) <= MAX_LINE
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False


def is_odd(line: str) -> bool:
    """Return whether a line has gaps other than single spaces."""
    return "  " in line or line[0] == " " or line[-1] == " " or any(sign in line for sign in SPACES[1:])


# ---- groups that DuckDB makes


def _groups_sql(scan: Scan, bucket_ns: int, *, with_level: bool) -> str:
    """Return the SELECT of groups by resource, fingerprint, level and interval. Rows without a stored level are grouped
    by all that decides it."""
    resource, attributes, scope, stored = (f'"{internal_column(scan.relation, name)}"' for name in _GROUP_INTERNAL)
    level = stored if with_level else "CAST(NULL AS VARCHAR)"
    signs = " OR ".join(f"contains(message, chr({ord(sign)}))" for sign in SPACES[1:])
    odd = (
        f"(body IS NOT NULL OR contains(message, '  ') OR {signs} "
        "OR starts_with(message, ' ') OR ends_with(message, ' '))"
    )
    record = (
        f"CASE WHEN {level} IS NULL THEN struct_pack(attributes := {attributes}, scope := {scope}, "
        "number := severity_number, word := severity_text, message := message, body := body) END"
    )
    return (
        f"SELECT {resource} AS resource, resource_schema_url, fingerprint, {odd} AS is_odd, {level} AS level, "
        f"{record} AS record, epoch_ns(timestamp) // {bucket_ns} AS bucket, count(*) AS entries, "
        "min(message) AS low, max(message) AS high, "
        f"arg_min(struct_pack(message := message, body := body), hash(message), {SAMPLE}) AS lines "
        f'FROM "{scan.relation}" WHERE {within(scan.time)} AND strlen(message) BETWEEN 1 AND {MAX_LINE} '
        "GROUP BY ALL"
    )


class _GroupReader:
    """Adds the groups of the streams that meet the selector."""

    def __init__(self, pipeline: Pipeline, rules: StreamRules, groups: LineGroups) -> None:
        self._stream = SelectedStreams(pipeline.matchers, rules)
        self._rules = rules
        self._groups = groups

    def add(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            stream = self._stream(row["resource"], row["resource_schema_url"])
            if stream is None:
                continue
            lines = [line_of(one["message"], one["body"], is_loki=stream.is_loki) for one in row["lines"]]
            level = row["level"] or self._level(row["record"], stream, lines[0])
            key = GroupKey(row["fingerprint"], row["is_odd"], level or UNKNOWN)
            readable = [line for line in lines if has_pattern(line)]
            self._groups.add(key, {row["bucket"]: row["entries"]}, readable, row["low"], row["high"])

    def _level(self, record: Mapping[str, Any], stream: ResourceLabels, line: str) -> str:
        fields = RecordFields(
            attributes_of(record["attributes"]), 0, 0, record["number"], record["word"], 0, 0, "", "", ""
        )
        scope = scope_metadata_of(ScopeFields(attributes_of(record["scope"]), "", "", 0), self._rules)
        return metadata_of(fields, stream, scope, line, self._rules).get(DETECTED_LEVEL, "")


def patterns_plan(operator: LogPatterns, time: TimeRange) -> Plan:
    """Return the plan whose rows `LineGroups.add_batch` takes."""
    if operator.by_fingerprint:
        scan = Scan(RELATION, "logs", time, _GROUP_COLUMNS, internal=_GROUP_INTERNAL)
    else:
        scan = lines_scan(time.start_ns, time.end_ns)
    return Plan((Leaf(scan, operator),), SqlFinish(f'SELECT * FROM "{RELATION}"', passes=True))
