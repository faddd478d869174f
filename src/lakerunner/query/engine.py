"""A question in, an answer out: compile the text, pick the segments, have leaves worked out, coordinate.

Whose segments are picked is the `organization` argument, which comes from the caller's key; the text has no say in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa

from lakerunner.lakeql import compile_sql
from lakerunner.model.segment import Picked
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Condition
from lakerunner.plan.sql import SqlPlan
from lakerunner.query.answer import Answer
from lakerunner.query.coordinate import Coordinator
from lakerunner.query.gather import Gather, Gathering, Gathers
from lakerunner.query.syntax import Syntax
from lakerunner.query.types import BoundTypes
from lakerunner.query.workers import Workers


@dataclass(frozen=True)
class Question:
    """SQL as it was asked. `parameters` are the values of $1, $2 or $name; `partial`: what cannot be read is named in
    the account instead of being an error; `engine`: duckdb, or spark for what outgrows it."""

    text: str
    now_ns: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    engine: str = "duckdb"


class Segments(Protocol):
    def pick(
        self,
        organization: UUID,
        signal: str,
        time: TimeRange,
        *,
        conditions: tuple[Condition, ...] = (),
        frequency_ms: int = 0,
    ) -> Picked:
        """The organization's live segments that overlap the range and may hold rows that meet the conditions, in a
        fixed order."""


class SegmentIndex(Protocol):
    @property
    def segments(self) -> Segments: ...


class Engine:
    def __init__(
        self,
        index: SegmentIndex,
        workers: Workers,
        coordinator: Coordinator,
        gathering: Gathering = Gathering(),  # noqa: B008 a frozen value
    ) -> None:
        self._index = index
        self._workers = workers
        self._coordinator = coordinator
        self._gathering = gathering
        self._syntax = Syntax()
        self._types = BoundTypes()

    def sql(self, organization: UUID, question: Question) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        plan = compile_sql(
            question.text, organization, question.now_ns, parameters=question.parameters, types=self._types
        )
        self._syntax.check(question.text)
        gathers = self._gathers(organization, plan, question.partial)

        def relations(held: ExitStack) -> dict[str, pa.RecordBatchReader]:
            held.callback(gathers.close)
            return gathers.readers()

        return self._coordinator.run(_limited(plan), relations, gathers)

    def _gathers(self, organization: UUID, plan: SqlPlan, partial: bool) -> Gathers:
        """Scans that ask for the same read the same segments, also when a compaction commits in between."""
        picked: dict[tuple[str, TimeRange, tuple[Condition, ...]], Picked] = {}
        for scan in plan.scans:
            asked = (scan.signal, scan.time, scan.conditions)
            if asked not in picked:
                pick = self._index.segments.pick
                picked[asked] = pick(organization, scan.signal, scan.time, conditions=scan.conditions)
        how = replace(self._gathering, partial=partial, ahead=len(plan.leaves) > 1)
        gathers = {}
        for leaf in plan.leaves:
            segments = picked[leaf.scan.signal, leaf.scan.time, leaf.scan.conditions].segments
            gathers[leaf.scan.relation] = Gather(organization, leaf, segments, self._workers, how)
        return Gathers(gathers)


def _limited(plan: SqlPlan) -> str:
    """All rounds at once: what they would count is counted by the SQL."""
    if plan.rounds is None:
        return plan.sql
    limit = f" LIMIT {plan.rounds.limit}" if plan.rounds.limit is not None else ""
    return f"{plan.sql}{limit} OFFSET {plan.rounds.offset}"
