"""The table of signals: how the pipeline treats each one, and the rollups of metrics.

To add a signal, add its `SignalSpec` (model/signal.py), which has its columns and sort order, and its row here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from lakerunner.model.hll import CARDINALITY
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column as SegmentColumn
from lakerunner.model.signal import LOGS, METRICS, ROLLUPS, TRACES, SignalSpec
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.streams.stream_table import STREAM_TABLE
from lakerunner.model.text_index import SIDE_FILE
from lakerunner.pipeline.merge.duplicates import Identify, by_columns, by_delivery, by_key, by_number
from lakerunner.pipeline.read.otlp import Request
from lakerunner.pipeline.read.otlp_logs import read_logs
from lakerunner.pipeline.read.otlp_metrics import read_metrics
from lakerunner.pipeline.read.otlp_requests import LOGS_REQUEST, METRICS_REQUEST, TRACES_REQUEST
from lakerunner.pipeline.read.otlp_traces import read_traces
from lakerunner.pipeline.read.rows import Raw, ReadResult, Rows
from lakerunner.pipeline.remote_write.reader import READ_V1, READ_V2
from lakerunner.pipeline.rule_parts import RuleCount, RuleParts
from lakerunner.pipeline.segment.series_files import CardinalitySide, SeriesTableSide
from lakerunner.pipeline.segment.stream_side import StreamTableSide
from lakerunner.pipeline.segment.text_index import TextIndexSide
from lakerunner.pipeline.segment.trace_index import TRACE_INDEX, TraceIndexSide
from lakerunner.pipeline.segment.writer import BuildSide, Consumer, Side, SideInputs
from lakerunner.pipeline.steps.points import add_metadata, identify_series, place_numbers
from lakerunner.pipeline.steps.record_columns import (
    add_fingerprint,
    name_service,
    reconcile_severity,
    render_message,
    time_points,
    time_records,
    time_spans,
)
from lakerunner.pipeline.steps.stream_columns import StreamColumns

Reader = Callable[[Sequence[Raw]], ReadResult]


class Evaluation(Consumer, Protocol):
    """Evaluates rules over the row groups that it gets. The same rows, however they are cut, give the same parts."""

    @property
    def over_limit(self) -> Collection[RuleVersion]:
        """The versions that would make more than they may, once finished."""

    @property
    def refused(self) -> Mapping[RuleVersion, str]:
        """Why versions cannot run."""

    @property
    def counts(self) -> Mapping[RuleVersion, RuleCount]:
        """What each version did whose rows there are."""

    def finish(self, sign: int = 1) -> Iterator[tuple[RuleVersion, pa.RecordBatch]]:
        """Return the parts of each version that has any; with sign -1 those that take these rows back. Call it once,
        after the last row group."""


Evaluate = Callable[[Sequence[RuleVersion], Sequence[SegmentColumn], StreamRules], Evaluation]


@dataclass(frozen=True)
class SignalRow:
    """`same_row` identifies rows that were delivered twice among those with equal sort keys. `sides` are the side files
    of a segment, by their names. `derive` makes columns of the others of a row group, also for merges of segments that
    lack them. `evaluate` begins to evaluate rules over row groups. The rest is for ingest: `readers` by format;
    `request` is OTLP's; `steps` take Rows and return Rows with more columns; `segment_steps` take Rows and the row
    numbers of each segment, and return Rows."""

    spec: SignalSpec
    same_row: Identify
    sides: Mapping[str, BuildSide]
    derive: Callable[[Sequence[SegmentColumn]], StreamColumns] | None = None
    evaluate: Evaluate | None = None
    readers: Mapping[str, Reader] = field(default_factory=dict)
    request: Request | None = None
    steps: tuple[Callable[[Rows], Rows], ...] = ()
    segment_steps: tuple[Callable[[Rows, Sequence[Any]], Rows], ...] = ()


_LOGS = SignalRow(
    LOGS,
    same_row=by_delivery,
    sides={
        SIDE_FILE: lambda given: TextIndexSide(given.columns),
        STREAM_TABLE: lambda given: StreamTableSide(given.columns),
    },
    derive=StreamColumns,
    evaluate=RuleParts,
    readers={"otlp": read_logs},
    request=LOGS_REQUEST,
    steps=(time_records, name_service, reconcile_severity, render_message, add_fingerprint),
)
_METRICS = SignalRow(
    METRICS,
    same_row=by_number,
    sides={SERIES_TABLE: lambda given: SeriesTableSide(given.facts)},
    readers={"otlp": read_metrics, "prw1": READ_V1, "prw2": READ_V2},
    request=METRICS_REQUEST,
    steps=(time_points, add_metadata, identify_series, name_service),
    segment_steps=(place_numbers,),
)
_TRACES = SignalRow(
    TRACES,
    same_row=by_columns,
    sides={TRACE_INDEX: lambda _given: TraceIndexSide()},
    readers={"otlp": read_traces},
    request=TRACES_REQUEST,
    steps=(time_spans, name_service),
)
_ROLLUPS = SignalRow(
    ROLLUPS,
    same_row=by_key,
    sides={
        SERIES_TABLE: lambda given: SeriesTableSide(given.facts),
        CARDINALITY: lambda _given: CardinalitySide(),
    },
)
_ROWS = (_LOGS, _METRICS, _TRACES, _ROLLUPS)
_BY_TABLE = {row.spec.table: row for row in _ROWS}
# By signal, and by signal and format.
REQUESTS = {row.spec.name: row.request for row in _ROWS if row.request}
READERS = {(row.spec.name, name): reader for row in _ROWS for name, reader in row.readers.items()}


def row_of(spec: SignalSpec) -> SignalRow:
    return _BY_TABLE[spec.table]


def sides_of(spec: SignalSpec, given: SideInputs) -> dict[str, Side]:
    """Return new builders of all side files of a segment of this spec, by the file's name."""
    return {name: build(given) for name, build in row_of(spec).sides.items()}
