"""What tables of streams count, and which segments' rows must be read all the same.

Comes in: segments, the tables of those that have one, and which of their resources are looked for. Goes out: lines,
bytes and times of these resources, and the segments that are left. What always holds: a row that was delivered twice is
counted once. It may be in two segments only if both have its delivery, in times that overlap: such segments are left,
as are those with repeated rows, and those that overlap with a segment without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.deliveries import Deliveries, overlapping
from lakerunner.model.segment import Segment
from lakerunner.model.streams.stream_table import RESOURCE_ID
from lakerunner.model.time import TimeRange

# The labels of a stream as JSON, of a resource and its schema URL; None if it is not looked for.
NameStream = Callable[[str, str], str | None]


@dataclass(frozen=True)
class CountRequest:
    """The lines of `time`, by intervals of `bucket_ns` since the epoch, 0 for one; `sized`: each line once."""

    time: TimeRange
    bucket_ns: int
    sized: bool


@dataclass(frozen=True)
class StreamCounts:
    """`names` are the streams by resource id. `counted` has the columns of the operator's rows. `left` are the segments
    to be read, with rows that are in it twice if `is_doubtful`."""

    names: Mapping[int, str | None]
    counted: pa.RecordBatch | None
    left: tuple[Segment, ...]
    is_doubtful: bool


def count_streams(
    request: CountRequest, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table], name: NameStream
) -> StreamCounts:
    """Count what the tables can tell."""
    names: dict[int, str | None] = {}
    views: dict[UUID, SegmentStreams] = {}
    for segment in segments:
        if segment.id in tables:
            view = SegmentStreams(tables[segment.id], names, name)
            if view.overlaps(request.time):
                views[segment.id] = view
    bare = [segment for segment in segments if segment.id not in tables]
    read = {segment.id for segment in bare}
    read |= {id_ for id_, view in views.items() if not view.fits(request)}
    doubtful: set[UUID] = set()
    if request.sized:
        doubtful = doubtful_segments(views, [segment.time for segment in bare])
    read |= doubtful
    batches = [view.counted(request) for id_, view in views.items() if id_ not in read]
    counted = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
    left = tuple(segment for segment in segments if segment.id in read)
    return StreamCounts(names, counted[0] if counted else None, left, bool(doubtful or bare))


class SegmentStreams:
    """The resources of a segment that are looked for. The arrays of `levels` have an element for each level of each."""

    def __init__(self, table: pa.Table, names: dict[int, str | None], name: NameStream) -> None:
        ids = table.column(RESOURCE_ID).to_pylist()
        for place, number in enumerate(ids):
            if number not in names:
                text, url = (table.column(one)[place].as_py() for one in ("resource", "resource_schema_url"))
                names[number] = name(text, url)
        places = [place for place, number in enumerate(ids) if names[number] is not None]
        own = table if len(places) == len(ids) else table.take(pa.array(places, pa.int64()))
        levels = own.column("levels").combine_chunks()
        entries = levels.flatten()
        self.count = len(places)
        self._of = np.repeat(np.arange(len(places)), levels.value_lengths().to_numpy(zero_copy_only=False))
        self._streams = [names[ids[place]] for place in places]
        self._levels = {name: entries.field(name).to_numpy() for name in ("rows", "bytes", "first_ns", "last_ns")}
        deliveries = own.column("deliveries").combine_chunks()
        self.deliveries = deliveries.flatten().to_numpy()
        self._delivered = deliveries.value_lengths().to_numpy(zero_copy_only=False)
        self.repeats = bool(own.column("repeats").to_numpy().any())

    def overlaps(self, time: TimeRange) -> bool:
        first, last = self._levels["first_ns"], self._levels["last_ns"]
        return bool(((first < time.end_ns) & (last >= time.start_ns)).any())

    def fits(self, request: CountRequest) -> bool:
        """Return whether all lines are of the time, and those that are counted together of one interval."""
        first, last = self._levels["first_ns"], self._levels["last_ns"]
        inside = (first >= request.time.start_ns) & (last < request.time.end_ns)
        if request.bucket_ns:
            inside &= first // request.bucket_ns == last // request.bucket_ns
        return bool(inside.all())

    def counted(self, request: CountRequest) -> pa.RecordBatch:
        levels, nothing = self._levels, np.zeros(len(self._of), np.int64)
        if not request.sized:
            levels = {**levels, "rows": nothing, "bytes": nothing}
        bucket = levels["first_ns"] // request.bucket_ns if request.bucket_ns else nothing
        streams = pa.array(self._streams, pa.string()).take(pa.array(self._of))
        values = [streams, bucket, levels["rows"], levels["bytes"], levels["first_ns"], levels["last_ns"]]
        return pa.RecordBatch.from_arrays(
            [pa.array(one) if isinstance(one, np.ndarray) else one for one in values],
            names=["stream", "bucket", "entries", "bytes", "first_ns", "last_ns"],
        )

    def times(self) -> tuple[Any, Any]:
        """Return the first and the last time of each resource."""
        first, last = np.full(self.count, np.iinfo(np.int64).max), np.full(self.count, np.iinfo(np.int64).min)
        np.minimum.at(first, self._of, self._levels["first_ns"])
        np.maximum.at(last, self._of, self._levels["last_ns"])
        return first, last

    def delivery_times(self) -> tuple[Any, Any]:
        """Return the first and the last time of each delivery's resource."""
        first, last = self.times()
        return np.repeat(first, self._delivered), np.repeat(last, self._delivered)


def doubtful_segments(views: Mapping[UUID, SegmentStreams], bare: Sequence[TimeRange]) -> set[UUID]:
    """Return the segments that may hold rows which are in them, or in another segment, once more."""
    found = {id_ for id_, view in views.items() if view.repeats}
    for id_, view in views.items():
        first, last = view.times()
        if any(first.min() < time.end_ns and last.max() >= time.start_ns for time in bare):
            found.add(id_)
    ids = list(views)
    if len(ids) > 1:
        stated = all_deliveries(list(views.values()))
        owner = np.repeat(np.arange(len(ids)), [len(view.deliveries) for view in views.values()])
        for one, other in overlapping(stated.ids, stated.first_ns, stated.last_ns):
            if owner[one] != owner[other]:
                found |= {ids[owner[one]], ids[owner[other]]}
    return found


def all_deliveries(views: Sequence[SegmentStreams]) -> Deliveries:
    """Return the deliveries of the segments, one segment after the other."""
    none = np.zeros(0, np.int64)
    times = [view.delivery_times() for view in views]
    first, last = (np.concatenate([none, *part]) for part in zip(*times, strict=True)) if times else (none, none)
    return Deliveries(np.concatenate([none, *(view.deliveries for view in views)]), first, last)
