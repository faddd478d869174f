"""Raw objects to segments: the whole of what a task does between unpacking and commit.

Comes in: the unpacked bytes of some source objects of one organization, collector and signal. Goes out: their rows as Parquet
files, through `put`, with the index row of each; which objects these hold; and which were set aside, with the reason.

What always holds: an object is done with all of its rows or failed with none, and its neighbours do not notice. The same
objects give the same ids and the same bytes, in whatever order they come and however often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.model.fingerprint import INCOMPLETE, field_fingerprints
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.signal import RESOURCE, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.pipeline.read.names import texts_of
from lakerunner.pipeline.read.otlp_logs import read_logs
from lakerunner.pipeline.read.rows import Raw, Rows
from lakerunner.pipeline.steps.layout import Layout, batch_of, lay_out
from lakerunner.pipeline.steps.message import render_message
from lakerunner.pipeline.steps.order import split_and_sort
from lakerunner.pipeline.steps.pattern import add_fingerprint
from lakerunner.pipeline.steps.service import name_service
from lakerunner.pipeline.steps.severity import reconcile_severity
from lakerunner.pipeline.steps.times import set_times
from lakerunner.pipeline.write import ROW_GROUP_ROWS, write_parquet

__all__ = ["Made", "Raw", "make_segments"]

READERS = {("logs", "otlp"): read_logs}
STEPS = {"logs": (set_times, name_service, reconcile_severity, render_message, add_fingerprint)}

MAX_SERVICES = 100
MAX_FINGERPRINTS = 2000


@dataclass(frozen=True)
class Made:
    """Every object that came in is in `done` or in `failed`, once."""

    segments: tuple[Segment, ...]
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]


def make_segments(
    spec: SignalSpec,
    organization: UUID,
    collector: str,
    raws: Sequence[Raw],
    put: Callable[[str, memoryview], None],
) -> Made:
    """Write the segments of these objects; every file is written when this returns."""
    distinct = {raw.source.identity: raw for raw in raws}
    read = READERS[spec.name, "otlp"]([distinct[identity] for identity in sorted(distinct)])
    if read.rows is None:
        return Made((), read.done, read.failed)
    rows = read.rows
    for step in STEPS[spec.name]:
        rows = step(rows)
    identities = [part for source in read.done for part in source.identity]
    segments = []
    for order in split_and_sort(rows, spec):
        layout = lay_out(rows, order, spec)
        data = write_parquet(layout.schema, _row_groups(layout, order), spec, _distinct(rows, order, spec))
        times = rows.numbers("timestamp")[order]
        time = TimeRange(int(times.min()), int(times.max()) + 1)
        services = _services(rows, order)
        segment = Segment(
            segment_id(str(organization), collector, spec.name, spec.sort_version, identities, time.start_ns // HOUR_NS),
            organization,
            collector,
            spec.name,
            time,
            len(order),
            data.size,
            spec.sort_version,
            (*(Column(name, "") for name in spec.schema.names), *layout.shredded),
            statistics={"services": services[:MAX_SERVICES], "service_count": len(services)},
            fingerprints=_fingerprints(layout, services),
        )
        put(segment.path, memoryview(data))
        segments.append(segment)
    return Made(tuple(segments), read.done, read.failed)


def _row_groups(layout: Layout, order: Any) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(order), ROW_GROUP_ROWS):
        yield batch_of(layout, order[start : start + ROW_GROUP_ROWS])


def _distinct(rows: Rows, order: Any, spec: SignalSpec) -> dict[str, int]:
    """The most different values of each bloom column in a row group."""
    return {name: min(len(order), ROW_GROUP_ROWS) for name in spec.bloom}


def _services(rows: Rows, order: Any) -> list[str]:
    """The names of the services in these rows, sorted."""
    column = rows.columns["service_name"]
    codes = np.bincount(column.codes[column.owner[order]], minlength=len(column.values))
    return sorted(column.values.take(pa.array(np.flatnonzero(codes))).to_pylist())


def _fingerprints(layout: Layout, services: Sequence[str]) -> tuple[int, ...]:
    """What the segment holds: its services, and which attribute keys occur."""
    count = 1 + len(services) + sum(len(plan.present) for plan in layout.plans.values())
    if count > MAX_FINGERPRINTS:
        return (INCOMPLETE,)
    found = set(field_fingerprints("service_name", services))
    for scope, plan in layout.plans.items():
        names = texts_of(layout.rows.attached[scope.map_column].keys, layout.rows.data)
        for number in plan.present.tolist():
            found.update(field_fingerprints(scope.prefix + names[number].decode()))
    return tuple(sorted(found))
