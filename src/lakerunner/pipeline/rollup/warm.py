"""Compiles the kernels of rollups, or loads them from numba's cache, so that the first buckets do not wait for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.model.signal import METRICS
from lakerunner.model.tier import RAW, TIERS
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.pipeline.rollup.touched import Touched


def warm() -> None:
    """Roll up one point, and its bucket."""
    known = {"timestamp": pa.array([1], pa.int64()), "value": pa.array([1.0])}
    arrays = [
        known[field.name].cast(field.type) if field.name in known else _empty(field.type) for field in METRICS.schema
    ]
    rows = [pa.RecordBatch.from_arrays(arrays, schema=METRICS.schema)]
    Touched(TIERS[0], np.zeros(1, np.int64), np.zeros(1, np.int64)).wanted(rows[0])
    for source, target in ((RAW, TIERS[0]), (TIERS[0], TIERS[1])):
        fold = Fold(source, target, rows[0].schema, lambda series: np.zeros(len(series), np.bool_))
        rows = list(fold.buckets(rows))


def _empty(kind: pa.DataType) -> pa.Array:
    """One value that says nothing."""
    if pa.types.is_map(kind):
        return pa.array([[]], kind)
    if pa.types.is_string(kind):
        return pa.array([""], kind)
    return pa.array([0], kind) if pa.types.is_uint32(kind) or pa.types.is_int64(kind) else pa.nulls(1, kind)
