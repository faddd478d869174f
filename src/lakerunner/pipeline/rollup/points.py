"""What the rows of raw points are to their windows: numbers, stale markers, histograms, or nothing.

Comes in: a batch of raw rows. Goes out: of each row its kind, and its number. The rules are those by which PromQL sees
points (docs/formats/prometheus.md): a number stands in `value` or `int_value`; a point of OTLP without one is 0; a row
that Prometheus sent with neither number nor histogram is no sample, nor is a metadata entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.pipeline.rollup.columns import numbers, read_only, texts_are, valid
from lakerunner.pipeline.rollup.windows import HISTOGRAM, NOTHING, NUMBER, STALE_MARKER
from lakerunner.promql.selection.staleness import STALE_BITS

_NO_RECORDED_VALUE = 1
_MAY_LACK_A_NUMBER = ("gauge", "sum")  # of OTLP; every other type is known by its columns, or is Prometheus'
# Of these series, which Prometheus sent itself.
AsSent = Callable[[Any], Any]


def kinds_and_values(batch: pa.RecordBatch, as_sent: AsSent) -> tuple[Any, Any]:
    """(kinds, values) of the rows; `as_sent` is asked only about series that a row leaves open."""
    is_double, is_int = valid(batch, "value"), valid(batch, "int_value")
    values = numbers(batch, "value", np.float64)
    if is_int.any():
        values = np.where(is_int, numbers(batch, "int_value", np.int64), values)
    kinds = np.where(is_double | is_int, NUMBER, NOTHING)
    is_histogram = valid(batch, "count") | valid(batch, "float_count")
    kinds[is_histogram] = HISTOGRAM
    _zero_for_none(batch, kinds, as_sent)
    stale = (numbers(batch, "flags", np.uint32) & _NO_RECORDED_VALUE).astype(np.bool_)
    stale |= (kinds == NUMBER) & _are_stale(values)
    if is_histogram.any():
        stale |= is_histogram & _are_stale(numbers(batch, "sum", np.float64))
    kinds[stale] = STALE_MARKER
    kinds[texts_are(batch, "metric_type", (METADATA_ENTRY,))] = NOTHING
    return kinds, read_only(values)


def _are_stale(values: Any) -> Any:
    return values.view(np.uint64) == np.uint64(STALE_BITS)


def _zero_for_none(batch: pa.RecordBatch, kinds: Any, as_sent: AsSent) -> None:
    bare = kinds == NOTHING
    if not bare.any():
        return
    rows = np.flatnonzero(bare & texts_are(batch, "metric_type", _MAY_LACK_A_NUMBER))
    if len(rows):
        kinds[rows[~as_sent(numbers(batch, "series", np.int64)[rows])]] = NUMBER
