"""Raw objects to segments: the whole of what a task does between unpacking and commit.

Comes in: the unpacked bytes of some source objects of one organization, collector and signal. Goes out: their rows as
Parquet files, through `put`, with the index row of each; which objects these hold; and which were set aside, and why.

What always holds: an object is done with all of its rows or failed with none, and its neighbours do not notice. The
same objects give the same ids and the same bytes, in whatever order they come and however often.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import SIGNALS, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.encoding import encodings_of
from lakerunner.pipeline.read.otlp import Oversized, Request, checked, other_signal
from lakerunner.pipeline.read.pieces import pieces
from lakerunner.pipeline.read.remote_write import warm_remote_write
from lakerunner.pipeline.read.rows import Numbers, Raw, Read, Rows
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.pipeline.read.shared import count_shared, reason_to_refuse
from lakerunner.pipeline.sides.side import SideInputs
from lakerunner.pipeline.signals import READERS, REQUESTS, row_of, sides_of
from lakerunner.pipeline.steps.layout import batch_of, lay_out
from lakerunner.pipeline.steps.order import row_groups, split_and_sort
from lakerunner.pipeline.steps.series_labels import RowSeries
from lakerunner.pipeline.steps.times import Noted, add_up, note_times
from lakerunner.pipeline.write import FileForm, Identity, SegmentWriter

__all__ = ["READERS", "Made", "Raw", "make_segments", "signal_in", "warm"]

Put = Callable[[str, memoryview], object]
Write = Callable[["_Work", Rows], "_Written"]


@dataclass(frozen=True)
class Made:
    """Every object that came in is in `done` or in `failed`, once. `counts` are the rows of each that is done; `notes`
    are on some of them, at most one of a kind on each."""

    segments: tuple[Segment, ...] = ()
    done: tuple[SourceObject, ...] = ()
    failed: tuple[tuple[SourceObject, str], ...] = ()
    counts: tuple[int, ...] = ()
    notes: tuple[Noted, ...] = ()

    def plus(self, other: Made) -> Made:
        return Made(
            self.segments + other.segments,
            self.done + other.done,
            self.failed + other.failed,
            self.counts + other.counts,
            self.notes + other.notes,
        )


def make_segments(spec: SignalSpec, organization: UUID, collector: str, raws: Sequence[Raw], put: Put) -> Made:
    """Write the segments of these objects; all files are there when this returns. An object given twice counts once."""
    once = {raw.source.identity: raw for raw in raws}
    by_format: dict[str, list[Raw]] = {}
    for identity in sorted(once):
        by_format.setdefault(once[identity].format, []).append(once[identity])
    work = _Work(spec, organization, collector, ())
    made = Made()
    for name in sorted(by_format):
        made = made.plus(_made(work, by_format[name], partial(_write_segments, put=put)))
    return made


def refused(signal: str, raws: Sequence[Raw]) -> tuple[tuple[SourceObject, str], ...]:
    """Which of these objects, all of one format, `make_segments` would set aside, and why."""
    work = _Work(SIGNALS[signal], UUID(int=0), "", ())
    return _made(work, raws, lambda _work, _rows: _Written()).failed if raws else ()


def _made(work: _Work, raws: Sequence[Raw], write: Write) -> Made:
    """The segments of objects of one format."""
    reader = READERS.get((work.spec.name, raws[0].format))
    if reader is None:
        reason = f"{work.spec.name} cannot be read from {raws[0].format} files"
        return Made(failed=tuple((raw.source, reason) for raw in raws))
    left = raws
    made = Made()
    while left:
        try:
            read = reader(left)
        except Oversized as found:
            made = made.plus(_made_of_pieces(replace(work, sources=(left[0].source,)), left[0], found.request, write))
            left = left[1:]
            continue
        read_now = set(read.done)
        done = [raw for raw in left if raw.source in read_now]
        left = read.left
        made = made.plus(Made(failed=read.failed)).plus(_made_of_rows(work, done, read, write))
    return made


def _made_of_rows(work: _Work, raws: Sequence[Raw], read: Read, write: Write) -> Made:
    """The segments of what was read at once of these objects."""
    if read.rows is None:
        return Made(done=read.done, counts=read.counts)
    rows, shared = count_shared(read.rows)
    reason = reason_to_refuse(shared, sum(len(raw.data) for raw in raws))
    if reason is None:
        written = write(replace(work, sources=read.done, counts=read.counts), rows)
        return Made(written.segments, read.done, (), read.counts, written.notes)
    if len(raws) == 1:
        return Made(failed=((raws[0].source, reason),))
    del rows
    made = Made()
    for raw in raws:  # some of them are at fault: each by itself
        made = made.plus(_made(work, [raw], write))
    return made


def _made_of_pieces(work: _Work, raw: Raw, request: Request, write: Write) -> Made:
    """The segments of an object that is too large to be read at once, those of each of its pieces. Where one cannot be
    read, what was written of the others is in no answer, and the sweeper's."""
    reader = READERS[work.spec.name, raw.format]
    all_written = _Written()
    count = all_shared = 0
    try:
        for piece in pieces(np.frombuffer(raw.data.toreadonly(), np.uint8), request):
            work = replace(work, piece=work.piece + 1)
            read = reader([replace(raw, data=piece.data)])
            del piece  # each is gone before the next is made
            if read.failed:
                return Made(failed=read.failed)
            work = replace(work, counts=read.counts, before=count)
            count += sum(read.counts)
            if read.rows is not None:
                rows, shared = count_shared(read.rows)
                all_shared += shared
                if reason := reason_to_refuse(all_shared, len(raw.data)):
                    return Made(failed=((raw.source, reason),))
                all_written = all_written.plus(write(work, rows))
                del rows
            del read
    except Corrupt as error:
        return Made(failed=((raw.source, str(error)),))
    return Made(all_written.segments, (raw.source,), (), (count,), add_up(all_written.notes))


