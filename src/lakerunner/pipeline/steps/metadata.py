"""Metric.metadata, one map for each metric that has any, in the place of one for each of its points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakerunner.pipeline.read.otlp_metrics import METADATA
from lakerunner.pipeline.read.rows import Coded, Rows
from lakerunner.pipeline.steps.owners import share_owners
from lakerunner.pipeline.steps.take import flattened, map_array


def add_metadata(rows: Rows) -> Rows:
    """Adds metadata, null where there is none."""
    if METADATA not in rows.attached:
        return rows
    shared, _ = share_owners(rows.attached[METADATA], rows.data)
    everyone = np.arange(len(shared.first) - 1, dtype=np.int32)
    pairs, offsets = flattened(shared.first, everyone)
    maps = map_array(shared, pairs, offsets, rows.data)
    codes = np.where(np.diff(shared.first) > 0, everyone, np.int32(-1))
    attached = {name: one for name, one in rows.attached.items() if name != METADATA}
    return replace(rows, attached=attached).plus(**{METADATA: Coded(codes, maps, shared.owner)})
