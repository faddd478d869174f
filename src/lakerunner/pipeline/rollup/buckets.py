"""Fold numbers into buckets: the loops over every point, or every bucket of a finer tier, in machine code.

Comes in: rows of series, one series after the other, each by time. Goes out: the values and the sketch of each bucket.

What always holds: numbers are treated as Prometheus' range functions do: stale markers are not samples, NaN is the
minimum and maximum only if all numbers are NaN, and NaN after NaN is not a change. Folding buckets gives what folding
their points gives: bit for bit, except for sums, which keep their rounding error. The cells of a sketch's side begin
and end with one that is not empty, so that sketches of the same numbers are equal in whatever order they were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model import sketch
from lakerunner.model.signal import ROLLUPS
from lakerunner.model.sketch import bucket_column, empty_spans
from lakerunner.pipeline.steps.arrow_columns import buckets_array, filled, find_column, numbers, read_only
from lakerunner.series.grouping import add_compensated

# What a row is for its bucket.
NOTHING, NUMBER, STALE_MARKER, HISTOGRAM = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
# A point of parts that were all taken back: no sample, but its bucket takes the place of one that held them.
TAKEN_BACK = np.uint8(4)
NEVER = np.int64(-(2**63))  # no row has this time: times in ms are closer to 0


class BucketValues(NamedTuple):
    """Columns with one row for each bucket. Times are ms. If `count` is 0, only the last three columns are set.
    `last_row` is the row of the input that came last, -1 if none counts; `histograms` is how many rows are
    histograms."""

    count: Any
    sum: Any
    sum_error: Any
    min: Any
    max: Any
    first: Any
    first_time: Any
    last: Any
    last_time: Any
    reset_sum: Any
    resets: Any
    changes: Any
    stale_time: Any
    last_row: Any
    histograms: Any


_FLOATS = {"sum", "sum_error", "min", "max", "first", "last", "reset_sum"}


def empty_buckets(count: int) -> BucketValues:
    """Return this many buckets without rows."""
    found = BucketValues(
        *(np.zeros(count, np.float64 if name in _FLOATS else np.int64) for name in BucketValues._fields)
    )
    found.stale_time[:] = NEVER
    found.last_row[:] = -1
    return found


@njit(cache=True, nogil=True)
def find_buckets(series: Any, times: Any, tier: Any) -> Any:
    """Return (starts, ends): the rows at which buckets start, followed by the number of rows; the time at which each
    bucket ends."""
    starts, ends = np.empty(len(series) + 1, np.int64), np.empty(len(series), np.int64)
    found = 0
    end = np.int64(0)
    for row in range(len(series)):
        if found == 0 or series[row] != series[row - 1] or times[row] > end:
            end = -(-times[row] // tier) * tier
            starts[found], ends[found] = row, end
            found += 1
    starts[found] = len(series)
    return starts[: found + 1].copy(), ends[:found].copy()


@njit(cache=True, nogil=True)
def drop_overwritten(starts: Any, times: Any, kinds: Any) -> None:
    """Mark all rows of one time but the last as NOTHING."""
    for bucket in range(len(starts) - 1):
        seen = NEVER
        for row in range(starts[bucket + 1] - 1, starts[bucket] - 1, -1):
            if kinds[row] == NOTHING:
                continue
            if times[row] == seen:
                kinds[row] = NOTHING
            seen = times[row]


@njit(cache=True, nogil=True, error_model="numpy")
def fold_points(starts: Any, times: Any, values: Any, kinds: Any, out: Any) -> None:
    """Fold raw points into buckets."""
    for bucket in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[bucket], starts[bucket + 1]):
            kind = kinds[row]
            if kind != NUMBER:
                if kind != NOTHING:
                    out.last_row[bucket] = row
                    if kind == STALE_MARKER:
                        out.stale_time[bucket] = times[row]
                    elif kind == HISTOGRAM:
                        _note_histogram(out, bucket, times[row], times[row])
                continue
            number = values[row]
            out.last_row[bucket] = row
            total, lost = add_compensated(number, total, lost)
            if count == 0:
                least = most = number
                out.first[bucket] = number
            else:
                if number < least or np.isnan(least):
                    least = number
                if number > most or np.isnan(most):
                    most = number
                if number < last:
                    resets += 1
                    reset_sum += last
                changes += number != last and not (np.isnan(number) and np.isnan(last))
            last = number
            if out.histograms[bucket] == 0:
                if count == 0:
                    out.first_time[bucket] = times[row]
                out.last_time[bucket] = times[row]
            count += 1
        out.count[bucket], out.sum[bucket], out.sum_error[bucket] = count, total, lost
        out.min[bucket], out.max[bucket], out.last[bucket] = least, most, last
        out.reset_sum[bucket], out.resets[bucket], out.changes[bucket] = reset_sum, resets, changes


@njit(cache=True, nogil=True, error_model="numpy")
def fold_buckets(starts: Any, kinds: Any, given: Any, out: Any) -> None:
    """Fold buckets of a finer tier (`given`) into buckets. A kind is NUMBER, HISTOGRAM or NOTHING."""
    for bucket in range(len(starts) - 1):
        count = resets = changes = 0
        total = lost = least = most = last = reset_sum = 0.0
        for row in range(starts[bucket], starts[bucket + 1]):
            if kinds[row] == NOTHING:
                continue
            out.last_row[bucket] = row
            out.stale_time[bucket] = max(out.stale_time[bucket], given.stale_time[row])
            if kinds[row] == HISTOGRAM:
                _note_histogram(out, bucket, given.first_time[row], given.last_time[row])
                continue
            if given.count[row] == 0:
                continue
            total, lost = add_compensated(given.sum[row], total, lost)
            if not np.isinf(total):
                lost += given.sum_error[row]
            first = given.first[row]
            if count == 0:
                least, most = given.min[row], given.max[row]
                out.first[bucket] = first
            else:
                if given.min[row] < least or np.isnan(least):
                    least = given.min[row]
                if given.max[row] > most or np.isnan(most):
                    most = given.max[row]
                if first < last:
                    resets += 1
                    reset_sum += last
                changes += first != last and not (np.isnan(first) and np.isnan(last))
            reset_sum += given.reset_sum[row]
            resets += given.resets[row]
            changes += given.changes[row]
            last = given.last[row]
            if out.histograms[bucket] == 0:
                if count == 0:
                    out.first_time[bucket] = given.first_time[row]
                out.last_time[bucket] = given.last_time[row]
            count += given.count[row]
        out.count[bucket], out.sum[bucket], out.sum_error[bucket] = count, total, lost
        out.min[bucket], out.max[bucket], out.last[bucket] = least, most, last
        out.reset_sum[bucket], out.resets[bucket], out.changes[bucket] = reset_sum, resets, changes


@njit(cache=True, nogil=True)
def _note_histogram(out: Any, bucket: Any, first_time: Any, last_time: Any) -> None:
    """Count a histogram. A bucket with one is a bucket of histograms: its times are theirs, whatever numbers it has."""
    out.histograms[bucket] += 1
    if out.histograms[bucket] == 1:
        out.first_time[bucket] = first_time
    out.last_time[bucket] = last_time


MOST_CELLS = 4 << 20  # histogram buckets of the sketches of one batch
_SIDES = ("positive", "negative")


@dataclass(frozen=True)
class Sketches:
    """The sketch of each rollup bucket: how many numbers are in it, how many of them are zero, and the cells of both
    signs, which are buckets of an exponential histogram: those of sign s of rollup bucket b are `counts[s]` from
    `first[s, b]` up to `first[s, b + 1]`, and the first has number `low[s, b]`. `counts` is empty if several rollup
    buckets would have more than MOST_CELLS together: fold fewer of them then."""

    found: Any
    zeros: Any
    low: Any
    first: Any
    counts: tuple[Any, ...]

    @property
    def too_many(self) -> bool:
        return not self.counts

    def columns(self, kept: Any, there: Any) -> dict[str, pa.Array]:
        """Return the columns of the rollup buckets `kept`; null where not `there`."""
        arrays = {
            "count": filled(self.found[kept], there, pa.uint64()),
            "scale": filled(np.full(len(kept), sketch.SCALE), there, pa.int32()),
            "zero_count": filled(self.zeros[kept], there, pa.uint64()),
        }
        for sign, name in enumerate(_SIDES):
            low, sizes = self.low[sign], np.diff(self.first[sign])
            some = there & (sizes[kept] > 0)
            kind = ROLLUPS.schema.field(name).type
            found = buckets_array(low, self.first[sign], self.counts[sign], sizes > 0, kind)
            whole = len(kept) == len(low) and bool((some == (sizes > 0)).all())
            arrays[name] = found if whole else found.take(pa.array(kept, mask=~some))
        return arrays


def sketches_of_points(starts: Any, wanted: Any, values: Any) -> Sketches:
    """Build sketches of the `wanted` rows, which are numbers."""
    placed = empty_spans(len(starts) - 1)
    bits, index = values.view(np.int64), np.empty(len(values), np.int32)
    sketch.find_buckets(wanted, bits, index)
    sketch.find_spans(starts[:-1], starts[1:], bits, index, placed)
    first, counts = _allocate_cells(placed)
    if counts:
        sketch.count_values(starts[:-1], starts[1:], bits, index, placed.low, first, counts)
    return Sketches(placed.found, placed.zeros, placed.low, first, counts)


def sketches_of_buckets(batch: pa.RecordBatch, starts: Any, wanted: Any) -> Sketches:
    """Add up the sketches of the `wanted` rows, which have a sketch or hold nothing."""
    found, zeros = (
        np.add.reduceat(np.where(wanted, numbers(batch, name, np.uint64), 0).astype(np.int64), starts[:-1])
        for name in ("count", "zero_count")
    )
    placed = empty_spans(len(starts) - 1)._replace(found=found, zeros=zeros)
    sides = []
    for sign, name in enumerate(_SIDES):
        side = bucket_column(find_column(batch, name), batch.num_rows)
        sizes = np.where(wanted, side.counts.sizes, 0)
        arrays = side.offset, side.counts.begins, sizes, side.counts.values
        sides.append(sketch.BucketRows(*map(read_only, arrays)))
        sketch.find_row_spans(starts[:-1], starts[1:], sides[sign], placed.low[sign], placed.high[sign])
    first, counts = _allocate_cells(placed)
    for sign, counted in enumerate(counts):
        sketch.add_rows(starts[:-1], starts[1:], sides[sign], placed.low[sign], first[sign], counted)
    return Sketches(found, zeros, placed.low, first, counts)


def _allocate_cells(placed: sketch.BucketSpans) -> tuple[Any, tuple[Any, ...]]:
    """Return (first, counts) for the cells of all sketches."""
    first = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(placed.high - placed.low, axis=1)], axis=1)
    if first[:, -1].sum() > MOST_CELLS and len(placed.found) > 1:
        return first, ()
    return first, tuple(np.zeros(first[sign, -1], np.uint64) for sign in (0, 1))
