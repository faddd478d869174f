"""The operator of workers for metric queries: the samples that the lines of a range aggregation give.

Comes in: rows of log segments. Goes out: for each line that passes the pipeline its time, its value and the labels of
its series; `fold` makes series of those of all units. What always holds: samples of one series are in the order of
time, those of equal time in the order of their arrival, and a row that was delivered twice counts once, however the
rows were cut into units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.logql.columns.column_samples import NotByColumns, SampleBatch, SampleColumns
from lakerunner.logql.columns.partial_sums import SUM_SCHEMA, Buckets, Windows, check_deliveries, not_summed, sum_rows
from lakerunner.logql.line_conditions import line_conditions
from lakerunner.logql.log_limits import DEFAULT_LIMITS, LogLimits
from lakerunner.logql.log_rows import LogReader, lines_scan, source_sql
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.sample import compile_extractor, is_whole, series_text
from lakerunner.logql.stored_sums import plan_sums
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Grouping, RangeAggregation
from lakerunner.model.labels import Labels
from lakerunner.model.segment import Segment
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.operator import StreamPlan
from lakerunner.plan.scan import Scan
from lakerunner.series.aggregations.aggregation import NotSplit
from lakerunner.series.evaluation.series_finish import SampleOperator
from lakerunner.series.values import NO_SAMPLES, Samples

_SCHEMA = pa.schema(
    [
        ("labels", pa.dictionary(pa.int32(), pa.string())),
        ("timestamp", pa.int64()),
        ("value", pa.float64()),
        ("arrived", pa.int64()),
        ("row_number", pa.int64()),
        ("delivery", pa.int64()),
        ("delivery_row", pa.uint32()),
    ]
)


@dataclass(frozen=True)
class LogSamples(SampleOperator):
    """`query` is the text of the range aggregation; `pushed` the grouping of a sum around it. `now_ns` is the query's
    instant, for templates. Samples are computed from columns where that is possible, unless `by_rows`. With
    `buckets`, whole numbers are summed where they are read, if no row was delivered twice. Lines outside of `windows`
    are not looked at: they raise no errors, as in Loki."""

    name = "log_samples"

    query: str
    pushed: Grouping | None
    rules: StreamRules
    now_ns: int
    limits: LogLimits = DEFAULT_LIMITS
    by_rows: bool = False
    buckets: Buckets | None = None
    windows: Windows | None = None

    @cached_property
    def aggregation(self) -> RangeAggregation:
        parsed = parse_logql(self.query)
        if not isinstance(parsed, RangeAggregation):
            raise ValueError(f"{self.query} is not a range aggregation")
        return parsed

    @cached_property
    def _columns(self) -> SampleColumns | None:
        return None if self.by_rows else SampleColumns.of(self.aggregation, self.pushed, self.rules, self.now_ns)

    @property
    def uses_columns(self) -> bool:
        return self._columns is not None

    def scan(self, start_ns: int, end_ns: int) -> Scan:
        """Return the scan of the lines of [start_ns, end_ns)."""
        return self._columns.needs.scan(start_ns, end_ns) if self._columns else lines_scan(start_ns, end_ns)

    def source_sql(self, scan: Scan) -> str:
        return source_sql(scan, (*line_conditions(self.aggregation.lines.pipeline.stages), *self._gaps))

    @property
    def _gaps(self) -> tuple[str, ...]:
        return (self.windows.condition,) if self.windows else ()

    @property
    def result_schema(self) -> pa.Schema:
        return SUM_SCHEMA if self._sums else _SCHEMA

    @property
    def _sums(self) -> Buckets | None:
        return self.buckets if self.uses_columns and is_whole(self.aggregation) else None

    @property
    def wants_streams(self) -> bool:
        return self._sums is not None

    def with_streams(self, scan: Scan, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table]) -> StreamPlan:
        sums = self._sums
        found = plan_sums(self._columns, sums, scan, segments, tables, self._gaps) if self._columns and sums else None
        return found or StreamPlan(self, scan, tuple(segments))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = 0
        for batch in self._run_columns(batches) if self.uses_columns else self._run_rows(batches):
            made += batch.num_rows
            self.limits.check_samples(made)
            yield batch

    def _run_columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = self._sums
        try:
            for samples in self._columns.run(batches) if self._columns else ():
                yield sum_rows(samples, sums) if sums else _sample_rows(samples)
        except (NotByColumns, NotSplit):
            yield not_summed() if sums else _not_by_columns()

    def _run_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        extract = compile_extractor(self.aggregation, self.pushed, self.now_ns)
        reader = LogReader(self.aggregation.lines.pipeline.matchers, self.rules)
        for batch in batches:
            found = _Columns()
            for row in reader.rows(batch):
                labels = LineLabels(row.stream, row.metadata)
                value = extract(row.place.timestamp, row.line, labels)
                if value is not None:
                    found.add(row, extract.series(labels), value)
            yield found.batch()

    def fold(self, batches: Iterable[pa.RecordBatch]) -> Samples:
        """Join the batches of all units, which come in any order. Raise TooLarge past the query's limits, NotSplit if a
        worker could not compute samples from columns."""
        kept, made = [], 0
        for batch in batches:
            if batch.column("labels").null_count and not self._sums:
                raise NotSplit
            made += batch.num_rows
            self.limits.check_samples(made)
            kept.append(batch)
        if not made:
            return NO_SAMPLES
        if self._sums:
            check_deliveries(kept)
        table = pa.Table.from_batches(kept).unify_dictionaries().combine_chunks()
        table = table.filter(table["labels"].is_valid()).combine_chunks() if self._sums else _without_repeats(table)
        return series_of(table, self.limits) if len(table) else NO_SAMPLES

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "pushed": None if self.pushed is None else [self.pushed.labels, self.pushed.without],
            "rules": self.rules.to_json(),
            "now_ns": self.now_ns,
            "limits": self.limits.to_json(),
            "by_rows": self.by_rows,
            "buckets": self.buckets,
            "windows": self.windows,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogSamples:
        pushed = given["pushed"]
        return cls(
            str(given["query"]),
            None if pushed is None else Grouping(tuple(pushed[0]), bool(pushed[1])),
            StreamRules.from_json(given["rules"]),
            int(given["now_ns"]),
            LogLimits.from_json(given["limits"]),
            bool(given["by_rows"]),
            None if given["buckets"] is None else Buckets(*map(int, given["buckets"])),
            None if given["windows"] is None else Windows(*map(int, given["windows"])),
        )

    def lines(self) -> Iterator[str]:
        yield f"samples of {self.query}"
        if self.pushed is not None:
            word = "all labels but" if self.pushed.without else "the labels"
            yield f"with {word} ({', '.join(self.pushed.labels)})"


class _Columns:
    """Collects the samples of one batch."""

    def __init__(self) -> None:
        self.timestamps: list[int] = []
        self._rows: list[tuple[int, float, int, int, int | None, int | None]] = []
        self._labels: dict[Labels, int] = {}
        self._codes: list[int] = []

    def add(self, row: Any, labels: Labels, value: float) -> None:
        self.timestamps.append(row.place.timestamp)
        self._codes.append(self._labels.setdefault(labels, len(self._labels)))
        delivery, place = row.delivery or (None, None)
        self._rows.append((row.place.timestamp, value, row.place.arrived, row.place.row_number, delivery, place))

    def batch(self) -> pa.RecordBatch:
        texts = pa.array([series_text(labels) for labels in self._labels], pa.string())
        labels = pa.DictionaryArray.from_arrays(pa.array(self._codes, pa.int32()), texts)
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * (len(_SCHEMA) - 1)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, list(_SCHEMA)[1:], strict=True)]
        return pa.record_batch([labels, *arrays], schema=_SCHEMA)


def _sample_rows(samples: SampleBatch) -> pa.RecordBatch:
    texts = pa.array([series_text(labels) for labels in samples.series], pa.string())
    labels = pa.DictionaryArray.from_arrays(pa.array(samples.codes, pa.int32()), texts)
    others = [samples.rows.column(name).cast(_SCHEMA.field(name).type) for name in _SCHEMA.names[3:]]
    arrays = [labels, samples.rows.column("timestamp"), pa.array(samples.values, pa.float64()), *others]
    return pa.record_batch(arrays, schema=_SCHEMA)


def _not_by_columns() -> pa.RecordBatch:
    """Return what a worker gives if it cannot compute samples from columns: a sample without labels. It is made when
    it is needed: Arrow reserves memory with its first array, and limits of memory are set after imports."""
    first, *others = _SCHEMA
    return pa.record_batch([pa.array([None], first.type), *(pa.array([0], one.type) for one in others)], _SCHEMA)


def _without_repeats(table: pa.Table) -> pa.Table:
    """Drop the rows of deliveries that came again later, as a merge does; rows without a delivery stay. Batches come in
    any order, so that the place of a row decides which of them stays."""
    delivery, place = table["delivery"], table["delivery_row"]
    known = np.flatnonzero(delivery.is_valid().to_numpy())
    if not len(known):
        return table
    ids = np.stack([delivery.fill_null(0).to_numpy()[known], place.fill_null(0).to_numpy()[known].astype(np.int64)])
    places = (table[name].to_numpy()[known] for name in ("row_number", "arrived"))
    latest = np.lexsort(tuple(places))[::-1]
    _, first = np.unique(ids[:, latest], axis=1, return_index=True)
    if len(first) == len(known):
        return table
    kept = ~delivery.is_valid().to_numpy()
    kept[known[latest[first]]] = True
    return table.filter(pa.array(kept)).combine_chunks()


def series_of(table: pa.Table, limits: LogLimits) -> Samples:
    """Make series of samples in any order, sorted by labels."""
    labels = table["labels"].chunk(0)
    texts = labels.dictionary.to_pylist()
    limits.check_series(len(texts))
    decoded: list[Labels] = [tuple((name, value) for name, value in orjson.loads(text)) for text in texts]
    order = sorted(range(len(decoded)), key=decoded.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    series = rank[labels.indices.to_numpy()]
    # Rows of segments that were committed together may have the same place: the delivery gives them an order.
    names = [name for name in ("delivery_row", "delivery", "row_number", "arrived") if table.schema == _SCHEMA]
    order_of = [table[name].fill_null(0).to_numpy() for name in names]
    times = table["timestamp"].to_numpy()
    places = np.lexsort((*order_of, times, series))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(series, minlength=len(order)))]).astype(np.int64)
    values = table["value"].to_numpy()[places]
    return Samples([decoded[n] for n in order], offsets, times[places].astype(np.int64), values)
