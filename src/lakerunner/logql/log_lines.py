"""The operator of workers for log queries: the lines that pass the pipeline, with their labels by kind.

Comes in: rows of log segments. Goes out: rows of `SCHEMA`; labels are JSON objects. What always holds: `timestamp`,
`arrived` and `row_number` order the lines of all units, those of equal time by their arrival. Bytes that are not UTF-8
are U+FFFD each, as Go writes them in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_stages import LineMask, stored_line_masks
from lakerunner.logql.line_conditions import line_conditions
from lakerunner.logql.log_rows import LogReader, source_sql
from lakerunner.logql.stages.hints import NO_HINTS
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.printer import exact_text
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.operator import RowOperator
from lakerunner.plan.scan import Scan

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


@dataclass(frozen=True)
class LogLines(RowOperator):
    """`query` is the text of the log query. `now_ns` is the query's instant, for templates."""

    name = "log_lines"

    query: str
    rules: StreamRules
    now_ns: int
    steady: bool = True

    @cached_property
    def pipeline(self) -> Pipeline:
        parsed = parse_logql(self.query)
        if not isinstance(parsed, Pipeline):
            raise ValueError(f"{self.query} is not a log query")
        return parsed

    @classmethod
    def of(cls, pipeline: Pipeline, rules: StreamRules, now_ns: int) -> LogLines:
        return cls(exact_text(pipeline), rules, now_ns)

    def source_sql(self, scan: Scan) -> str:
        return source_sql(scan, line_conditions(self.pipeline.stages))

    def schema(self, rows: pa.Schema) -> pa.Schema:  # noqa: ARG002
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
        return {"query": self.query, "rules": self.rules.to_json(), "now_ns": self.now_ns}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogLines:
        return cls(str(given["query"]), StreamRules.from_json(given["rules"]), int(given["now_ns"]))

    def lines(self) -> Iterator[str]:
        yield f"lines of {self.query}"
