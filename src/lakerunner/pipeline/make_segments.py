"""Make segments of raw objects: all that a task does between unpacking and commit.

Comes in: the unpacked bytes of some source objects of one organization, collector and signal. Goes out: their rows as
Parquet files, through `put`, with the index row of each; which objects these hold; and which were set aside, and why.

What always holds: an object is done with all of its rows or failed with none, without effect on its neighbours. The
same objects give the same ids and the same bytes, in any order and however often.

A time before 2000, or more than a day after its object was written, is kept, with a note on its object. A row that has
its object's time because it came without one is never noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import SIGNALS, SignalSpec
from lakerunner.model.source import FILE_GRACE_NS, OLDEST_NS, TOO_NEW, TOO_OLD, Note, SourceObject
from lakerunner.model.time import HOUR_NS, iso_time
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook, RuleStop, SegmentRules
from lakerunner.pipeline.read.otlp import Oversized, Request, check_request, guess_signal
from lakerunner.pipeline.read.pieces import cut_request
from lakerunner.pipeline.read.rows import NumberColumn, Raw, ReadResult, Rows
from lakerunner.pipeline.read.shared import count_shared, reason_to_refuse
from lakerunner.pipeline.row_segments import Put, draft_segment, write_segment
from lakerunner.pipeline.rule_parts import RuleCount
from lakerunner.pipeline.segment.writer import SegmentIdentity
from lakerunner.pipeline.signals import READERS, REQUESTS, row_of
from lakerunner.pipeline.steps.order import split_and_sort

__all__ = ["READERS", "MakeResult", "Raw", "detect_signal", "make_segments"]

Noted = tuple[SourceObject, Note]
WriteRows = Callable[["_Origin", Rows], "MakeResult"]  # without objects and their counts


@dataclass(frozen=True)
class MakeResult:
    """Every object that came in is in `done` or in `failed`, once. `counts` are the rows of each that is done; `notes`
    are on some of them, at most one of a kind on each. `parts` are segments of what rules make of the others;
    `stops` are the rule versions that have no parts of one of these, and why; `rule_counts` what versions did."""

    segments: tuple[Segment, ...] = ()
    done: tuple[SourceObject, ...] = ()
    failed: tuple[tuple[SourceObject, str], ...] = ()
    counts: tuple[int, ...] = ()
    notes: tuple[Noted, ...] = ()
    parts: tuple[Segment, ...] = ()
    stops: tuple[RuleStop, ...] = ()
    rule_counts: tuple[tuple[int, RuleCount], ...] = ()

    def plus(self, other: MakeResult) -> MakeResult:
        return MakeResult(
            self.segments + other.segments,
            self.done + other.done,
            self.failed + other.failed,
            self.counts + other.counts,
            self.notes + other.notes,
            self.parts + other.parts,
            self.stops + other.stops,
            self.rule_counts + other.rule_counts,
        )


def make_segments(
    spec: SignalSpec, organization: UUID, collector: str, raws: Sequence[Raw], put: Put, book: RuleBook = NO_RULES
) -> MakeResult:
    """Write the segments of these objects, and the parts that rules make of them; all files are in the store when this
    returns. An object given twice counts once."""
    once = {raw.source.identity: raw for raw in raws}
    by_format: dict[str, list[Raw]] = {}
    for identity in sorted(once):
        by_format.setdefault(once[identity].format, []).append(once[identity])
    work = _Origin(spec, organization, collector, ())
    made = MakeResult()
    for name in sorted(by_format):
        made = made.plus(_make_of_format(work, by_format[name], partial(_write_segments, put=put, book=book)))
    return made


def find_refused(signal: str, raws: Sequence[Raw]) -> tuple[tuple[SourceObject, str], ...]:
    """Return the objects, all of one format, that `make_segments` would set aside, and why."""
    work = _Origin(SIGNALS[signal], UUID(int=0), "", ())
    return _make_of_format(work, raws, lambda _work, _rows: MakeResult()).failed if raws else ()


def _make_of_format(work: _Origin, raws: Sequence[Raw], write: WriteRows) -> MakeResult:
    """Make the segments of objects of one format."""
    reader = READERS.get((work.spec.name, raws[0].format))
    if reader is None:
        reason = f"{work.spec.name} cannot be read from {raws[0].format} files"
        return MakeResult(failed=tuple((raw.source, reason) for raw in raws))
    left = raws
    made = MakeResult()
    while left:
        try:
            read = reader(left)
        except Oversized as found:
            made = made.plus(_make_of_pieces(replace(work, sources=(left[0].source,)), left[0], found.request, write))
            left = left[1:]
            continue
        read_now = set(read.done)
        done = [raw for raw in left if raw.source in read_now]
        left = read.left
        made = made.plus(MakeResult(failed=read.failed)).plus(_make_of_rows(work, done, read, write))
    return made


def _make_of_rows(work: _Origin, raws: Sequence[Raw], read: ReadResult, write: WriteRows) -> MakeResult:
    """Make the segments of the rows that were read at once of these objects."""
    if read.rows is None:
        return MakeResult(done=read.done, counts=read.counts)
    rows, shared = count_shared(read.rows)
    reason = reason_to_refuse(shared, sum(len(raw.data) for raw in raws))
    if reason is None:
        written = write(replace(work, sources=read.done, counts=read.counts), rows)
        return replace(written, done=read.done, counts=read.counts)
    if len(raws) == 1:
        return MakeResult(failed=((raws[0].source, reason),))
    del rows
    made = MakeResult()
    for raw in raws:  # some of them are too large: try each by itself
        made = made.plus(_make_of_format(work, [raw], write))
    return made


def _make_of_pieces(work: _Origin, raw: Raw, request: Request, write: WriteRows) -> MakeResult:
    """Make the segments of an object that is too large to be read at once, piece by piece. If one piece cannot be read,
    the files of the others are not returned, and the sweeper removes them."""
    reader = READERS[work.spec.name, raw.format]
    all_written = MakeResult()
    count = all_shared = 0
    try:
        for piece in cut_request(np.frombuffer(raw.data.toreadonly(), np.uint8), request):
            work = replace(work, piece=work.piece + 1)
            read = reader([replace(raw, data=piece.data)])
            del piece  # free it before the next is made
            if read.failed:
                return MakeResult(failed=read.failed)
            work = replace(work, counts=read.counts, before=count)
            count += sum(read.counts)
            if read.rows is not None:
                rows, shared = count_shared(read.rows)
                all_shared += shared
                if reason := reason_to_refuse(all_shared, len(raw.data)):
                    return MakeResult(failed=((raw.source, reason),))
                all_written = all_written.plus(write(work, rows))
                del rows
            del read
    except Corrupt as error:
        return MakeResult(failed=((raw.source, str(error)),))
    return replace(all_written, done=(raw.source,), counts=(count,), notes=_add_up(all_written.notes))


def detect_signal(raw: Raw, signal: str) -> str:
    """Return the signal of an object that is not OTLP of this one, if its bytes are valid for that signal; else ""."""
    if raw.format != "otlp" or not raw.data:
        return ""
    data = np.frombuffer(raw.data.toreadonly(), np.uint8)
    other = guess_signal(data, REQUESTS[signal])
    try:
        return other if other and check_request(data, REQUESTS[other]) else ""
    except Corrupt:
        return ""


@dataclass(frozen=True)
class _Origin:
    """The owner of rows and their sources: with the hour, the identity of a segment. `piece` counts from 1 if an object
    is cut into pieces, and `before` is how many of its rows were in earlier pieces."""

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


def _write_segments(work: _Origin, rows: Rows, put: Put, book: RuleBook) -> MakeResult:
    signal = row_of(work.spec)
    for step in signal.steps:
        rows = step(rows)
    notes = _note_times(rows.column("timestamp", NumberColumn).values, work.sources, work.counts, work.before)
    orders = split_and_sort(rows, work.spec)
    for shape in signal.segment_steps:
        rows = shape(rows, orders)
    made = MakeResult(notes=tuple(notes))
    for order in orders:
        made = made.plus(_write_segment(work, rows, order, put, book))
    return made


def _write_segment(work: _Origin, rows: Rows, order: Any, put: Put, book: RuleBook) -> MakeResult:
    hour = int(rows.column("timestamp", NumberColumn).values[order].min()) // HOUR_NS
    identity = SegmentIdentity(work.segment_id(hour), work.organization, work.collector, work.spec)
    draft = draft_segment(work.spec, rows, order)
    rules = SegmentRules(book, work.spec, draft.columns)
    segment = write_segment(draft, identity, put, consumers=rules.consumers)
    found = rules.write(segment, put)
    covered = replace(segment, rule_set=found.rule_set)
    return MakeResult((covered,), parts=found.segments, stops=found.stops, rule_counts=found.counts)


def _note_times(times: Any, sources: Sequence[SourceObject], counts: Sequence[int], before: int = 0) -> list[Noted]:
    """Return the notes on these rows, which belong to the sources in their order, `counts` rows to each. `before` is
    how many records of the first source were read earlier."""
    latest_ns = min(source.modified_ns for source in sources) + FILE_GRACE_NS
    if times.min() >= OLDEST_NS and times.max() <= latest_ns:
        return []  # nearly always: skip the rest
    notes: list[Noted] = []
    begin = 0
    for source, count in zip(sources, counts, strict=True):
        own = times[begin : begin + count]
        given = own != source.modified_ns
        for kind, wrong in ((TOO_OLD, own < OLDEST_NS), (TOO_NEW, own > source.modified_ns + FILE_GRACE_NS)):
            places = np.flatnonzero(wrong & given)
            if len(places):
                first = int(places[0])
                text = f"record {before + first + 1} has the time {iso_time(int(own[first]))}"
                notes.append((source, Note(kind, len(places), 0, text)))
        begin, before = begin + count, 0
    return notes


def _add_up(notes: Iterable[Noted]) -> tuple[Noted, ...]:
    """Add up notes of one kind on one source, which are in the order of its records."""
    found: dict[tuple[SourceObject, str], Note] = {}
    for source, note in notes:
        same = found.get((source, note.kind))
        found[source, note.kind] = replace(same, count=same.count + note.count) if same else note
    return tuple((source, note) for (source, _), note in found.items())
