"""Segments of parts, as a rule's evaluation writes them: rows with values make a part of each bucket they are in."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import METRICS, PART_COLUMNS
from lakerunner.model.sketch import SCALE, bucket_of
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.merge.inputs import InputSeries
from lakerunner.pipeline.merge.output import RowGroups, SegmentOutput
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.segment.writer import SegmentIdentity, SideInputs
from lakerunner.pipeline.signals import sides_of
from lakerunner.series.grouping import add_compensated

COLLECTOR = "_errors.1"
METRIC = "errors"
BUCKET_MS = 10_000
_WRAP = 1 << 64
Key = tuple[str, int]  # the level, the end of the bucket in ms


@dataclass(frozen=True)
class PartRow:
    """A row of a source: its level, when it was, its value. One that `takes_back` is a copy that a merge dropped."""

    level: str
    time_ms: int
    value: float
    takes_back: bool = False

    @property
    def key(self) -> Key:
        return self.level, -(-self.time_ms // BUCKET_MS) * BUCKET_MS


@dataclass(frozen=True)
class PartValues:
    """What a part holds."""

    count: int
    sum: float
    error: float
    least: float | None
    most: float | None
    cells: Mapping[int, int]  # of positive values
    zeros: int


def parts_of(rows: Iterable[PartRow]) -> dict[Key, PartValues]:
    runs: dict[Key, list[PartRow]] = defaultdict(list)
    for row in rows:
        runs[row.key].append(row)
    return {key: _part(run) for key, run in sorted(runs.items())}


def _part(run: Sequence[PartRow]) -> PartValues:
    count, total, error, zeros = 0, 0.0, 0.0, 0
    cells: dict[int, int] = defaultdict(int)
    kept = [row.value for row in run if not row.takes_back]
    for row in run:
        sign = -1 if row.takes_back else 1
        count += sign
        total, error = add_compensated(sign * row.value, total, error)
        if row.value == 0:
            zeros += sign
        else:
            cells[int(bucket_of(np.float64(abs(row.value)).view(np.int64)))] += sign
    return PartValues(count, total, error, min(kept, default=None), max(kept, default=None), dict(cells), zeros)


def write_parts(
    store: Any,
    directory: Path,
    rows: Iterable[PartRow],
    *,
    organization: UUID,
    ingested: int,
    histogram: bool = False,
    collector: str = COLLECTOR,
    unit: str = "",
    times: int = 1,
) -> list[Segment]:
    """Write the segments of a file with these rows, one for each hour; each part `times` times."""
    parts = parts_of(rows)
    data = _request(parts, histogram, unit).SerializeToString()
    files: dict[str, bytes] = {}
    source = SourceObject("b", f"{collector}{ingested}", "e", len(data), 0)
    made = make_segments(
        METRICS,
        organization,
        collector,
        [Raw(source, memoryview(data))],
        lambda path, data: files.update({path: bytes(data)}),
    )
    assert not made.failed, made.failed
    return [
        _with_parts(store, directory, replace(segment, ingested=ingested + place), files, parts, times)
        for place, segment in enumerate(made.segments)
    ]


def _request(parts: Mapping[Key, PartValues], histogram: bool, unit: str) -> Any:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=METRIC, unit=unit)
    for (level, time), part in parts.items():
        times = {"time_unix_nano": time * 10**6, "start_time_unix_nano": (time - BUCKET_MS) * 10**6}
        total = part.sum + part.error
        if histogram:
            metric.exponential_histogram.aggregation_temporality = 1
            point = metric.exponential_histogram.data_points.add(
                **times, count=part.count % _WRAP, sum=total, scale=SCALE, zero_count=part.zeros % _WRAP
            )
            if part.least is not None and part.most is not None:
                point.min, point.max = part.least, part.most
            if part.cells:
                low = min(part.cells)
                point.positive.offset = low
                counts = [part.cells.get(cell, 0) % _WRAP for cell in range(low, max(part.cells) + 1)]
                point.positive.bucket_counts.extend(counts)
        else:
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = 1, True
            point = metric.sum.data_points.add(**times)
            if total.is_integer():
                point.as_int = int(total)
            else:
                point.as_double = total
        point.attributes.add(key="level").value.string_value = level
    return request


def _with_parts(
    store: Any,
    directory: Path,
    segment: Segment,
    files: Mapping[str, bytes],
    parts: Mapping[Key, PartValues],
    repeated: int,
) -> Segment:
    """Write the segment with the columns of parts."""
    table = pq.read_table(io.BytesIO(files[segment.path])).combine_chunks()
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    own = [parts[level, time // 10**6] for level, time in zip(_levels(table), times, strict=True)]
    values = (
        [one.count for one in own],
        [one.sum for one in own],
        [one.error or None for one in own],
        [one.least for one in own],
        [one.most for one in own],
    )
    for name, column in zip(PART_COLUMNS, values, strict=True):
        table = table.append_column(name, pa.array(column, METRICS.schema.field(name).type))
    named = {column.name: column for column in segment.columns}
    names = [name for name in METRICS.schema.names if name in table.column_names]
    names += [name for name in table.column_names if name not in METRICS.schema.names]
    (batch,) = table.select(names).take(np.repeat(np.arange(len(table)), repeated)).combine_chunks().to_batches()
    columns = tuple(named.get(name, Column(name, "")) for name in names)
    identity = SegmentIdentity(
        uuid5(segment.id, str(segment.ingested)), segment.organization, segment.collector, METRICS,
        ingested=segment.ingested,
    )  # fmt: skip
    output = SegmentOutput(batch.schema, columns, directory, lambda key, path: store.put(key, path.read_bytes()))
    given = SideInputs(columns, InputSeries([segment], lambda one, name: memoryview(files[one.side_path(name)])))
    return output.write(identity, RowGroups([batch], METRICS), sides_of(METRICS, given))


def _levels(table: pa.Table) -> list[str]:
    if "attributes.level" in table.column_names:
        return [str(one) for one in table.column("attributes.level").to_pylist()]
    return [str(dict(pairs)["level"]).strip('"') for pairs in table.column("attributes").to_pylist()]
