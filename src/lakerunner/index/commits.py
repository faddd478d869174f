"""Follow the commits of log segments: each segment that ingest commits is found once, however long its commit takes.

Segments are numbered (`ingested`) before their transaction commits, so a smaller number can appear after a greater one.
A poll therefore reads all numbers above a horizon and leaves out the segments that it has returned already. The horizon
follows once no transaction runs any more that could have taken a number up to it. Merges take no part: they bring no
new lines. Segments that a merge has replaced count, since a merge may come between a commit and the poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from lakerunner.index.database import Database
from lakerunner.index.segments import Segments
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange

LAG = 1000  # numbers below the newest one in which the first poll looks for commits that still run
MARKS_MAX = 7200  # polls for which a running transaction holds the horizon


@dataclass(frozen=True)
class _Mark:
    """The numbers up to `number` were taken by transactions before `transaction`."""

    number: int
    transaction: int


@dataclass(frozen=True)
class Beginning:
    """The live log segments of one moment, and what ingest had committed above the horizon by then."""

    segments: tuple[Segment, ...]
    known: frozenset[UUID]


class Commits:
    """Commits since the first call. One thread polls; `begin` may be called from any thread."""

    def __init__(self, database: Database, segments: Segments) -> None:
        self._database = database
        self._segments = segments
        self.reset()

    def reset(self) -> None:
        """Forget all: the next call is the first one."""
        self._horizon: int | None = None
        self._marks: deque[_Mark] = deque()
        self._found: dict[UUID, int] = {}

    def start(self) -> int:
        """Return the horizon: whatever is committed from now on is above it or is found by a later poll."""
        if self._horizon is None:
            ((number,),) = self._database.rows("segments.given_out", {})
            self._horizon = max(0, number - LAG)
        return self._horizon

    def begin(self, organization: UUID, time: TimeRange, horizon: int) -> Beginning:
        """Return the live segments of a range and the commits that they include, both of one moment."""
        return Beginning(*self._segments.pick_committed(organization, time, horizon))

    def poll(self, organizations: Collection[UUID]) -> list[Segment]:
        """Return the segments that ingest has committed for these organizations since the last poll."""
        horizon = self.start()
        ((number,),) = self._database.rows("segments.given_out", {})
        if number < horizon:  # the index was restored to an earlier state
            self.reset()
            horizon = self.start()
        # After the number was read: each transaction that took one up to it is older than `begun`.
        ((running, begun),) = self._database.rows("segments.in_flight", {})
        values = {"after": horizon, "organizations": list(organizations)}
        committed = self._segments.query("segments.committed", values)
        new = [one for one in committed if one.id not in self._found]
        self._found |= {one.id: one.ingested for one in new}
        while self._marks and (self._marks[0].transaction <= running or len(self._marks) > MARKS_MAX):
            self._horizon = self._marks.popleft().number
        self._marks.append(_Mark(number, begun))
        self._found = {id_: own for id_, own in self._found.items() if own > self.start()}
        return new
