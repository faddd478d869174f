"""The streams of a time range: their labels, how many lines they have, how many bytes, and from when to when.

Comes in: selectors as Loki's lists take them, and rows of log segments. Goes out: one row for each stream, or for each
stream and interval of time. What always holds: what a stream is, is decided by model/streams/ from what was stored;
results of units are joined by adding, so that it makes no difference how the rows were cut. A row that was delivered
twice counts once, so sizes are computed in one unit. Tables of streams (stream_counts.py) take the place of rows where
they can; the answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.logql.stream_counts import CountRequest, count_streams
from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.label_parse import parse_selector
from lakerunner.logql.text.lexer import END
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import OPERATORS, Matcher, Matchers, SelectorTest
from lakerunner.model.labels.row_view import within
from lakerunner.model.segment import Segment
from lakerunner.model.signal import RESOURCE
from lakerunner.model.streams.body_lines import body_lines
from lakerunner.model.streams.log_record import LOKI_MARKS, stored_stream_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.streams.stream_table import RESOURCE_ID
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import RowOperator, StreamPlan
from lakerunner.plan.plan import Cut, Leaf, Plan, SqlFinish
from lakerunner.plan.scan import Scan, internal_column

Selectors = tuple[Matchers, ...]
ONLY_MATCHERS = "only label matchers are supported"
_RELATION = "streams"
_COLUMNS = ("timestamp", "resource_schema_url")
_OF_LINES = ("message", "body", "delivery", "delivery_row")
_BY_RESOURCE, _BY_ID = (RESOURCE.map_column,), (RESOURCE_ID,)
_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("bucket", pa.int64()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
    ]
)
_FOLD = (
    "SELECT stream, bucket, CAST(sum(entries) AS BIGINT) AS entries, CAST(sum(bytes) AS BIGINT) AS bytes, "
    f'min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM "{_RELATION}" '
    "GROUP BY stream, bucket ORDER BY stream, bucket"
)


# ---- selectors


def read_matchers(text: str) -> Matchers:
    """Parse a selector that stands alone, as the lists of labels take it."""
    query = parse_logql(text)
    if not isinstance(query, Pipeline) or query.stages:
        raise UserError(ONLY_MATCHERS)
    return query.matchers


def read_series_matchers(text: str) -> Matchers:
    """Parse a selector of the list of series, which may match streams without the labels it names."""
    cursor = Cursor(text)
    matchers = parse_selector(cursor)
    if cursor.kind != END:
        raise cursor.unexpected()
    cursor.raise_fault()
    if not matchers:
        raise UserError(f"0 matchers in group: {text}")
    return matchers


# ---- the operator


@dataclass(frozen=True)
class LogStreams(RowOperator):
    """The streams that meet one of `selectors`, all if there are none. `bucket_ns` 0: one row for each stream, else
    one for each interval since the epoch. `sized` False: lines are neither counted nor read."""

    name = "log_streams"

    selectors: Selectors
    rules: StreamRules
    bucket_ns: int = 0
    sized: bool = False

    # Set by with_streams: what was counted, the streams by resource id if all rows have one, whether rows may be
    # delivered twice.
    counted: pa.RecordBatch | None = field(default=None, compare=False)
    names: Mapping[int, str | None] | None = field(default=None, compare=False)
    distinct: bool = field(default=True, compare=False)

    @property
    def wants_streams(self) -> bool:
        return True

    def with_streams(self, scan: Scan, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table]) -> StreamPlan:
        tests = self._tests()
        request = CountRequest(scan.time, self.bucket_ns, self.sized)
        found = count_streams(request, segments, tables, lambda resource, url: self._stream(resource, url, tests))
        by_id = all(segment.id in tables for segment in found.left)
        own = replace(self, counted=found.counted, names=found.names if by_id else None, distinct=found.is_doubtful)
        return StreamPlan(own, replace(scan, internal=_BY_ID) if by_id else scan, found.left)

    def source_sql(self, scan: Scan) -> str:
        number, resource = (f'"{internal_column(scan.relation, name)}"' for name in (RESOURCE_ID, RESOURCE.map_column))
        identity = f"{resource} AS resource" if self.names is None else f"{number} AS {RESOURCE_ID}"
        bucket = f"epoch_ns(timestamp) // {self.bucket_ns}" if self.bucket_ns else "CAST(0 AS BIGINT)"
        count, size, body = "CAST(0 AS BIGINT)", "CAST(0 AS BIGINT)", "CAST(NULL AS VARCHAR)"
        if self.sized:
            count, size, body = "count(*)", "CAST(sum(strlen(message)) AS BIGINT)", "body"
        rows = f'(SELECT * FROM "{scan.relation}" WHERE {within(scan.time)})'
        if self.sized and self.distinct:
            has_identity = "delivery IS NOT NULL AND delivery_row IS NOT NULL"
            rows = (
                f"(SELECT DISTINCT ON (delivery, delivery_row, timestamp) * FROM {rows} WHERE {has_identity} "
                f"UNION ALL SELECT * FROM {rows} WHERE NOT ({has_identity}))"
            )
        return (
            f"SELECT {identity}, resource_schema_url, {body} AS body, {bucket} AS bucket, {count} AS entries, "
            f"{size} AS bytes, min(epoch_ns(timestamp)) AS first_ns, max(epoch_ns(timestamp)) AS last_ns "
            f"FROM {rows} GROUP BY ALL"
        )

    @property
    def result_schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.counted is not None:
            yield self.counted.cast(_SCHEMA)
        tests = self._tests()
        for batch in batches:
            if self.names is None:
                identity = (batch.column(name).to_pylist() for name in ("resource", "resource_schema_url"))
                pairs = zip(*identity, strict=True)
                found = [self._stream(resource, url, tests) for resource, url in pairs]
            else:
                found = [self.names[number] for number in batch.column(RESOURCE_ID).to_pylist()]
            streams = pa.array(found, pa.string())
            columns = {name: batch.column(name).cast(pa.int64()) for name in _SCHEMA.names[1:]}
            if self.sized:
                columns["bytes"] = self._sizes(batch, columns)
            yield pa.record_batch([streams, *columns.values()], schema=_SCHEMA).filter(streams.is_valid())

    def _sizes(self, batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the bytes of the lines. Those of a body that is not a string come together, and are not its
        message."""
        bodies = batch.column("body")
        if bodies.null_count == len(bodies):
            return columns["bytes"]
        chosen = np.flatnonzero(bodies.is_valid().to_numpy(zero_copy_only=False))
        places = pa.array(chosen)
        is_loki = [url in LOKI_MARKS for url in batch.column("resource_schema_url").take(places).to_pylist()]
        lines = body_lines(bodies.take(places), is_loki)
        sizes = columns["bytes"].to_numpy().copy()
        entries = columns["entries"].to_numpy()[chosen]
        sizes[chosen] = entries * np.array([len(line.encode("utf-8", "surrogateescape")) for line in lines], np.int64)
        return pa.array(sizes)

    def _tests(self) -> list[SelectorTest]:
        return [SelectorTest(matchers) for matchers in self.selectors]

    def _stream(self, attributes: str, schema_url: str, tests: list[SelectorTest]) -> str | None:
        """Return the labels as JSON, None if no selector is met."""
        labels = stored_stream_of(self.rules)(attributes, schema_url).labels
        pairs = tuple(labels.items())
        if tests and not any(test(pairs) for test in tests):
            return None
        return orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS).decode()

    def to_json(self) -> dict[str, Any]:
        return {
            "selectors": [[[one.name, one.op, one.value] for one in matchers] for matchers in self.selectors],
            "rules": self.rules.to_json(),
            "bucket_ns": self.bucket_ns,
            "sized": self.sized,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogStreams:
        selectors = tuple(tuple(_matcher(*one) for one in matchers) for matchers in given["selectors"])
        bucket_ns, sized = int(given["bucket_ns"]), bool(given["sized"])
        if bucket_ns < 0:
            raise ValueError(f"intervals of {bucket_ns} ns")
        return cls(selectors, StreamRules.from_json(given["rules"]), bucket_ns, sized)

    def lines(self) -> Iterator[str]:
        shown = (", ".join(f"{one.name}{one.op}{one.value!r}" for one in matchers) for matchers in self.selectors)
        yield f"streams {' or '.join(f'{{{one}}}' for one in shown) or 'of all labels'}"


def _matcher(name: str, op: str, value: str) -> Matcher:
    return Matcher(str(name), next(one for one in OPERATORS if one == op), str(value))


def streams_plan(operator: LogStreams, time: TimeRange) -> Plan:
    """Return the plan that lists streams: rows of `stream` (JSON), `bucket`, `entries`, `bytes`, `first_ns`,
    `last_ns`, sorted by stream and bucket."""
    columns = _COLUMNS + (_OF_LINES if operator.sized else ())
    scan = Scan(_RELATION, "logs", time, columns, internal=_BY_RESOURCE)
    cut = Cut.WHOLE if operator.sized else Cut.SEGMENTS  # only one who sees all rows counts each once
    return Plan((Leaf(scan, operator, cut),), SqlFinish(_FOLD))
