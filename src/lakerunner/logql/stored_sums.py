"""Sums of lines or bytes that DuckDB adds up, for each set of stored labels and bucket of time.

Comes in: the rows of a unit whose segments all have a table of streams. Goes out: what partial_sums.py makes of their
samples. What always holds: rows are grouped by all that can give a wanted label, so that the stages, which see labels
alone, run once for each group; line filters are tested by DuckDB, except those of lines that are written from bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_samples import NotByColumns, SampleBatch, SampleColumns
from lakerunner.logql.columns.partial_sums import SUM_SCHEMA, Buckets, delivery_rows, not_summed, sum_batch
from lakerunner.logql.line_conditions import line_conditions, tests_all_lines
from lakerunner.logql.stored_streams import StoredStreams, stored_streams
from lakerunner.model.labels.row_view import within
from lakerunner.model.segment import Segment
from lakerunner.model.signal import RESOURCE
from lakerunner.model.time import MAX_NS, MIN_NS
from lakerunner.plan.operator import RowOperator, StreamPlan
from lakerunner.plan.scan import ARRIVED, DETECTED_LEVEL, RESOURCE_ID, ROW_NUMBER, Scan, internal_column
from lakerunner.series.aggregations.aggregation import NotSplit

_LINE = ("message", "body")
_BUCKET, _LINES, _BYTES = _OF_GROUP = "bucket_of_group", "lines_of_group", "bytes_of_group"
_NOT_GROUPED = (ARRIVED, ROW_NUMBER, RESOURCE.map_column)


@dataclass(frozen=True)
class StoredSums(RowOperator):
    """It runs in place of `LogSamples` in a worker and is sent nowhere. `unread`: columns that matter no more where
    levels are stored; each column to group by costs time, constants too. `where`: further SQL for its lines."""

    name = "stored_sums"

    columns: SampleColumns
    buckets: Buckets
    streams: StoredStreams
    unread: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    @cached_property
    def alike(self) -> Mapping[int, int]:
        needs = self.columns.needs
        return self.streams.alike(needs.rules, needs.names or frozenset())

    def source_sql(self, scan: Scan) -> str:
        others = list(dict.fromkeys(self.alike.values()))
        if len(others) < 2:
            return self._groups(scan, str(others[0]) if others else "CAST(0 AS BIGINT)")
        # Many resources are alike in what is wanted. Joined behind the first GROUP BY they cost nothing; as texts they
        # are bound at once, where VALUES take a millisecond for twenty rows.
        ids, alike = (
            f"unnest(CAST('[{', '.join(map(str, own))}]' AS BIGINT[]))" for own in (self.alike, self.alike.values())
        )
        keys = ", ".join(f'"{name}"' for _, name in self._keys(scan))
        return (
            f"SELECT other AS {RESOURCE_ID}, {keys}, CAST(sum({_LINES}) AS BIGINT) AS {_LINES}, "
            f"CAST(sum({_BYTES}) AS BIGINT) AS {_BYTES} "
            f"FROM ({self._groups(scan, _resource_column(scan))}) "
            f"JOIN (SELECT {ids} AS id, {alike} AS other) ON {RESOURCE_ID} = id GROUP BY ALL"
        )

    def _groups(self, scan: Scan, resource: str) -> str:
        """Return the SELECT of lines and bytes for each set of stored labels; `resource` is SQL for the resource."""
        keys = ", ".join(f'{sql} AS "{name}"' for sql, name in self._keys(scan))
        size = "CAST(sum(strlen(message)) AS BIGINT)" if self.columns.is_of_bytes else "CAST(0 AS BIGINT)"
        where = (
            within(scan.time),
            *line_conditions(self.columns.aggregation.lines.pipeline.stages),
            *self.streams.condition(scan.relation),
            *self.where,
        )
        return (
            f"SELECT CAST({resource} AS BIGINT) AS {RESOURCE_ID}, {keys}, count(*) AS {_LINES}, {size} AS {_BYTES} "
            f'FROM "{scan.relation}" WHERE {" AND ".join(where)} GROUP BY ALL'
        )

    def _keys(self, scan: Scan) -> list[tuple[str, str]]:
        """Return what rows are grouped by beside their resource: SQL, and the name of the column."""
        start, width = self.buckets
        found = [(f'"{name}"', name) for name in scan.columns if name not in ("timestamp", "message")]
        found += [(f'"{internal_column(scan.relation, name)}"', name) for name in scan.internal if name != RESOURCE_ID]
        return [*found, (f"{start} + ((epoch_ns(timestamp) - {start} - 1) // {width} + 1) * {width}", _BUCKET)]

    @property
    def result_schema(self) -> pa.Schema:
        return SUM_SCHEMA

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield delivery_rows(self.streams.deliveries)
        try:
            for batch in batches:
                for name in self.unread:
                    batch = batch.append_column(name, pa.nulls(batch.num_rows, pa.string()))
                names = (RESOURCE.map_column, "resource_schema_url")
                yield from self._sums(self.streams.with_resources(batch, names))
        except (NotByColumns, NotSplit):
            yield not_summed()

    def _sums(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if "body" not in batch.schema.names:
            yield from self._of_messages(batch)
            return
        is_body = batch.column("body").is_valid()
        yield from self._of_messages(batch.filter(pc.invert(is_body)).drop_columns(["body"]))
        bodies = batch.filter(is_body)
        if bodies.num_rows:
            yield from self._of_bodies(bodies.append_column("message", pa.nulls(bodies.num_rows, pa.string())))

    def _of_messages(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for samples in self.columns.run_groups([batch], _OF_GROUP, filtered=True):
            sums = samples.rows.column(_BYTES if self.columns.is_of_bytes else _LINES)
            yield self._summed(samples, sums.to_numpy().astype(np.float64))

    def _of_bodies(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for samples in self.columns.run_groups([batch], _OF_GROUP, filtered=False):
            yield self._summed(samples, samples.values * samples.rows.column(_LINES).to_numpy())

    def _summed(self, samples: SampleBatch, values: Any) -> pa.RecordBatch:
        return sum_batch(samples.series, samples.codes, values, samples.rows.column(_BUCKET).to_numpy())

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError("stored sums are computed where their tables were read")

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StoredSums:
        raise NotImplementedError("stored sums are computed where their tables were read")

    def lines(self) -> Iterator[str]:
        yield "sums of stored lines"


def plan_sums(
    columns: SampleColumns,
    buckets: Buckets,
    scan: Scan,
    segments: Sequence[Segment],
    tables: Mapping[UUID, pa.Table],
    where: tuple[str, ...],
) -> StreamPlan | None:
    """Return what adds up the lines of these segments in DuckDB, those of `where`; None if that is not exact."""
    aggregation, needs = columns.aggregation, columns.needs
    stages = aggregation.lines.pipeline.stages
    if needs.names is None or columns.stages.parses_line or not tests_all_lines(stages):
        return None
    if "observed_timestamp" in needs.fields or not MIN_NS < scan.time.start_ns < scan.time.end_ns < MAX_NS:
        return None
    if needs.level and not (DETECTED_LEVEL in scan.internal and all(map(_has_levels, segments))):
        return None
    streams = stored_streams(segments, tables, aggregation.lines.pipeline.matchers, needs.rules)
    if streams is None:
        return None
    unread = tuple(name for name in needs.fields if name in scan.level_sources)
    own = replace(
        scan,
        columns=("timestamp", *(_LINE if needs.line else ()), *(one for one in needs.fields if one not in unread)),
        internal=tuple(name for name in scan.internal if name not in _NOT_GROUPED),
    )
    return StreamPlan(
        StoredSums(columns, buckets, streams, unread, where), own, tuple(segments) if streams.resources else ()
    )


def _resource_column(scan: Scan) -> str:
    return f'"{internal_column(scan.relation, RESOURCE_ID)}"'


def _has_levels(segment: Segment) -> bool:
    return any(column.name == DETECTED_LEVEL for column in segment.columns)
