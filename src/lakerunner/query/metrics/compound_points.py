"""Points that are more than one number: classic histograms, summaries and target_info as series, and native histograms.

Series of spread groups: buckets by `le`, quantiles by `quantile`, and target_info. Input: the row groups of segments
with points of such groups, in the order of the segments. Output: samples with the group, the entry and the further
label of each. The labels are known only once the points are read, because bounds may change from point to point.

Native histograms are built from OTLP points as Prometheus' OTLP receiver does, and from what Prometheus sent.
docs/formats/prometheus.md states the rules. A point that states that it has no value, and a histogram whose sum is the
stale marker, become stale markers: numbers, not histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels.metric_view import SampleKind
from lakerunner.promql.selection.staleness import STALE, STALE_BITS
from lakerunner.query.metrics.layout import GroupSet, ranges
from lakerunner.query.metrics.segment_file import RowGroup, SegmentFile
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint

COLUMNS: dict[SampleKind, tuple[str, ...]] = {
    SampleKind.BUCKETS: ("count", "bounds", "bucket_counts"),
    SampleKind.QUANTILES: ("quantiles", "quantile_values"),
    SampleKind.INFO: (),
    SampleKind.NUMBER: ("value", "int_value"),
    SampleKind.SENT: ("value", "int_value"),
    SampleKind.SUM: ("sum",),
    SampleKind.COUNT: ("count",),
}
Between = tuple[int, int]
LEAST_SCHEMA, MOST_SCHEMA = -4, 8
OTLP_ZERO_THRESHOLD = 1e-128  # Prometheus' value, whatever the point states
OTLP_COLUMNS = ("count", "sum", "bounds", "bucket_counts", "scale", "zero_count", "positive", "negative")
SENT_COLUMNS = (
    *OTLP_COLUMNS,
    "zero_threshold",
    "float_count",
    "float_zero_count",
    "float_bucket_counts",
    "reset_hint",
)
_HINTS = {"yes": ResetHint.RESET, "no": ResetHint.NOT_RESET, "gauge": ResetHint.GAUGE}
_Row = dict[str, Any]


class TextCodes:
    """The further labels that were found, as numbers."""

    def __init__(self, known: Sequence[str]) -> None:
        self._codes = {text: n for n, text in enumerate(known)}
        self._of_number: dict[float, int] = {}

    @property
    def all(self) -> list[str]:
        return list(self._codes)

    def code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def codes(self, numbers: Floats) -> Ints:
        """Return the codes of these bounds or quantiles."""
        distinct, place = np.unique(numbers, return_inverse=True)
        for number in distinct.tolist():
            if number not in self._of_number:
                self._of_number[number] = self.code(number_text(number))
        codes = np.array([self._of_number[number] for number in distinct.tolist()], np.int64)
        return codes[place.reshape(-1)] if len(codes) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class FlatSamples:
    """Samples in the order in which they were read. `text` is a code of `TextCodes`."""

    group: Ints
    entry: Ints
    text: Ints
    times: Ints
    values: Floats
    starts: Ints


@dataclass(frozen=True)
class Within:
    """Points with times in `between`, (start, end], in ms, or in ns if `exact`."""

    between: Between
    exact: bool = False


def flat_samples(
    file: SegmentFile, part: GroupSet, entries: Ints, texts: TextCodes, within: Within
) -> Iterator[FlatSamples]:
    """Yield the samples of these entries, which are all of the segment's."""
    of = part.entries
    kinds = [SampleKind(kind) for kind in np.unique(of.kind[entries]).tolist()]
    columns = ["timestamp", "flags", *(name for kind in kinds for name in COLUMNS.get(kind, ()))]
    if of.delta[entries].any():
        columns.append("start_timestamp")
    for number, wanted in file.groups(of.first[entries], of.rows[entries]):
        group = file.read(number, tuple(dict.fromkeys(columns)), exact=within.exact)
        for kind in kinds:
            chosen = choose_points(group, part, entries[wanted & (of.kind[entries] == kind)], within.between)
            if len(chosen.rows) and kind in _SPREADS:
                yield _SPREADS[kind](group, chosen, texts)


@dataclass(frozen=True)
class _PointChoice:
    """Rows of a row group, and for each its entry, its group, its further label and whether it is a delta."""

    rows: Ints
    entry: Ints
    group: Ints
    text: Ints
    delta: Bools

    def take(self, places: Ints | Bools) -> _PointChoice:
        return _PointChoice(*(getattr(self, one.name)[places] for one in fields(self)))

    def flat(self, group: RowGroup, text: Ints, values: Floats) -> FlatSamples:
        if group.unrecorded is not None:
            values = np.where(group.unrecorded[self.rows], STALE, values)
        starts = np.where(self.delta, group.starts_ms[self.rows], 0) if self.delta.any() else np.zeros_like(self.rows)
        return FlatSamples(self.group, self.entry, text, group.times[self.rows], values, starts)


