"""The streams of a time range: their labels, how many lines they have, how many bytes, and from when to when.

Comes in: selectors as Loki's lists take them, and rows of log segments. Goes out: one row for each stream, or for each
stream and interval of time. What always holds: what a stream is, is decided by model/streams/ from what was stored;
results of units are joined by adding, so that it makes no difference how the rows were cut. A row that was delivered
twice counts twice here: only a whole look at the rows would find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from lakerunner.logql.log_rows import attributes_of
from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.label_parse import parse_selector
from lakerunner.logql.text.lexer import END
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import OPERATORS, Matcher, Matchers, SelectorTest
from lakerunner.model.signal import RESOURCE
from lakerunner.model.streams.log_record import Resource, stream_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import RowOperator
from lakerunner.plan.plan import Leaf, Plan, SqlFinish
from lakerunner.plan.scan import Scan, internal_column

Selectors = tuple[Matchers, ...]
ONLY_MATCHERS = "only label matchers are supported"
_RELATION = "streams"
_COLUMNS = ("timestamp", "message", "resource_schema_url")
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
    one for each interval since the epoch. `sized` False: bytes are not counted, and lines not read."""

    name = "log_streams"

    selectors: Selectors
    rules: StreamRules
    bucket_ns: int = 0
    sized: bool = False

    def source_sql(self, scan: Scan) -> str:
        resource = internal_column(scan.relation, RESOURCE.map_column)
        bucket = f"epoch_ns(timestamp) // {self.bucket_ns}" if self.bucket_ns else "CAST(0 AS BIGINT)"
        size = "CAST(sum(strlen(message)) AS BIGINT)" if self.sized else "CAST(0 AS BIGINT)"
        return (
            f'SELECT "{resource}" AS resource, resource_schema_url, {bucket} AS bucket, count(*) AS entries, '
            f"{size} AS bytes, min(epoch_ns(timestamp)) AS first_ns, max(epoch_ns(timestamp)) AS last_ns "
            f'FROM "{scan.relation}" WHERE timestamp >= make_timestamp_ns({scan.time.start_ns}) '
            f"AND timestamp < make_timestamp_ns({scan.time.end_ns}) GROUP BY ALL"
        )

    def schema(self, rows: pa.Schema) -> pa.Schema:  # noqa: ARG002
        return _SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tests = [SelectorTest(matchers) for matchers in self.selectors]
        for batch in batches:
            attributes, urls = batch.column("resource").to_pylist(), batch.column("resource_schema_url").to_pylist()
            found = [self._stream(own, url, tests) for own, url in zip(attributes, urls, strict=True)]
            streams = pa.array(found, pa.string())
            columns = [streams, *(batch.column(name).cast(pa.int64()) for name in _SCHEMA.names[1:])]
            yield pa.record_batch(columns, schema=_SCHEMA).filter(streams.is_valid())

    def _stream(self, attributes: str, schema_url: str, tests: list[SelectorTest]) -> str | None:
        """Return the labels as JSON, None if no selector is met."""
        labels = stream_of(Resource(attributes_of(attributes), schema_url), self.rules).labels
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
    scan = Scan(_RELATION, "logs", time, _COLUMNS, internal=(RESOURCE.map_column,))
    return Plan((Leaf(scan, operator),), SqlFinish(_FOLD))
