"""Rolling up anew, for comparison: the windows of a segment as pipeline/rollup makes them, without writing them."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pyarrow as pa

from lakerunner.index.inspect import Tier
from lakerunner.model.segment import Segment
from lakerunner.services.checks.finding import Lake
from lakerunner.services.checks.windows import Pick, Recompute, Unfit


def recomputing(lake: Lake) -> Recompute:
    try:
        rollup = importlib.import_module("lakerunner.pipeline.rollup.work")
    except ImportError:
        rollup = None

    def recompute(tier: Tier, target_ms: int, segment: Segment, pick: Pick) -> pa.Table:
        if rollup is None:
            raise Unfit("this version does not roll up")
        work = rollup.RollupWork(tier.organization, tier.collector, tier.frequency_ms, target_ms, (segment,), ())
        work = replace(work, sources=tuple(pick(work.span)))
        return rollup.recomputed(work, lake.store, lake.directory)

    return recompute
