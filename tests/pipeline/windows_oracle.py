"""Windows of numbers, computed the plain way from lists of points; and batches of rows to roll up."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.signal import METRICS
from lakerunner.model.tier import RAW, source_of, window_end
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.promql.selection.staleness import STALE, STALE_BITS
from suites.sketch_oracle import sketch

Row = dict[str, Any]
PREFIX = "chq_rollup_"
_DEFAULTS: Row = {
    "metric_name": "m",
    "metric_type": "gauge",
    "unit": "",
    "description": "",
    "series": 1,
    "flags": 0,
    "service_name": "s",
    "scope_name": "",
    "scope_version": "",
    "resource_schema_url": "",
    "scope_schema_url": "",
    "resource_dropped_attributes": 0,
    "scope_dropped_attributes": 0,
    "attributes": [],
    "resource_attributes": [],
    "scope_attributes": [],
}


def raw(time_ms: float, **columns: Any) -> Row:
    return {"timestamp": int(time_ms * 1_000_000), **_DEFAULTS, **columns}


def batch_of(rows: Iterable[Row], schema: pa.Schema = METRICS.schema) -> pa.RecordBatch:
    """In the order of segments: sorted, equal keys as they stand."""
    ordered = sorted(rows, key=lambda row: (row["metric_name"], row["series"], row["timestamp"]))
    return pa.RecordBatch.from_pylist(ordered, schema=schema)


def no_series_as_sent(series: Any) -> Any:
    return np.zeros(len(series), np.bool_)


def rolled(batches: Sequence[pa.RecordBatch], source: int, target: int, as_sent: Any = no_series_as_sent) -> pa.Table:
    fold = Fold(source, target, batches[0].schema, as_sent)
    return pa.Table.from_batches(fold.buckets(batches), fold.schema)


def chain(batches: Sequence[pa.RecordBatch], target: int, as_sent: Any = no_series_as_sent) -> pa.Table:
    """Through every tier in between."""
    source = source_of(target)
    below = batches if source == RAW else chain(batches, source, as_sent).to_batches()
    if not below:
        return rolled(batches, RAW, target, as_sent)
    return rolled(below, source, target, as_sent)


def rows_of(table: pa.Table) -> list[Row]:
    """Times as ns."""
    fields = [pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]
    rows: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def is_stale(value: float) -> bool:
    return bool(struct.unpack("<Q", struct.pack("<d", value))[0] == STALE_BITS)


def bits(value: Any) -> Any:
    """Floats by their bits, NaN as one, everything else as it is."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, list):
        return [bits(one) for one in value]
    return value


def expected(points: Sequence[tuple[int, float]], tier: int) -> dict[int, Row]:
    """(time in ms, number) of one series, the later of one time counting, to what its windows hold, by their ends."""
    by_time = dict(points)
    windows: dict[int, list[tuple[int, float]]] = {}
    for time in sorted(by_time):
        windows.setdefault(window_end(time, tier), []).append((time, by_time[time]))
    return {end: _window(held) for end, held in windows.items()}


def _window(held: Sequence[tuple[int, float]]) -> Row:
    stale = [time for time, value in held if is_stale(value)]
    samples = [(time, value) for time, value in held if not is_stale(value)]
    found: Row = {"count": len(samples), "stale_timestamp": stale[-1] if stale else None}
    if not samples:
        return found
    values = [value for _, value in samples]
    real = [value for value in values if not math.isnan(value)]
    pairs = list(pairwise(values))
    falls = [before for before, after in pairs if after < before]
    return found | {
        "min": min(real) if real else math.nan,
        "max": max(real) if real else math.nan,
        "first": values[0],
        "first_timestamp": samples[0][0],
        "last": values[-1],
        "last_timestamp": samples[-1][0],
        "resets": len(falls),
        "changes": sum(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs),
        "values": values,
        "falls": falls,
        "sketch": sketch(values),
    }


STALE_MARKER = float(STALE)
