"""The samples of a range aggregation from the points of a rule, and the check that the rows behind them are there once.

Comes in: the parts of a rule version (docs/decisions/0030), and the tables of streams of the segments that it covers.
Goes out: what LogSamples gives for the rows. What always holds: labels are tested by the stages that test those of
lines; a part that counts rows with errors, and a row that may be there twice, raise NotSplit: rows are read then, and
say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.deliveries import Deliveries
from lakerunner.logql.columns.line_columns import RELATION, joint_codes
from lakerunner.logql.columns.partial_sums import (
    SUM_SCHEMA,
    Buckets,
    check_deliveries,
    delivery_rows,
    not_summed,
    sum_batch,
)
from lakerunner.logql.log_limits import DEFAULT_LIMITS, LogLimits
from lakerunner.logql.log_samples import series_of
from lakerunner.logql.rule_guard import BUCKET_NS
from lakerunner.logql.stages.line_labels import ERROR, LineLabels
from lakerunner.logql.stages.sample import SampleExtractor, compile_extractor
from lakerunner.logql.stored_streams import stored_streams
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.printer import exact_text
from lakerunner.logql.text.syntax import Grouping, LogRange, Pipeline, RangeAggregation, Stage
from lakerunner.model.condition import Equals
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher, Matchers, SelectorTest
from lakerunner.model.labels.row_view import within
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, Attribute
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import StreamPlan
from lakerunner.plan.scan import Scan, attribute_column
from lakerunner.series.aggregations.aggregation import NotSplit
from lakerunner.series.evaluation.series_finish import SampleOperator
from lakerunner.series.values import NO_SAMPLES, Samples

_SELECTOR = Matcher("of", "=", "points")
_END, _VALUE = "end_of_bucket", "value_of_bucket"


@dataclass(frozen=True)
class PartSamples(SampleOperator):
    """Sums of the points of `metric` by the labels `by`; without `buckets` each point stays. `dimensions` are the
    labels that are read. `matchers`, and the filters of the text `filters`, are what a query asks of them beyond the
    rule."""

    name = "part_samples"

    metric: str
    by: tuple[str, ...]
    dimensions: tuple[str, ...]
    matchers: Matchers = ()
    filters: str = ""
    buckets: Buckets | None = None
    limits: LogLimits = DEFAULT_LIMITS

    def scan(self, start: int, end: int) -> Scan:
        """Return the scan of the points of (start, end]."""
        names = (*self.dimensions, ERROR)
        return Scan(
            RELATION,
            "metrics",
            TimeRange(start + 1, end + 1),
            ("timestamp", "value"),
            attributes=tuple(Attribute(ATTRIBUTES.map_column, name) for name in names),
            conditions=(Equals("metric_name", (self.metric,)),),
        )

    def source_sql(self, scan: Scan) -> str:
        labels = ", ".join(
            f'"{attribute_column(scan.relation, one)}" AS "{place}"' for place, one in enumerate(scan.attributes)
        )
        end = "epoch_ns(timestamp)"
        if self.buckets:
            start, width = self.buckets
            end = f"{start} + (({end} - {start} - 1) // {width} + 1) * {width}"
        # fsum compensates what is rounded; sums of whole numbers are exact either way.
        return (
            f"SELECT {labels}, {end} AS {_END}, fsum(value) AS {_VALUE} "
            f'FROM "{scan.relation}" WHERE {within(scan.time)} GROUP BY ALL'
        )

    @property
    def result_schema(self) -> pa.Schema:
        return SUM_SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._sums(batch)

    def _sums(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(str(place)) for place in range(len(self.dimensions) + 1)]
        if columns[-1].null_count < len(batch):  # rows that had an error
            return not_summed()
        codes, first = joint_codes(columns)
        found: dict[Labels, int] = {}
        series = []
        places = pa.array(first, pa.int64())
        for values in (
            zip(*(column.take(places).to_pylist() for column in columns[:-1]), strict=True)
            if columns[:-1]
            else [()] * len(first)
        ):
            labels = self._series(values)
            series.append(-1 if labels is None else found.setdefault(labels, len(found)))
        of_rows = np.array(series, np.int64)[codes]
        kept = np.flatnonzero(of_rows >= 0)
        values, ends = (batch.column(name).to_numpy()[kept] for name in (_VALUE, _END))
        return sum_batch(list(found), of_rows[kept], values, ends.astype(np.int64))

    def _series(self, values: Sequence[str | None]) -> Labels | None:
        """Return the labels of the sum, None for a point that the query does not ask for."""
        given = {name: value for name, value in zip(self.dimensions, values, strict=True) if value is not None}
        test, extract = self._tests
        if not test(tuple(given.items())):
            return None
        labels = LineLabels({}, given)
        if extract(0, "", labels) is None:
            return None
        if labels.error:
            raise NotSplit
        return extract.series(labels)

    @cached_property
    def _tests(self) -> tuple[SelectorTest, SampleExtractor]:
        pipeline = parse_logql(self.filters) if self.filters else Pipeline(())
        if not isinstance(pipeline, Pipeline):
            raise ValueError(f"{self.filters} is no pipeline")
        counted = RangeAggregation("count_over_time", LogRange(pipeline, BUCKET_NS))
        return SelectorTest(self.matchers), compile_extractor(counted, Grouping(self.by))

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Samples:
        """Join the sums of all units. Raise NotSplit if rows behind them had errors."""
        kept = list(batches)
        if not kept:
            return NO_SAMPLES
        check_deliveries(kept)
        table = pa.Table.from_batches(kept).unify_dictionaries().combine_chunks()
        return series_of(table, self.limits) if len(table) else NO_SAMPLES

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "by": self.by,
            "dimensions": self.dimensions,
            "matchers": [[one.name, one.op, one.value] for one in self.matchers],
            "filters": self.filters,
            "buckets": self.buckets,
            "limits": self.limits.to_json(),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> PartSamples:
        return cls(
            str(given["metric"]),
            tuple(given["by"]),
            tuple(given["dimensions"]),
            tuple(Matcher(*one) for one in given["matchers"]),
            str(given["filters"]),
            None if given["buckets"] is None else Buckets(*map(int, given["buckets"])),
            LogLimits.from_json(given["limits"]),
        )

    def lines(self) -> Iterator[str]:
        yield f"points of {self.metric} by ({', '.join(self.by)})"


def filters_text(stages: Sequence[Stage]) -> str:
    """Return the stages as a text that parses: a pipeline needs a selector."""
    return exact_text(Pipeline((_SELECTOR,), tuple(stages))) if stages else ""


@dataclass(frozen=True)
class RowsAreOnce(SampleOperator):
    """Looks whether a row of the selected streams may be in the segments twice. It reads tables of streams alone."""

    name = "rows_are_once"

    selector: str
    rules: StreamRules
    found: Deliveries | None = field(default=None, compare=False)

    @property
    def wants_streams(self) -> bool:
        return True

    @property
    def result_schema(self) -> pa.Schema:
        return SUM_SCHEMA

    def source_sql(self, scan: Scan) -> str:
        return f'SELECT timestamp FROM "{scan.relation}"'

    def with_streams(self, scan: Scan, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table]) -> StreamPlan:
        pipeline = parse_logql(self.selector)
        matchers = pipeline.matchers if isinstance(pipeline, Pipeline) else ()
        streams = stored_streams(segments, tables, matchers, self.rules)
        return StreamPlan(replace(self, found=streams.deliveries if streams else None), scan, ())

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        del batches
        yield not_summed() if self.found is None else delivery_rows(self.found)

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Samples:
        """Return no samples; raise NotSplit if a row may be there twice."""
        check_deliveries(list(batches))
        return NO_SAMPLES

    def to_json(self) -> dict[str, Any]:
        return {"selector": self.selector, "rules": self.rules.to_json()}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> RowsAreOnce:
        return cls(str(given["selector"]), StreamRules.from_json(given["rules"]))

    def lines(self) -> Iterator[str]:
        yield f"check that rows of {self.selector} are there once"
