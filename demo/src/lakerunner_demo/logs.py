"""Log records of requests and chores.

Comes in: requests as played (visits.py) and chores as written (chores.py). Goes out: the rows of each site that writes;
counting looks at the rows alone, encoding makes OTLP LogRecords of them. A record of a request carries the trace and
span that wrote it; a chore's has neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.time import TimeRange
from lakerunner_demo.chores import written
from lakerunner_demo.facts import Facts
from lakerunner_demo.noise import I64, U64, below, draw
from lakerunner_demo.records import Records, as_column
from lakerunner_demo.schedule import Schedule
from lakerunner_demo.sites import SITES, Site
from lakerunner_demo.visits import Played, Visits
from lakerunner_demo.wire import Column, Hole, encode, fixed_column

_COLLECTED_WITHIN_NS = 40_000_000


@dataclass(frozen=True)
class Rows:
    """The records that one site writes. `source` are their rows in `facts`."""

    site: Site
    facts: Facts
    source: I64
    time_ns: I64
    resource: I64
    played: Played | None = None
    visits: Visits | None = None

    def within(self, time: TimeRange) -> Rows:
        keep = np.flatnonzero((self.time_ns >= time.start_ns) & (self.time_ns < time.end_ns))
        if len(keep) == len(self.source):
            return self
        return replace(self, source=self.source[keep], time_ns=self.time_ns[keep], resource=self.resource[keep])

    def records(self) -> Records:
        data = encode(self.site.parts, self._column, len(self.source))
        return Records(self.time_ns, self.facts.keys[self.source], self.resource, as_column(data))

    def _column(self, hole: Hole) -> Column:
        match hole.name:
            case "time":
                return fixed_column(self.time_ns)
            case "observed":
                bits = draw(self.facts.world, "collected", self.facts.keys[self.source])
                return fixed_column(self.time_ns + 1_000_000 + below(bits, _COLLECTED_WITHIN_NS))
        if self.played and self.visits:
            match hole.name:
                case "trace_id":
                    return Column(self.visits.trace_id[self.source])
                case "span_id":
                    return fixed_column(self.played.span_id[self.source])
                case "ms" | "took" | "attempt":
                    return Facts(0, self.facts.keys, self._span_numbers(self.played)).column(hole)
        return self.facts.column(hole).take(self.source)

    def _span_numbers(self, played: Played) -> Mapping[str, I64 | U64]:
        took_us = (played.end_ns[self.source] - played.start_ns[self.source]) // 1000
        attempt = np.full(len(self.source), played.node.call.attempt, np.int64)
        return {"ms": took_us // 1000, "took": took_us, "attempt": attempt}


def log_rows(visits: Visits) -> Iterator[Rows]:
    """Yield every line that these requests write."""
    facts = Facts(visits.schedule.world, visits.ids)
    for played in visits.played:
        for site in SITES.get((played.node.service, played.node.site), ()):
            at = played.state == site.line.state
            if site.line.percent < 100:
                bits = draw(visits.schedule.world, f"{site.salt} {played.node.index}", visits.ids)
                at &= below(bits, 100) < site.line.percent
            rows = np.flatnonzero(at)
            time = _time(played, rows, site.line.at)
            yield Rows(site, facts, rows, time, played.resource[rows], played, visits)


def _time(played: Played, rows: I64, at: int) -> I64:
    """Return when `at` thousandths of the span's own work are done; up to 500 before its calls, then after them."""
    half = played.own_ns[rows] // 2
    if at <= 500:
        return played.start_ns[rows] + half * at // 500
    return played.end_ns[rows] - half * (1000 - at) // 500


def chore_rows(schedule: Schedule, time: TimeRange) -> Iterator[Rows]:
    """Yield every line that is written without a request, in the time range."""
    for chore in written(schedule, time):
        facts = Facts(schedule.world, chore.ids)
        yield Rows(chore.site, facts, np.arange(len(chore.ids)), chore.time_ns, chore.resource)
