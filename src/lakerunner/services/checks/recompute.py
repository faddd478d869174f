"""Rolling up anew, for comparison: the windows of a segment as pipeline/rollup makes them, without writing them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from lakerunner.index.inspect import Tier
from lakerunner.model.segment import Segment
from lakerunner.pipeline.rollup.work import RollupWork, recomputed
from lakerunner.services.checks.finding import Lake
from lakerunner.services.checks.windows import Pick, Recompute


def recomputing(lake: Lake) -> Recompute:
    def recompute(tier: Tier, target_ms: int, segment: Segment, pick: Pick) -> pa.Table:
        work = RollupWork(tier.organization, tier.collector, tier.frequency_ms, target_ms, (segment,), (segment,))
        work = replace(work, sources=tuple(pick(work.span)))
        with TemporaryDirectory(dir=lake.directory) as directory:
            return recomputed(work, lake.store, Path(directory))

    return recompute
