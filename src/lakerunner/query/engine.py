"""A question in, an answer out: compile the text, pick the segments, have the unit of work run.

Whose segments are picked is the `organization` argument, which comes from the caller's key; the text has no say in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from lakerunner.lakeql import compile_sql
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.sql import SqlPlan
from lakerunner.query.answer import Answer
from lakerunner.query.syntax import Syntax
from lakerunner.query.unit import ScanInput, WorkUnit


class Segments(Protocol):
    def pick(self, organization: UUID, signal: str, time: TimeRange, *, frequency_ms: int = 0) -> list[Segment]:
        """The organization's live segments that overlap the range, in a fixed order."""


class SegmentIndex(Protocol):
    @property
    def segments(self) -> Segments: ...


class Engine:
    """`run` works a unit out: a QueryWorker's in this process, or one that sends it to a worker elsewhere."""

    def __init__(self, index: SegmentIndex, run: Callable[[WorkUnit], Answer]) -> None:
        self._index = index
        self._run = run
        self._syntax = Syntax()

    def sql(self, organization: UUID, text: str, now_ns: int) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        plan = compile_sql(text, organization, now_ns)
        self._syntax.check(text)
        return self._run(self._unit(organization, plan))

    def _unit(self, organization: UUID, plan: SqlPlan) -> WorkUnit:
        """Scans over the same range read the same segments, also when a compaction commits in between."""
        picked: dict[tuple[str, TimeRange], tuple[Segment, ...]] = {}
        for scan in plan.scans:
            if (scan.signal, scan.time) not in picked:
                segments = self._index.segments.pick(organization, scan.signal, scan.time)
                picked[scan.signal, scan.time] = tuple(segments)
        inputs = tuple(ScanInput(scan, picked[scan.signal, scan.time]) for scan in plan.scans)
        return WorkUnit(organization, plan.sql, inputs)