def choose_points(group: RowGroup, part: GroupSet, entries: Ints, between: Between) -> _PointChoice:
    """Return the points of these entries in a row group that are in the range."""
    low = np.maximum(part.entries.first[entries] - group.base, 0)
    high = np.minimum(part.entries.first[entries] + part.entries.rows[entries] - group.base, group.rows)
    rows, entry = ranges(low, high - low), np.repeat(entries, high - low)
    times = group.times[rows]
    inside = (times > between[0]) & (times <= between[1])
    chosen = _PointChoice(rows, entry, part.group_of[entry], part.entries.text[entry], part.entries.delta[entry])
    return chosen.take(inside)


def _buckets(group: RowGroup, chosen: _PointChoice, texts: TextCodes) -> FlatSamples:
    """Return the buckets of a classic histogram: each counts those below it too, and the last one is the count."""
    bounds_at, bounds, sizes = _lists(group, "bounds", chosen.rows)
    counts_at, counts, count_sizes = _lists(group, "bucket_counts", chosen.rows)
    sizes = np.minimum(sizes, count_sizes)
    every, inner = _elements(sizes)
    # Sums of all lists at once; the sum before a list is subtracted again. uint64 wraps around, so this stays exact.
    total = np.append(np.uint64(0), np.cumsum(counts.astype(np.uint64)))
    below = (total[counts_at[every] + inner + 1] - total[counts_at[every]]).astype(np.float64)
    codes = texts.codes(bounds[bounds_at[every] + inner])
    infinite = np.full(len(chosen.rows), texts.code("+Inf"))
    count = group.numbers("count").values[chosen.rows]
    both = chosen.take(np.concatenate([every, np.arange(len(chosen.rows))]))
    return both.flat(group, np.concatenate([codes, infinite]), np.concatenate([below, count]))


def _quantiles(group: RowGroup, chosen: _PointChoice, texts: TextCodes) -> FlatSamples:
    quantiles_at, quantiles, sizes = _lists(group, "quantiles", chosen.rows)
    values_at, values, _ = _lists(group, "quantile_values", chosen.rows)
    every, inner = _elements(sizes)
    codes = texts.codes(quantiles[quantiles_at[every] + inner])
    return chosen.take(every).flat(group, codes, values[values_at[every] + inner])


def _info(group: RowGroup, chosen: _PointChoice, texts: TextCodes) -> FlatSamples:
    """Return 1 at each time at which the resource has a point. Most of its series have the same times, so equal ones
    are skipped."""
    kept: list[Ints] = []
    seen: set[tuple[int, bytes]] = set()
    borders = np.flatnonzero(np.diff(chosen.entry, prepend=-1, append=-1))
    times = group.times[chosen.rows]
    for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        key = int(chosen.group[begin]), times[begin:end].tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(np.arange(begin, end))
    some = np.concatenate(kept)
    text, zeros = np.full(len(some), texts.code("")), np.zeros(len(some), np.int64)
    return FlatSamples(chosen.group[some], chosen.entry[some], text, times[some], np.ones(len(some)), zeros)


def _numbers(group: RowGroup, chosen: _PointChoice, *, zero: bool) -> FlatSamples:
    """Return series that were sent as series, among those of a spread group."""
    _, values, valid = group.numbers()
    some = chosen if zero or not len(valid) else chosen.take(valid[chosen.rows])
    return some.flat(group, some.text, values[some.rows])


def _column(group: RowGroup, chosen: _PointChoice, name: str) -> FlatSamples:
    some = chosen.take(group.valid(name)[chosen.rows])
    return some.flat(group, some.text, group.numbers(name).values[some.rows])


_SPREADS: dict[SampleKind, Callable[[RowGroup, _PointChoice, TextCodes], FlatSamples]] = {
    SampleKind.BUCKETS: _buckets,
    SampleKind.QUANTILES: _quantiles,
    SampleKind.INFO: _info,
    SampleKind.NUMBER: lambda group, chosen, _: _numbers(group, chosen, zero=True),
    SampleKind.SENT: lambda group, chosen, _: _numbers(group, chosen, zero=False),
    SampleKind.SUM: lambda group, chosen, _: _column(group, chosen, "sum"),
    SampleKind.COUNT: lambda group, chosen, _: _column(group, chosen, "count"),
}


def number_text(number: float) -> str:
    """Write bounds and quantiles as Prometheus' OTLP receiver does: with all digits, without an exponent."""
    if np.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if np.isnan(number):
        return "NaN"
    if number == 0:
        return "-0" if np.signbit(number) else "0"
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def _lists(group: RowGroup, name: str, rows: Ints) -> tuple[Ints, Any, Ints]:
    """Return for a list column in these rows: where each list begins in the values, the values, and the sizes."""
    column = group.column(name)
    if column is None:
        return np.zeros_like(rows), np.zeros(0), np.zeros_like(rows)
    lists = column.take(pa.array(rows))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return np.cumsum(sizes) - sizes, lists.flatten().to_numpy(zero_copy_only=False), sizes


