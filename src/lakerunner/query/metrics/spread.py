"""The series of spread groups: buckets by `le`, quantiles by `quantile`, and target_info.

Comes in: the row groups of segments that have points of such groups, in the order of the segments. Goes out: samples
with the group, the entry and the further label of each. Which labels there are is known only when the points are read:
bounds may change from point to point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels.metric_view import Kind
from lakerunner.promql.selection.staleness import STALE
from lakerunner.query.metrics.layout import Part, ranges
from lakerunner.query.metrics.reading import RowGroup, SegmentFile
from lakerunner.series.arrays import Bools, Floats, Ints

COLUMNS: dict[Kind, tuple[str, ...]] = {
    Kind.BUCKETS: ("count", "bounds", "bucket_counts"),
    Kind.QUANTILES: ("quantiles", "quantile_values"),
    Kind.INFO: (),
    Kind.NUMBER: ("value", "int_value"),
    Kind.SENT: ("value", "int_value"),
    Kind.SUM: ("sum",),
    Kind.COUNT: ("count",),
}
Between = tuple[int, int]


class Texts:
    """The further labels that were met, as numbers."""

    def __init__(self, known: Sequence[str]) -> None:
        self._codes = {text: n for n, text in enumerate(known)}
        self._of_number: dict[float, int] = {}

    @property
    def all(self) -> list[str]:
        return list(self._codes)

    def code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def codes(self, numbers: Floats) -> Ints:
        """Of these bounds or quantiles."""
        distinct, place = np.unique(numbers, return_inverse=True)
        for number in distinct.tolist():
            if number not in self._of_number:
                self._of_number[number] = self.code(number_text(number))
        codes = np.array([self._of_number[number] for number in distinct.tolist()], np.int64)
        return codes[place.reshape(-1)] if len(codes) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Flat:
    """Samples, in the order in which they came. `text` is a number of `Texts`."""

    group: Ints
    entry: Ints
    text: Ints
    times: Ints
    values: Floats
    starts: Ints


@dataclass(frozen=True)
class Within:
    """Points of the times `between`, (start, end], in ms, or where they are to be `exact`, in ns."""

    between: Between
    exact: bool = False


def flat_samples(file: SegmentFile, part: Part, entries: Ints, texts: Texts, within: Within) -> Iterator[Flat]:
    """Of these entries of the part, which are the segment's."""
    of = part.entries
    kinds = [Kind(kind) for kind in np.unique(of.kind[entries]).tolist()]
    columns = ["timestamp", "flags", *(name for kind in kinds for name in COLUMNS.get(kind, ()))]
    if of.delta[entries].any():
        columns.append("start_timestamp")
    for number, wanted in file.groups(of.first[entries], of.rows[entries]):
        group = file.read(number, tuple(dict.fromkeys(columns)), exact=within.exact)
        for kind in kinds:
            chosen = _chosen(group, part, entries[wanted & (of.kind[entries] == kind)], within.between)
            if len(chosen.rows) and kind in _SPREADS:
                yield _SPREADS[kind](group, chosen, texts)


@dataclass(frozen=True)
class _Chosen:
    """Rows of a row group, and of each its entry, its group, its further label and whether it is a delta."""

    rows: Ints
    entry: Ints
    group: Ints
    text: Ints
    delta: Bools

    def take(self, places: Ints | Bools) -> _Chosen:
        return _Chosen(self.rows[places], self.entry[places], self.group[places], self.text[places], self.delta[places])

    def flat(self, group: RowGroup, text: Ints, values: Floats) -> Flat:
        if group.unrecorded is not None:
            values = np.where(group.unrecorded[self.rows], STALE, values)
        starts = np.where(self.delta, group.starts_ms[self.rows], 0) if self.delta.any() else np.zeros_like(self.rows)
        return Flat(self.group, self.entry, text, group.times[self.rows], values, starts)


def _chosen(group: RowGroup, part: Part, entries: Ints, between: Between) -> _Chosen:
    low = np.maximum(part.entries.first[entries] - group.base, 0)
    high = np.minimum(part.entries.first[entries] + part.entries.rows[entries] - group.base, group.rows)
    rows, entry = ranges(low, high - low), np.repeat(entries, high - low)
    times = group.times[rows]
    inside = (times > between[0]) & (times <= between[1])
    chosen = _Chosen(rows, entry, part.group_of[entry], part.entries.text[entry], part.entries.delta[entry])
    return chosen.take(inside)


