"""Estimate what it costs to evaluate a rule over stored segments.

Comes in: some of the segments that the rule does not cover, and the store. Goes out: CPU seconds for each row, measured
by evaluating the rule over one of them here; nothing is written. None if no segment can be read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.materialize import MaterializeWork, make_parts
from lakerunner.pipeline.merge.inputs import scratch
from lakerunner.pipeline.part_segments import RuleBook


@dataclass(frozen=True)
class RuleEstimate:
    """The rows that were evaluated, and the CPU seconds that it took."""

    rows: int
    seconds: float

    def of(self, rows: int) -> float:
        """Return the CPU seconds of this many rows."""
        return self.seconds * rows / self.rows


def estimate(store: SegmentStore, segments: Sequence[Segment], book: RuleBook, memory: int) -> RuleEstimate | None:
    """Measure a segment of median size; the smallest is evaluated before it, so that compiling kernels does not
    count."""
    by_rows = sorted(segments, key=lambda one: one.rows)
    found = None
    for segment in (*by_rows[:1], *by_rows[len(by_rows) // 2 :][:1]):
        with suppress(Corrupt), scratch() as directory:
            began = time.thread_time()
            make_parts(MaterializeWork(segment, book), store, lambda _key, _data: None, memory, directory)
            found = RuleEstimate(segment.rows, time.thread_time() - began)
    return found