def signal_in(raw: Raw, signal: str) -> str:
    """The signal of an object that is not OTLP of this one, if its bytes are sound as that one's; else ""."""
    if raw.format != "otlp" or not raw.data:
        return ""
    data = np.frombuffer(raw.data.toreadonly(), np.uint8)
    other = other_signal(data, REQUESTS[signal])
    try:
        return other if other and checked(data, REQUESTS[other]) else ""
    except Corrupt:
        return ""


def warm() -> None:
    """Compile the jitted code or load it from numba's cache, so that the first objects do not wait for it."""
    for signal, sample in SAMPLES.items():
        data = sample()
        raw = Raw(SourceObject("sample", signal, "sample", len(data), 0), memoryview(data))
        made = make_segments(SIGNALS[signal], UUID(int=0), "sample", [raw], lambda _path, _data: None)
        assert not made.failed, made.failed  # noqa: S101 - our own constant
    warm_remote_write()


@dataclass(frozen=True)
class _Work:
    """Whose rows these are and where they came from: with the hour, the identity of a segment. `piece` counts from 1
    where an object is cut into pieces, and `before` is how many of its rows were in the pieces before this one."""

    spec: SignalSpec
    organization: UUID
    collector: str
    sources: tuple[SourceObject, ...]
    counts: tuple[int, ...] = ()
    piece: int = 0
    before: int = 0

    def segment_id(self, hour: int) -> UUID:
        whose = str(self.organization), self.collector, self.spec.name
        identities = [part for source in self.sources for part in source.identity]
        piece = (self.piece,) if self.piece else ()
        return segment_id(*whose, self.spec.sort_version, identities, hour, *piece)


@dataclass(frozen=True)
class _Written:
    segments: tuple[Segment, ...] = ()
    notes: tuple[Noted, ...] = ()

    def plus(self, other: _Written) -> _Written:
        return _Written(self.segments + other.segments, self.notes + other.notes)


def _write_segments(work: _Work, rows: Rows, put: Put) -> _Written:
    signal = row_of(work.spec)
    for step in signal.steps:
        rows = step(rows)
    notes = note_times(rows.column("timestamp", Numbers).values, work.sources, work.counts, work.before)
    orders = split_and_sort(rows, work.spec)
    for shape in signal.segment_steps:
        rows = shape(rows, orders)
    return _Written(tuple(_write_segment(work, rows, order, put) for order in orders), tuple(notes))


def _write_segment(work: _Work, rows: Rows, order: Any, put: Put) -> Segment:
    layout = lay_out(rows, order, work.spec)
    groups = row_groups(order, layout.sizes(order), work.spec.row_group_rows)
    encodings = encodings_of(layout, order, work.spec)
    form = FileForm(layout.schema, layout.stored, encodings, layout.most_different(work.spec.bloom, groups))
    hour = int(rows.column("timestamp", Numbers).values[order].min()) // HOUR_NS
    identity = Identity(work.segment_id(hour), work.organization, work.collector, work.spec)
    sides = sides_of(work.spec, SideInputs(layout.stored, RowSeries(rows, order)))
    sink = pa.BufferOutputStream()
    # All rows are in memory, so all that differs among them may be too.
    with SegmentWriter(identity, form, sides, sink, most_held=sys.maxsize) as writer:
        for group in groups:
            writer.add(batch_of(layout, group))
        written = writer.finish()
    for name, side in written.sides.items():
        put(written.segment.side_path(name), memoryview(side))
    put(written.segment.path, memoryview(sink.getvalue()))
    return written.segment
