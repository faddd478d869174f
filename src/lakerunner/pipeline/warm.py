"""Compile the jitted code of the pipeline, or load it from numba's cache, so that the first work does not wait for it.

Each function runs its part of the pipeline on a small sample.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS, SIGNALS, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import RAW, TIERS
from lakerunner.objects.local import LocalStore
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.pipeline.remote_write.reader import warm_remote_write
from lakerunner.pipeline.rollup.coverage import TouchedBuckets
from lakerunner.pipeline.rollup.fold import Fold
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.pipeline.row_segments import Put

_NOBODY = UUID(int=0)
_LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)


def warm_ingest() -> None:
    """Make segments of the sample of each signal, and read remote write."""
    for signal in SAMPLES:
        warm_signal(signal)
    warm_remote_write()


def warm_signal(signal: str) -> None:
    """Make segments of the OTLP sample of this signal."""
    _make_sample(SIGNALS[signal], 1, lambda _path, _data: None)


def warm_fold() -> None:
    """Roll up one point, and its bucket. It needs no files, so the parent of Spark's workers can call it."""
    known = {"timestamp": pa.array([1], pa.int64()), "value": pa.array([1.0])}
    arrays = [
        known[field.name].cast(field.type) if field.name in known else _empty(field.type) for field in METRICS.schema
    ]
    rows = [pa.RecordBatch.from_arrays(arrays, schema=METRICS.schema)]
    TouchedBuckets(TIERS[0], np.zeros(1, np.int64), np.zeros(1, np.int64)).select_rows(rows[0])
    for source, target in ((RAW, TIERS[0]), (TIERS[0], TIERS[1])):
        fold = Fold(source, target, rows[0].schema, lambda series: np.zeros(len(series), np.bool_))
        rows = list(fold.buckets(rows))


def warm_merges() -> None:
    """Merge and roll up samples in a temporary directory."""
    with TemporaryDirectory() as name:
        for signal in SAMPLES:
            _tend(SIGNALS[signal], Path(name))


def _tend(spec: SignalSpec, directory: Path) -> None:
    store = LocalStore(directory)
    segments = [
        replace(segment, ingested=number) for number in (1, 2) for segment in _make_sample(spec, number, store.put)
    ]
    # Merge those of the first organization, collector and hour.
    first = [segment for segment in segments if segment.path.split("/")[2:5] == segments[0].path.split("/")[2:5]]
    address = StoreAddress(directory.as_uri())
    outcomes = [compact_work(CompactWork(_NOBODY, "sample", spec.name, RAW, 1, tuple(first)), address, _LIMITS)]
    if spec.name == "metrics":
        touched = tuple(first)
        for source_tier, tier in zip((RAW, *TIERS[:1]), TIERS[:2], strict=True):
            rolled = rollup_work(RollupWork(_NOBODY, "sample", source_tier, tier, touched, touched), address, _LIMITS)
            outcomes.append(rolled)
            touched = rolled.segments
    assert not any(outcome.error for outcome in outcomes), outcomes  # noqa: S101 - our own constant


def _make_sample(spec: SignalSpec, number: int, put: Put) -> tuple[Segment, ...]:
    data = SAMPLES[spec.name]()
    raw = Raw(SourceObject("sample", f"{spec.name}{number}", "sample", len(data), 0), memoryview(data))
    made = make_segments(spec, _NOBODY, "sample", [raw], put)
    assert not made.failed, made.failed  # noqa: S101 - our own constant
    return made.segments


def _empty(kind: pa.DataType) -> pa.Array:
    """Return one empty or null value of this type."""
    if pa.types.is_map(kind):
        return pa.array([[]], kind)
    if pa.types.is_string(kind):
        return pa.array([""], kind)
    return pa.array([0], kind) if pa.types.is_uint32(kind) or pa.types.is_int64(kind) else pa.nulls(1, kind)
