"""Reads the samples of a block from its segments, in parallel, and merges them.

Input: a block of a layout, and its segments' files. Output: Samples. Invariants: the times of each series ascend
strictly and are in (start, end]. Of the points of one ms the last by stored series, nanosecond, collector, ingest and
row counts; so the result does not depend on which segments hold the points, and segments may be merged. Points that
rules made are added up instead (added_parts.py); where other points have the same ms, these count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, labels_of, labels_text
from lakerunner.model.labels.matcher import SelectorTest
from lakerunner.model.labels.metric_view import SampleKind
from lakerunner.model.time import MAX_NS, MIN_NS
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.metrics.added_parts import overlay_points, part_samples
from lakerunner.query.metrics.compound_points import (
    COLUMNS,
    OTLP_COLUMNS,
    SENT_COLUMNS,
    Between,
    FlatSamples,
    TextCodes,
    TooCoarse,
    Within,
    flat_samples,
    otlp_histograms,
    sent_histograms,
)
from lakerunner.query.metrics.kernels import (
    NS_PER_MS,
    Runs,
    SampleColumns,
    Slots,
    count_points,
    disorder,
    merge,
    place_points,
    settle,
    sort_into,
)
from lakerunner.query.metrics.layout import Block, GroupSet
from lakerunner.query.metrics.segment_file import RowGroup, SegmentFile
from lakerunner.query.metrics.ties import merge_exactly, overlay
from lakerunner.query.segment_cache.lease import naming_segment
from lakerunner.series.arrays import Bools, Ints, Objects
from lakerunner.series.values import NO_SAMPLES, Samples, concatenate_samples

_COLUMNS = COLUMNS | {SampleKind.NATIVE: OTLP_COLUMNS}
_HISTOGRAMS = frozenset({"count", "float_count"})  # a histogram has one of these columns
_NONE: Any = np.zeros(0, np.int64)
Files = Mapping[int, SegmentFile]


@dataclass(frozen=True)
class SampleReader:
    """`files` by the number of the segment's table; a segment without one has no point in `between`, (start, end] in
    ms, or in ns if `exact`."""

    files: Files
    between: Between
    pool: Executor
    exact: bool = False

    def in_ns(self) -> SampleReader:
        start, end = (min(max((at + 1) * NS_PER_MS - 1, MIN_NS), MAX_NS) for at in self.between)
        return replace(self, between=(start, end), exact=True)


def block_samples(block: Block, reading: SampleReader, test: SelectorTest) -> Samples:
    """Read the block; `test` decides on the further labels of spread groups."""
    parts = []
    if len(block.plain):
        parts.append(_plain(block.plain, reading))
    if len(block.parts):
        found = part_samples(block.parts, reading.files, reading.between, reading.pool)
        if len(block.beside_parts.entries.first):
            found = overlay_points(found, _plain(block.beside_parts, reading))
        parts.append(found)
    if len(block.spread):
        parts.append(_spread(block, reading, test))
    return concatenate_samples([part for part in parts if len(part)])


def _plain(part: GroupSet, reading: SampleReader) -> Samples:
    found, tied = _PlainReader(part, reading).samples()
    if tied.any():
        exact, _ = _PlainReader(part.only(tied), reading.in_ns()).samples()
        overlay(found, tied, exact)
    return found


def columns_of(part: GroupSet, columns: frozenset[str]) -> tuple[str, ...]:
    """Return the columns to read from a segment that has these columns."""
    needed = {"timestamp", "flags"}
    for kind in part.kinds:
        needed.update(_COLUMNS.get(kind, ()))
        if kind == SampleKind.SENT and columns & _HISTOGRAMS:
            needed.update(SENT_COLUMNS)
    if part.has_delta:
        needed.add("start_timestamp")
    return tuple(sorted(needed & columns))


class _PlainReader:
    """Reads groups in which each point is one sample at most."""

    def __init__(self, part: GroupSet, reading: SampleReader) -> None:
        self._part = part
        self._reading = reading
        entries = part.entries
        count = len(entries.first)
        self._slots = Slots(entries.first, entries.rows, np.zeros(count, np.int64), _NONE, np.zeros(count, bool))
        self._out = SampleColumns(_NONE, np.zeros(0), _NONE)
        self._histograms: Objects | None = None
        self._any_histogram = False
        self._read: dict[int, list[tuple[RowGroup, Ints]]] = {}

    def samples(self) -> tuple[Samples, Bools]:
        """Return the samples, and the groups for which only exact times can decide (`merge`)."""
        work = [(n, entries) for n, entries in self._part.by_table.items() if n in self._reading.files]
        edges = [one for one in work if not self._inside(one[0])]
        inside = np.zeros(max(self._part.by_table, default=0) + 1, bool)
        inside[[n for n, _ in work]] = True
        inside[[n for n, _ in edges]] = False
        planned = np.where(inside[self._part.entries.table], self._slots.rows, 0)
        # Two passes: slots need their sizes first. Segments inside the range have them in the series table, so only
        # those at its edges are counted. Entries of different segments have different slots, so no lock is needed.
        list(self._reading.pool.map(partial(self._count, planned), edges))
        self._allot(planned)
        list(self._reading.pool.map(self._place, work))
        return self._finish()

    def _inside(self, number: int) -> bool:
        """Return whether all of the segment's points are in the range, so that none need be counted first."""
        file = self._reading.files[number]
        start, end = self._reading.between
        time, unit = file.segment.time, 1 if self._reading.exact else NS_PER_MS
        return file.held.rows is None and start < time.start_ns // unit and (time.end_ns - 1) // unit <= end

    def _allot(self, planned: Ints) -> None:
        ends = np.cumsum(planned)
        total = int(ends[-1]) if len(ends) else 0
        begin = ends - planned
        self._slots = self._slots._replace(begin=begin, cursor=begin.copy())
        starts = np.zeros(total, np.int64) if self._part.has_delta else _NONE
        self._out = SampleColumns(np.empty(total, np.int64), np.empty(total), starts)
        if self._may_have_histograms():
            self._histograms = np.full(total, None, object)

    def _may_have_histograms(self) -> bool:
        kinds = self._part.kinds
        sent = SampleKind.SENT in kinds and any(file.columns & _HISTOGRAMS for file in self._reading.files.values())
        return sent or SampleKind.NATIVE in kinds

    def _groups(self, number: int, entries: Ints) -> Iterable[tuple[RowGroup, Ints]]:
        file = self._reading.files[number]
        columns = columns_of(self._part, file.columns)
        of = self._part.entries
        for group, wanted in file.groups(of.first[entries], of.rows[entries]):
            yield file.read(group, columns, exact=self._reading.exact), entries[wanted]

    def _count(self, planned: Ints, work: tuple[int, Ints]) -> None:
        number, entries = work
        with naming_segment(self._reading.files[number].segment):
            self._read[number] = list(self._groups(number, entries))
            for group, own in self._read[number]:
                count_points(own, self._slots, group.moments(), self._reading.between, planned)

    def _place(self, work: tuple[int, Ints]) -> None:
        number, entries = work
        with naming_segment(self._reading.files[number].segment):
            for group, own in self._read.pop(number, None) or self._groups(number, entries):
                kinds = self._part.entries.kind[own]
                for kind in self._part.kinds:
                    some = own if len(self._part.kinds) == 1 else own[kinds == kind]
                    if len(some):
                        self._place_kind(group, some, kind)

    def _place_kind(self, group: RowGroup, entries: Ints, kind: SampleKind) -> None:
        starts = bool(self._part.entries.delta[entries].any())
        match kind:
            case SampleKind.NUMBER:
                points = group.points(zero=True, starts=starts)
            case SampleKind.SUM | SampleKind.COUNT:
                points = group.points_of(kind.name.lower(), starts=starts)
            case SampleKind.SENT:
                entries = self._place_sent(group, entries)
                points = group.points(zero=False, starts=starts)
            case _:
                self._place_natives(group, entries)
                return
        if starts:  # only deltas have start times
            for is_delta in (False, True):
                some = entries[self._part.entries.delta[entries] == is_delta]
                own = points if is_delta else points._replace(starts=points.starts[:0])
                place_points(some, self._slots, own, self._reading.between, self._out)
        else:
            place_points(entries, self._slots, points, self._reading.between, self._out)

    def _rows(self, group: RowGroup, entry: int) -> Ints:
        """Return the entry's rows in the row group with a time in the range."""
        low = max(int(self._slots.first[entry]) - group.base, 0)
        high = min(int(self._slots.first[entry] + self._slots.rows[entry]) - group.base, group.rows)
        times = group.times[low:high]
        start, end = self._reading.between
        found: Ints = low + np.flatnonzero((times > start) & (times <= end))
        return found

    def _place_natives(self, group: RowGroup, entries: Ints) -> None:
        for entry in entries.tolist():
            rows = self._rows(group, entry)
            delta = bool(self._part.entries.delta[entry])
            try:
                histograms = otlp_histograms(group, rows, delta=delta)
            except TooCoarse as error:
                series = labels_text(self._part.labels[int(self._part.group_of[entry])])
                raise UserError(f"{series}: {error}") from error
            self._put(group, entry, rows, np.zeros(len(rows)), histograms)

    def _place_sent(self, group: RowGroup, entries: Ints) -> Ints:
        """Place entries with histograms; return the others."""
        if not group.may_have_histograms:
            return entries
        is_histogram = group.valid("count") | group.valid("float_count")
        if not is_histogram.any():
            return entries
        _, numbers, present = group.numbers()
        plain = []
        for entry in entries.tolist():
            rows = self._rows(group, entry)
            if not is_histogram[rows].any():
                plain.append(entry)
                continue
            rows = rows[is_histogram[rows] | present[rows]] if len(present) else rows
            histograms: list[Any] = [None] * len(rows)
            places = np.flatnonzero(is_histogram[rows])
            values = numbers[rows]
            for place, histogram in zip(places.tolist(), sent_histograms(group, rows[places]), strict=True):
                histograms[place] = histogram
            values[places] = 0.0
            marked = [place for place in places.tolist() if histograms[place] is None]
            self._put(group, entry, rows, values, histograms, marked)
        return np.array(plain, np.int64)

    def _put(
        self,
        group: RowGroup,
        entry: int,
        rows: Ints,
        values: Any,
        histograms: list[Any],
        stale: list[int] | None = None,
    ) -> None:
        """Put samples into the entry's slot. `stale` are the places of stale markers; None: where there is no
        histogram."""
        at = int(self._slots.cursor[entry])
        span = slice(at, at + len(rows))
        times = group.times[rows]
        marked = [n for n, one in enumerate(histograms) if one is None] if stale is None else stale
        values[marked] = STALE
        self._out.times[span], self._out.values[span] = times, values
        before = self._out.times[at - 1 : at] if at > self._slots.begin[entry] else times[:0]
        if np.any(np.diff(np.concatenate([before, times])) <= 0):
            self._slots.unsorted[entry] = True
        if self._part.entries.delta[entry]:
            self._out.starts[span] = group.starts_ms[rows]
        if self._histograms is not None:
            self._any_histogram = True
            # The extra None keeps numpy from making a two-dimensional array of sequences.
            self._histograms[span] = np.array([*histograms, None], object)[:-1]
        self._slots.cursor[entry] = at + len(rows)

    def _finish(self) -> tuple[Samples, Bools]:
        if not self._any_histogram:
            self._histograms = None
        index = np.arange(len(self._out.times)) if self._histograms is not None else _NONE
        offsets, unsorted, begins = settle(self._part.offsets, self._slots, self._out, index)
        runs = Runs(begins, self._part.entries.stored)
        if self._reading.exact:
            offsets, tied = merge_exactly(offsets, self._out, index, runs), np.zeros(len(unsorted), bool)
        else:
            offsets, tied = merge_unsorted(offsets, unsorted, self._out, index, runs)
        return build_samples(self._part.labels, offsets, self._out, index, self._histograms), tied


