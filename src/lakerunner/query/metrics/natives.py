"""Native histograms out of stored points: what OTLP sent, as Prometheus' OTLP receiver takes it, and what Prometheus
sent.

docs/formats/prometheus.md states the rules. A point that says that it has no value, and a histogram whose sum is the
stale marker, is a stale marker: a number, and no histogram.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lakerunner.promql.selection.staleness import STALE_BITS
from lakerunner.query.metrics.reading import RowGroup
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, Buckets, Histogram, ResetHint

LEAST_SCHEMA, MOST_SCHEMA = -4, 8
OTLP_ZERO_THRESHOLD = 1e-128  # what Prometheus gives them, whatever they say
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


class TooCoarse(Exception):
    """Buckets that no native histogram can have."""


def sent_histograms(group: RowGroup, rows: Ints) -> list[Histogram | None]:
    """Of these rows, which are histograms that Prometheus sent. None: a stale marker."""
    return _made(group, rows, SENT_COLUMNS, _sent)


def otlp_histograms(group: RowGroup, rows: Ints, *, delta: bool) -> list[Histogram | None]:
    """Of these rows, which are points of OTLP histograms. TooCoarse for a scale that Prometheus has not."""
    hint = ResetHint.GAUGE if delta else ResetHint.UNKNOWN
    found = _made(group, rows, OTLP_COLUMNS, lambda row: _otlp(row, hint))
    if group.unrecorded is None:
        return found
    return [None if group.unrecorded[row] else one for row, one in zip(rows.tolist(), found, strict=True)]


def _made(
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
    positive = _filled(np.array(counts, np.float64), 0)
    bounds = tuple(row["bounds"] or ())
    return Histogram(CUSTOM_BUCKETS, count, sum_, positive=positive, custom_values=bounds, reset_hint=hint)


def _exponential(side: _Row | None, down: int) -> Buckets:
    """OTLP's bucket n is Prometheus' n + 1; of a finer scale 2^down of them are one."""
    if side is None:
        return Buckets()
    counts = np.array(side["float_counts"] or side["counts"] or (), np.float64)
    if not down or not len(counts):
        return _filled(counts, side["offset"] + 1)
    coarse = (np.arange(len(counts)) + side["offset"]) >> down
    merged: Floats = np.bincount(coarse - coarse[0], weights=counts).astype(np.float64)
    return _filled(merged, int(coarse[0]) + 1)


def _filled(counts: Floats, first: int) -> Buckets:
    """Buckets from this index on, without the empty ones."""
    there = np.flatnonzero(counts)
    return Buckets((there + first).astype(np.int32), counts[there])
