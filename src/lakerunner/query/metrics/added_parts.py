"""Samples of parts: points that rules made, which add up (docs/decisions/0030).

Input: groups of a layout with the entries that are of rules, and the files of their segments. Output: Samples of these
groups. Of all parts of a group in one ms one sample is made, across segments, collectors and stored series: their
sums are added with what rounding lost, their histograms as unsigned integers, before anything becomes a float. A
point all of whose rows were taken back is no sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.metric_view import SampleKind
from lakerunner.model.sketch import SCALE
from lakerunner.promql.functions.from_buckets import histograms_of, ranges_of_buckets
from lakerunner.query.metrics.compound_points import OTLP_ZERO_THRESHOLD, Between, choose_points
from lakerunner.query.metrics.kernels import disorder, sort_into
from lakerunner.query.metrics.layout import GroupSet
from lakerunner.query.metrics.rollup_rows import SKETCH_COLUMNS, read_sketches
from lakerunner.query.metrics.segment_file import SegmentFile
from lakerunner.query.segment_cache.lease import naming_segment
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.bounds import Bounds
from lakerunner.series.part_sums import PartSums, add_parts
from lakerunner.series.rollups import NO_SKETCHES, Sketches, concatenate_sketches
from lakerunner.series.values import NO_SAMPLES, Samples

_SUMS = ("chq_rollup_count", "chq_rollup_sum", "chq_rollup_sum_error")
_COLUMNS = ("timestamp", "start_timestamp", "flags", *_SUMS)
_OF_KIND = {SampleKind.NUMBER: _COLUMNS, SampleKind.NATIVE: (*_COLUMNS, "scale", *SKETCH_COLUMNS)}


def part_columns(part: GroupSet) -> frozenset[str]:
    """Return the columns that are read of these groups."""
    return frozenset(name for kind in part.kinds for name in _OF_KIND.get(kind, ()))


def part_samples(part: GroupSet, files: Mapping[int, SegmentFile], between: Between, pool: Executor) -> Samples:
    """Read the groups, all of whose entries are of rules; `files` by the number of the segment's table."""
    found = NO_SAMPLES
    for kind in (one for one in part.kinds if one in _OF_KIND):
        work = [(files[n], own[part.entries.kind[own] == kind]) for n, own in part.by_table.items() if n in files]
        read = pool.map(partial(_read, part, kind, between), work)
        samples = _added(part, [one for some in read for one in some])
        found = overlay_points(found, samples) if len(found) else samples
    return found


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts in the order in which they were read. There are `sketches` of histograms only."""

    entry: Ints
    times: Ints
    starts: Ints
    sums: tuple[Floats, ...]  # one array for each column of _SUMS
    sketches: Sketches


def _read(part: GroupSet, kind: SampleKind, between: Between, work: tuple[SegmentFile, Ints]) -> list[_Parts]:
    file, entries = work
    with naming_segment(file.segment):
        return list(_of_groups(part, kind, between, file, entries))


def _of_groups(
    part: GroupSet, kind: SampleKind, between: Between, file: SegmentFile, entries: Ints
) -> Iterator[_Parts]:
    for number, wanted in file.groups(part.entries.first[entries], part.entries.rows[entries]):
        group = file.read(number, _OF_KIND[kind])
        chosen = choose_points(group, part, entries[wanted], between)
        rows = chosen.rows
        sketches = NO_SKETCHES
        if kind == SampleKind.NATIVE and len(rows):
            if (group.numbers("scale").values[rows] != SCALE).any():
                raise Corrupt(f"a part has a histogram of another scale than {SCALE}")
            sketches = read_sketches(file, number).alone(rows)
        sums = tuple(group.numbers(name).values[rows] for name in _SUMS)
        yield _Parts(chosen.entry, group.times[rows], group.starts_ms[rows], sums, sketches)


def _added(part: GroupSet, found: Sequence[_Parts]) -> Samples:
    """Add up what was read."""
    if not found:
        return Samples(part.labels, np.zeros(len(part) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
    entry, times, starts = (np.concatenate([getattr(one, name) for one in found]) for name in _ARRAYS)
    order, _ = sort_into(entry, len(part.entries.first))
    group = part.group_of[entry[order]]
    if disorder(_offsets(group, len(part)), times[order]).any():
        order = order[np.lexsort((times[order], group))]  # groups stay as they are
    times = times[order]
    begins = (np.diff(group, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0)
    runs = np.append(np.flatnonzero(begins), len(times))
    counts, sums, errors = (np.concatenate([one.sums[n] for one in found])[order] for n in range(len(_SUMS)))
    points = add_parts(runs, PartSums(counts.astype(np.int64), sums, errors))
    there = points.counts != 0
    last = runs[1:][there] - 1
    sketches = concatenate_sketches([one.sketches for one in found])
    histograms = _histograms(sketches.at(order), runs, points.totals, there)[there] if len(sketches) else None
    return Samples(
        part.labels,
        _offsets(group[last], len(part)),
        times[last],
        points.totals[there] if histograms is None else np.zeros(len(last)),
        histograms,
        starts[order][last],
    )


_ARRAYS = ("entry", "times", "starts")


def _offsets(group: Ints, groups: int) -> Ints:
    found: Ints = np.append(0, np.cumsum(np.bincount(group, minlength=groups)))
    return found


def _histograms(sketches: Sketches, runs: Ints, sums: Floats, there: Any) -> Any:
    """Return the histogram of each run."""
    ranges = ranges_of_buckets(sketches, (runs[:-1], runs[1:]))
    return histograms_of(ranges, sums, there, Bounds(), OTLP_ZERO_THRESHOLD)


def overlay_points(samples: Samples, over: Samples) -> Samples:
    """Return the samples of both, which have the same labels; where both have one, that of `over` counts."""
    both = (samples, over)
    group = np.concatenate([np.repeat(np.arange(len(one)), np.diff(one.offsets)) for one in both])
    times = np.concatenate([one.times for one in both])
    order = np.lexsort((times, group))  # stable
    again = (np.diff(group[order], append=-1) == 0) & (np.diff(times[order], append=0) == 0)
    kept = order[~again]
    histograms = None
    if any(one.histograms is not None for one in both):
        whole = [np.full(len(one.times), None, object) if one.histograms is None else one.histograms for one in both]
        histograms = np.concatenate(whole)[kept]
    starts = np.concatenate([np.zeros(len(one.times), np.int64) if one.starts is None else one.starts for one in both])
    values = np.concatenate([one.values for one in both])
    return Samples(
        samples.labels, _offsets(group[kept], len(samples)), times[kept], values[kept], histograms, starts[kept]
    )
