"""History of rules: which stored segments the rules do not cover yet that are to cover them.

Comes in: rules with the time from which on they cover stored segments (`since_ns`). Goes out: segments that lack one of
them, and how many are covered. What always holds: what is left follows from the rule sets of the live segments alone,
so that nothing is lost or done twice whenever a process dies; segments that cannot be read (`aside`) are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.index.segments import Segments
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.time import DAY_NS, HOUR_NS


@dataclass(frozen=True)
class RuleCoverage:
    """Live segments, their rows and bytes from `since_ns` on, how many segments and rows a version covers of them, and
    how many segments it lacks because they cannot be read."""

    segments: int
    rows: int
    bytes: int
    covered_segments: int
    covered_rows: int
    aside: int

    @property
    def is_complete(self) -> bool:
        return self.covered_segments + self.aside >= self.segments


NO_COVERAGE = RuleCoverage(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class UncoveredDay:
    """What a version does not cover of the segments that begin on a day, counted from the epoch."""

    day: int
    segments: int
    rows: int
    bytes: int


class RuleHistory:
    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments

    def uncovered(self, signals: Collection[str], limit: int, without: Collection[UUID] = ()) -> list[Segment]:
        """Return segments of these signals, of any organization, that an active version wants and lacks; newest hour
        first. Segments of `without` are left out."""
        values = {"signals": list(signals), "limit": limit, "without": list(without), "hour_ns": HOUR_NS}
        return self._segments.query("rule_history.uncovered", values)

    def coverage(self, organization: UUID) -> dict[int, RuleCoverage]:
        """Return the coverage of each rule that covers history, by the number of its version."""
        rows = self._database.rows("rule_history.coverage", {"organization": organization})
        return {id_: RuleCoverage(*counts) for id_, *counts in rows}

    def left_by_day(self, version: RuleVersion, since_ns: int) -> list[UncoveredDay]:
        """Return what a version would still have to cover from this time on, newest day first."""
        rows = self._database.rows("rule_history.left_by_day", _wanted_by(version, since_ns) | {"day_ns": DAY_NS})
        return [UncoveredDay(*row) for row in rows]

    def newest_left(self, version: RuleVersion, since_ns: int, limit: int) -> list[Segment]:
        """Return the newest segments of these."""
        return self._segments.query("rule_history.newest_left", _wanted_by(version, since_ns) | {"limit": limit})


def _wanted_by(version: RuleVersion, since_ns: int) -> dict[str, object]:
    whose = {"organization": version.organization, "signal": version.rule.signal}
    return whose | {"version": version.id, "since_ns": since_ns}