def merge_unsorted(offsets: Ints, unsorted: Bools, out: SampleColumns, index: Ints, runs: Runs) -> tuple[Ints, Bools]:
    return merge(offsets, unsorted, out, index, runs) if unsorted.any() else (offsets, np.zeros(len(unsorted), bool))


def build_samples(
    labels: Sequence[Labels], offsets: Ints, out: SampleColumns, index: Ints, histograms: Objects | None
) -> Samples:
    """Build the Samples; `index` says for each sample where its histogram is."""
    size = int(offsets[-1])
    return Samples(
        labels,
        offsets,
        out.times[:size],
        out.values[:size],
        None if histograms is None else histograms[index[:size]],
        out.starts[:size] if len(out.starts) else None,
    )


def _spread(block: Block, reading: SampleReader, test: SelectorTest) -> Samples:
    part, layout = block.spread, block.layout
    texts = TextCodes(layout.texts)
    within = Within(reading.between, reading.exact)
    flats: list[FlatSamples] = []
    for number, entries in part.by_table.items():
        if number in reading.files:
            with naming_segment(reading.files[number].segment):
                flats += flat_samples(reading.files[number], part, entries, texts, within)
    if not flats:
        return NO_SAMPLES
    group, entry, text, times, values, starts = (
        np.concatenate([getattr(one, name) for one in flats])
        for name in ("group", "entry", "text", "times", "values", "starts")
    )
    known = sorted(texts.all)  # so that the order of series, and the bits of sums, do not depend on segments
    place = {one: n for n, one in enumerate(known)}
    text = np.array([place[one] for one in texts.all], np.int64)[text]
    further = [layout.further[n] for n in part.groups.tolist()]
    allowed = {name: np.array([all(one(t) for one in test.of(name)) for t in known]) for name in set(further) if name}
    allowed[""] = np.ones(len(known), bool)
    keep = np.array([allowed[name] for name in further])
    kept = np.flatnonzero(keep[group, text])
    if part.is_mixed:  # otherwise samples already are in the order of entries
        kept = kept[sort_into(entry[kept], len(part.entries.first))[0]]
    key = group[kept] * len(known) + text[kept]
    numbers = np.flatnonzero(np.bincount(key, minlength=1)) if len(key) else _NONE
    dense = np.zeros(len(further) * len(known), np.int64)
    dense[numbers] = np.arange(len(numbers))
    order, offsets = sort_into(dense[key], len(numbers))
    taken = kept[order]
    out = SampleColumns(times[taken], values[taken], starts[taken] if starts.any() else _NONE)
    labels = [
        labels_of({**dict(part.labels[n // len(known)]), further[n // len(known)]: known[n % len(known)]})
        for n in numbers.tolist()
    ]
    begins = np.flatnonzero(np.diff(entry[taken], prepend=-1) | np.diff(dense[key][order], prepend=-1))
    runs = Runs(begins, part.entries.stored[entry[taken[begins]]])
    if reading.exact:
        return build_samples(labels, merge_exactly(offsets, out, _NONE, runs), out, _NONE, None)
    offsets, tied = merge_unsorted(offsets, disorder(offsets, out.times), out, _NONE, runs)
    if tied.any():  # read the block again with ns; rare
        return _spread(block, reading.in_ns(), test)
    return build_samples(labels, offsets, out, _NONE, None)
