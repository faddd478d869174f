"""The operator of workers for log queries: the lines that pass the pipeline, with their labels by kind.

Comes in: rows of log segments. Goes out: rows of `SCHEMA`; labels are JSON objects. What always holds: `timestamp`,
`arrived` and `row_number` order the lines of all units, those of equal time by their arrival. Bytes that are not UTF-8
are U+FFFD each, as Go writes them in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_stages import LineMask, stored_line_masks
from lakerunner.logql.line_conditions import line_conditions, tests_all_lines
from lakerunner.logql.log_rows import LogReader, source_sql
from lakerunner.logql.stages.hints import NO_HINTS
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.stored_streams import stored_streams
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.printer import exact_text
from lakerunner.logql.text.syntax import LabelFilter, Pipeline, Stage
from lakerunner.model.labels.row_view import within
from lakerunner.model.segment import Segment
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.operator import RowOperator, StreamPlan
from lakerunner.plan.scan import RESOURCE_ID, Scan

KINDS = ("stream", "metadata", "parsed")
_UNREADABLE = re.compile("[\ud800-\udfff]")  # carry bytes that are not UTF-8
SCHEMA = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("line", pa.string()),
        *((kind, pa.string()) for kind in KINDS),
        ("arrived", pa.int64()),
        ("row_number", pa.int64()),
        ("delivery", pa.int64()),
        ("delivery_row", pa.uint32()),
    ]
)


def _passing(batch: pa.RecordBatch, filters: Sequence[LineMask]) -> pa.RecordBatch:
    """Drop rows whose lines do not pass; those whose lines are written from bodies stay."""
    for mask in filters:
        kept = pc.or_(pa.array(mask(batch.column("message").fill_null(""))), batch.column("body").is_valid())
        batch = batch.filter(kept)
    return batch


def _readable(text: str) -> str:
    return text if text.isascii() else _UNREADABLE.sub("\ufffd", text)


def _labels_json(labels: Mapping[str, str]) -> str:
    try:
        return orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a template made a label of such a line
        return _labels_json({name: _readable(value) for name, value in labels.items()})


class FirstLines(NamedTuple):
    """The first `limit` lines of a query, the newest ones or the oldest."""

    limit: int
    newest: bool

    def condition(self, scan: Scan, where: Sequence[str]) -> str:
        """Return SQL for the rows of `where` that are among the first, or of equal time as the last of these. Rows with
        a body do not count: their lines may not pass."""
        order, last, end = ("DESC", "min", scan.time.start_ns) if self.newest else ("ASC", "max", scan.time.end_ns)
        sure = " AND ".join((within(scan.time), *where, "body IS NULL"))
        times = f'SELECT timestamp AS time_of_line FROM "{scan.relation}" WHERE {sure}'
        rows = f"{times} ORDER BY time_of_line {order} LIMIT {self.limit}"
        found = f"CASE WHEN count(*) = {self.limit} THEN {last}(time_of_line) ELSE make_timestamp_ns({end}) END"
        return f"timestamp {'>=' if self.newest else '<='} (SELECT {found} FROM ({rows}))"


def all_pass(stages: Sequence[Stage]) -> bool:
    """Return whether every line without a body that DuckDB lets pass is a line of the answer."""
    return tests_all_lines(stages) and not any(isinstance(stage, LabelFilter) for stage in stages)


@dataclass(frozen=True)
class LogLines(RowOperator):
    """`query` is the text of the log query. `now_ns` is the query's instant, for templates. `first`: of a unit no more
    than the first lines are wanted, the newest or the oldest, and those of equal time as the last of them; which rows a
    worker then gives depends on whether it can read the tables of streams, so that the operator is not steady."""

    name = "log_lines"

    query: str
    rules: StreamRules
    now_ns: int
    first: FirstLines | None = None
    steady: bool = True

    # Set by with_streams: SQL that holds for rows of the streams that meet the selector.
    of_streams: tuple[str, ...] | None = field(default=None, compare=False)

    @cached_property
    def pipeline(self) -> Pipeline:
        parsed = parse_logql(self.query)
        if not isinstance(parsed, Pipeline):
            raise ValueError(f"{self.query} is not a log query")
        return parsed

    @classmethod
    def of(cls, pipeline: Pipeline, rules: StreamRules, now_ns: int, first: FirstLines | None = None) -> LogLines:
        return cls(exact_text(pipeline), rules, now_ns, first, steady=first is None)

    @property
    def wants_streams(self) -> bool:
        return self.first is not None and all_pass(self.pipeline.stages)

    def with_streams(self, scan: Scan, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table]) -> StreamPlan:
        streams = stored_streams(segments, tables, self.pipeline.matchers, self.rules)
        if streams is None:
            return StreamPlan(self, scan, tuple(segments))
        own = replace(scan, internal=(*scan.internal, RESOURCE_ID))
        operator = replace(self, of_streams=streams.condition(scan.relation))
        return StreamPlan(operator, own, tuple(segments) if streams.resources else ())

    def source_sql(self, scan: Scan) -> str:
        where = line_conditions(self.pipeline.stages)
        if self.first is None or self.of_streams is None:
            return source_sql(scan, where)
        where += self.of_streams
        return source_sql(scan, (*where, self.first.condition(scan, where)))

    @property
    def result_schema(self) -> pa.Schema:
        return SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = compile_stages(self.pipeline.stages, NO_HINTS, self.now_ns)
        reader = LogReader(self.pipeline.matchers, self.rules)
        filters = stored_line_masks(self.pipeline.stages)
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for row in reader.rows(_passing(batch, filters)):
                labels = LineLabels(row.stream, row.metadata)
                line = pipeline.process(row.place.timestamp, row.line, labels)
                if line is not None:
                    line, kinds = _readable(line), map(_labels_json, labels.by_kind())
                    delivery, place = row.delivery or (None, None)
                    rows.append(
                        (row.place.timestamp, line, *kinds, row.place.arrived, row.place.row_number, delivery, place)
                    )
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
            arrays = [pa.array(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)]
            yield pa.record_batch(arrays, schema=SCHEMA)

    def to_json(self) -> dict[str, Any]:
        return {"query": self.query, "rules": self.rules.to_json(), "now_ns": self.now_ns, "first": self.first}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogLines:
        first = given["first"]
        return cls(
            str(given["query"]),
            StreamRules.from_json(given["rules"]),
            int(given["now_ns"]),
            None if first is None else FirstLines(int(first[0]), bool(first[1])),
            steady=first is None,
        )

    def lines(self) -> Iterator[str]:
        yield f"lines of {self.query}"
