"""Warming compiles all that rollups run: the first windows wait for nothing."""

from __future__ import annotations

import numpy as np

from lakerunner.model import sketch
from lakerunner.model.tier import RAW, TIERS
from lakerunner.pipeline.rollup import buckets, coverage
from lakerunner.pipeline.rollup.coverage import TouchedBuckets
from lakerunner.pipeline.warm import warm_fold
from pipeline.windows_oracle import batch_of, raw, rolled

KERNELS = (
    *(buckets.find_buckets, buckets.drop_overwritten, buckets.fold_points, buckets.fold_buckets),
    *(sketch.find_buckets, sketch.find_spans, sketch.count_values, sketch.find_row_spans, sketch.add_rows),
    coverage._mark_rows,
)


def test_nothing_is_compiled_after_warming() -> None:
    warm_fold()
    before = [len(kernel.signatures) for kernel in KERNELS]
    assert all(before)
    points = [raw(1, value=-1.5), raw(2, int_value=3), raw(3, metric_type="sum"), raw(4, value=0.0, flags=1)]
    batch = batch_of([*points, raw(9, metric_type="histogram", temporality="delta", count=1, bucket_counts=[1])])
    fine = rolled([batch.slice(0, 2), batch.slice(2)], RAW, TIERS[0])
    assert rolled(fine.to_batches(), TIERS[0], TIERS[1]).num_rows == 1
    TouchedBuckets(TIERS[0], np.ones(1, np.int64), np.ones(1, np.int64)).select_rows(batch)
    assert [len(kernel.signatures) for kernel in KERNELS] == before