def _buckets(group: RowGroup, chosen: _Chosen, texts: Texts) -> Flat:
    """As a classic histogram has them: each bucket counts those below it too, the last one is the count."""
    bounds_at, bounds, sizes = _lists(group, "bounds", chosen.rows)
    counts_at, counts, count_sizes = _lists(group, "bucket_counts", chosen.rows)
    sizes = np.minimum(sizes, count_sizes)
    every, inner = _each(sizes)
    total = np.append(np.uint64(0), np.cumsum(counts.astype(np.uint64)))
    below = (total[counts_at[every] + inner + 1] - total[counts_at[every]]).astype(np.float64)
    codes = texts.codes(bounds[bounds_at[every] + inner])
    infinite = np.full(len(chosen.rows), texts.code("+Inf"))
    count = group.numbers("count").values[chosen.rows]
    both = chosen.take(np.concatenate([every, np.arange(len(chosen.rows))]))
    return both.flat(group, np.concatenate([codes, infinite]), np.concatenate([below, count]))


def _quantiles(group: RowGroup, chosen: _Chosen, texts: Texts) -> Flat:
    quantiles_at, quantiles, sizes = _lists(group, "quantiles", chosen.rows)
    values_at, values, _ = _lists(group, "quantile_values", chosen.rows)
    every, inner = _each(sizes)
    codes = texts.codes(quantiles[quantiles_at[every] + inner])
    return chosen.take(every).flat(group, codes, values[values_at[every] + inner])


def _info(group: RowGroup, chosen: _Chosen, texts: Texts) -> Flat:
    """1 at each time at which the resource has a point. Most of its series have the same times."""
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
    return Flat(chosen.group[some], chosen.entry[some], text, times[some], np.ones(len(some)), zeros)


def _numbers(group: RowGroup, chosen: _Chosen, *, zero: bool) -> Flat:
    """Series that are there by themselves, among those of a spread group."""
    _, values, valid = group.numbers()
    some = chosen if zero or not len(valid) else chosen.take(valid[chosen.rows])
    return some.flat(group, some.text, values[some.rows])


def _column(group: RowGroup, chosen: _Chosen, name: str) -> Flat:
    some = chosen.take(group.valid(name)[chosen.rows])
    return some.flat(group, some.text, group.numbers(name).values[some.rows])


_SPREADS: dict[Kind, Callable[[RowGroup, _Chosen, Texts], Flat]] = {
    Kind.BUCKETS: _buckets,
    Kind.QUANTILES: _quantiles,
    Kind.INFO: _info,
    Kind.NUMBER: lambda group, chosen, _: _numbers(group, chosen, zero=True),
    Kind.SENT: lambda group, chosen, _: _numbers(group, chosen, zero=False),
    Kind.SUM: lambda group, chosen, _: _column(group, chosen, "sum"),
    Kind.COUNT: lambda group, chosen, _: _column(group, chosen, "count"),
}


def number_text(number: float) -> str:
    """As Prometheus' OTLP receiver writes bounds and quantiles: all digits that it takes, no exponent."""
    if np.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if np.isnan(number):
        return "NaN"
    if number == 0:
        return "-0" if np.signbit(number) else "0"
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def _lists(group: RowGroup, name: str, rows: Ints) -> tuple[Ints, Any, Ints]:
    """Of a column of lists in these rows: where each begins in the values, the values, how many each has."""
    column = group.column(name)
    if column is None:
        return np.zeros_like(rows), np.zeros(0), np.zeros_like(rows)
    lists = column.take(pa.array(rows))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return np.cumsum(sizes) - sizes, lists.flatten().to_numpy(zero_copy_only=False), sizes


def _each(sizes: Ints) -> tuple[Ints, Ints]:
    """For lists of these sizes: of each element the number of its list, and its place there."""
    every: Ints = np.repeat(np.arange(len(sizes)), sizes)
    return every, ranges(np.zeros_like(sizes), sizes)
