"""Add up the parts of merged rows: of the rows of one series and time one row is made (docs/decisions/0030).

Comes in: rows in the order of a merge, and where each run of one series and time begins. Goes out: a row for each run.
Counts, sums, extrema and the cells of histograms are added; all other columns are those of the run's last row. What
always holds: counts of histograms are modulo 2^64, as those of parts that take back are, until all parts of a point
are added. Until then a row with the count 0 stays: it may stand for one source row more and another one less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.organization import is_of_rule
from lakerunner.model.signal import METRICS, PART_COUNT
from lakerunner.model.sketch import SCALE
from lakerunner.model.tier import RAW
from lakerunner.pipeline.merge.inputs import SegmentFile
from lakerunner.pipeline.merge.merged_rows import MergedRows, RowFilter
from lakerunner.pipeline.rollup.buckets import Sketches, sketches_of_buckets
from lakerunner.pipeline.steps.arrow_columns import filled, find_column, numbers, valid
from lakerunner.series.part_sums import PartSums, add_parts

_COUNT, _SUM, _ERROR = PART_COUNT, "chq_rollup_sum", "chq_rollup_sum_error"
_LEAST, _MOST = ("chq_rollup_min", "min"), ("chq_rollup_max", "max")
_HISTOGRAM = ("count", "zero_count", "positive", "negative")
_ADDED = ("value", "int_value", "is_int", "sum", "scale", _COUNT, _SUM, _ERROR, *_LEAST, *_MOST, *_HISTOGRAM)
# Sums of parts may need these where no part does: of fractions, and of integers past 64 bits.
_MAY_BE_FILLED = ("value", _ERROR)
_WHOLE = 2.0**62  # sums of integers below it have 64 bits


def holds_parts(collector: str, frequency_ms: int) -> bool:
    """Return whether the rows of this collector's segments are parts. Rollups are made of points that are whole."""
    return is_of_rule(collector) and frequency_ms == RAW


def merged_parts(inputs: Sequence[SegmentFile], memory: int, row_filter: RowFilter | None = None) -> MergedRows:
    """Return the merged rows of segments of parts, each series and time once."""
    return MergedRows(METRICS, inputs, memory, row_filter, add=add_rows, more=_MAY_BE_FILLED)


def add_rows(batch: pa.RecordBatch, starts: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their parts added; run n is the rows `starts[n]` to before `starts[n + 1]`."""
    last, several = starts[1:] - 1, np.diff(starts) > 1
    if not several.any():
        yield batch
        return
    sizes = np.diff(starts)[several]
    own = np.append(0, np.cumsum(sizes))
    rows = np.arange(own[-1]) + np.repeat(starts[:-1][several] - own[:-1], sizes)
    parts = batch.select([name for name in batch.schema.names if name in _ADDED]).take(pa.array(rows))
    sketches = _sketches(parts, own)
    if sketches is not None and sketches.too_many:
        middle = len(last) // 2
        yield from add_rows(batch.slice(0, int(starts[middle])), starts[: middle + 1])
        yield from add_rows(batch.slice(int(starts[middle])), starts[middle:] - starts[middle])
        return
    added = _added(parts, own, sketches)
    index = last.copy()
    index[several] = batch.num_rows + np.arange(len(sizes))
    places, others = pa.array(index), pa.array(last)
    arrays = [
        pa.concat_arrays([column, added[name]]).take(places) if name in added else column.take(others)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _sketches(parts: pa.RecordBatch, starts: Any) -> Sketches | None:
    """Return the sums of the histograms, None if all parts are numbers."""
    there = valid(parts, "scale")
    if not there.any():
        return None
    if (numbers(parts, "scale", np.int32)[there] != SCALE).any():
        raise Corrupt(f"a part has a histogram of another scale than {SCALE}")
    return sketches_of_buckets(parts, starts, there)


def _added(parts: pa.RecordBatch, starts: Any, sketches: Sketches | None) -> dict[str, pa.Array]:
    """Return the columns of the points, those that the batch has."""
    every = np.ones(len(starts) - 1, np.bool_)
    is_histogram = every & False if sketches is None else valid(parts, "scale")[starts[:-1]]
    kinds = {"counts": (_COUNT, np.int64), "sums": (_SUM, np.float64), "errors": (_ERROR, np.float64)}
    points = add_parts(starts, PartSums(**{name: numbers(parts, *kind) for name, kind in kinds.items()}))
    found = {
        _COUNT: filled(points.counts, every, pa.int64()),
        _SUM: filled(points.sums, every, pa.float64()),
        _ERROR: filled(points.errors, points.errors != 0, pa.float64()),
        "sum": filled(points.totals, is_histogram, pa.float64()),
        **_numbers(parts, starts, points, ~is_histogram),
    }
    for names, ufunc in ((_LEAST, np.fmin), (_MOST, np.fmax)):
        found |= {name: _extreme(parts, name, starts, ufunc) for name in names}
    if sketches is not None:
        found |= sketches.columns(np.arange(len(every)), is_histogram)
    return {name: array.cast(parts.column(name).type) for name, array in found.items() if name in parts.schema.names}


def _numbers(parts: pa.RecordBatch, starts: Any, points: PartSums, there: Any) -> dict[str, pa.Array]:
    """Return the columns of the number: an integer if it is the sum of integers and has 64 bits."""
    totals = points.totals
    is_whole = there & np.logical_and.reduceat(valid(parts, "int_value"), starts[:-1]) & (np.abs(totals) < _WHOLE)
    sent = is_whole & np.logical_and.reduceat(_flags(parts, "is_int"), starts[:-1])
    return {
        "int_value": filled(np.add.reduceat(numbers(parts, "int_value", np.int64), starts[:-1]), is_whole, pa.int64()),
        "value": filled(totals, there & ~is_whole, pa.float64()),
        "is_int": pa.array(sent, mask=~there),
    }


def _flags(parts: pa.RecordBatch, name: str) -> Any:
    found = find_column(parts, name)
    if found is None:
        return np.zeros(parts.num_rows, np.bool_)
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def _extreme(parts: pa.RecordBatch, name: str, starts: Any, ufunc: Any) -> pa.Array:
    """Return the least or largest of the values that are not null; NaN only if all of them are."""
    there = valid(parts, name)
    values = ufunc.reduceat(np.where(there, numbers(parts, name, np.float64), np.nan), starts[:-1])
    return filled(values, np.logical_or.reduceat(there, starts[:-1]), METRICS.schema.field(name).type)