def _elements(sizes: Ints) -> tuple[Ints, Ints]:
    """Return for each element of lists of these sizes the number of its list, and its place there."""
    every: Ints = np.repeat(np.arange(len(sizes)), sizes)
    return every, ranges(np.zeros_like(sizes), sizes)


class TooCoarse(Exception):
    """The buckets are coarser than any native histogram may have."""


def sent_histograms(group: RowGroup, rows: Ints) -> list[Histogram | None]:
    """Return the histograms of these rows, which Prometheus sent. None: a stale marker."""
    return _build(group, rows, SENT_COLUMNS, _sent)


def otlp_histograms(group: RowGroup, rows: Ints, *, delta: bool) -> list[Histogram | None]:
    """Return the histograms of these rows, which are OTLP points. TooCoarse for a scale that Prometheus lacks."""
    hint = ResetHint.GAUGE if delta else ResetHint.UNKNOWN
    found = _build(group, rows, OTLP_COLUMNS, lambda row: _otlp(row, hint))
    if group.unrecorded is None:
        return found
    return [None if group.unrecorded[row] else one for row, one in zip(rows.tolist(), found, strict=True)]


def _build(
    group: RowGroup, rows: Ints, columns: tuple[str, ...], make: Callable[[_Row], Histogram]
) -> list[Histogram | None]:
    lists = {}
    for name in columns:
        column = group.column(name)
        lists[name] = [None] * len(rows) if column is None else column.take(rows).to_pylist()
    found = [make(dict(zip(columns, values, strict=True))) for values in zip(*lists.values(), strict=True)]
    stale = np.array([one.sum for one in found]).view(np.uint64) == STALE_BITS
    return [None if is_stale else one for one, is_stale in zip(found, stale.tolist(), strict=True)]


def _otlp(row: _Row, hint: ResetHint) -> Histogram:
    count, sum_ = float(row["count"] or 0), row["sum"] or 0.0
    if row["scale"] is None:
        return _custom(row, count, sum_, hint)
    if row["scale"] < LEAST_SCHEMA:
        raise TooCoarse(f"an exponential histogram of scale {row['scale']}, Prometheus has {LEAST_SCHEMA} and more")
    down = max(row["scale"] - MOST_SCHEMA, 0)
    positive, negative = (_exponential(row[side], down) for side in ("positive", "negative"))
    zeros = float(row["zero_count"] or 0)
    schema = row["scale"] - down
    return Histogram(schema, count, sum_, OTLP_ZERO_THRESHOLD, zeros, positive, negative, reset_hint=hint)


def _sent(row: _Row) -> Histogram:
    count = float(row["count"] or 0) if row["float_count"] is None else row["float_count"]
    sum_ = 0.0 if row["sum"] is None else row["sum"]
    hint = _HINTS.get(row["reset_hint"] or "", ResetHint.UNKNOWN)
    if row["scale"] is None or row["scale"] == CUSTOM_BUCKETS:
        return _custom(row, count, sum_, hint)
    zeros = float(row["zero_count"] or 0) if row["float_zero_count"] is None else row["float_zero_count"]
    positive, negative = (_exponential(row[side], 0) for side in ("positive", "negative"))
    threshold = row["zero_threshold"] or 0.0
    return Histogram(row["scale"], count, sum_, threshold, zeros, positive, negative, reset_hint=hint)


def _custom(row: _Row, count: float, sum_: float, hint: ResetHint) -> Histogram:
    counts = row.get("float_bucket_counts") or row["bucket_counts"] or ()
    positive = _nonzero(np.array(counts, np.float64), 0)
    bounds = tuple(row["bounds"] or ())
    return Histogram(CUSTOM_BUCKETS, count, sum_, positive=positive, custom_values=bounds, reset_hint=hint)


def _exponential(side: _Row | None, down: int) -> BucketCounts:
    """Return the buckets. OTLP's bucket n is Prometheus' n + 1; 2^down buckets of a finer scale become one."""
    if side is None:
        return BucketCounts()
    counts = np.array(side["float_counts"] or side["counts"] or (), np.float64)
    if not down or not len(counts):
        return _nonzero(counts, side["offset"] + 1)
    coarse = (np.arange(len(counts)) + side["offset"]) >> down
    merged: Floats = np.bincount(coarse - coarse[0], weights=counts).astype(np.float64)
    return _nonzero(merged, int(coarse[0]) + 1)


def _nonzero(counts: Floats, first: int) -> BucketCounts:
    """Return buckets from this index on, without empty ones."""
    there = np.flatnonzero(counts)
    return BucketCounts((there + first).astype(np.int32), counts[there])
