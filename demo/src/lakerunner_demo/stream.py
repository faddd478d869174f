"""Generate the shop's time in chunks, so that any time range fits in memory.

Comes in: a schedule, a rate, a time range. Goes out: rows of the requests and chores in it, or encoded records in the
order of time. A walk starts LONGEST_NS early, because a request that began then may still have something to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.signal import LOGS
from lakerunner.model.time import SECOND_NS, TimeRange
from lakerunner_demo.logs import Rows, chore_rows, log_rows
from lakerunner_demo.records import Records, joined
from lakerunner_demo.schedule import Schedule
from lakerunner_demo.spans import SpanRows, span_rows
from lakerunner_demo.visits import LONGEST_NS, Visits, visits

_CHUNK_REQUESTS = 8192  # played at once: enough for numpy, few enough to stay small


@dataclass(frozen=True)
class Traffic:
    """The shop's schedule and its rate, in requests per second: all that its telemetry follows from."""

    schedule: Schedule
    rate: float


@dataclass(frozen=True)
class Chunk:
    """Requests that begin before `end_ns`, and of what they and the chores leave, all that lies in `time`."""

    traffic: Traffic
    time: TimeRange
    start_ns: int
    end_ns: int
    visits: tuple[Visits, ...]

    def logs(self) -> Iterator[Rows]:
        for visit in self.visits:
            for rows in log_rows(visit):
                yield rows.within(self.time)
        start, end = max(self.start_ns, self.time.start_ns), min(self.end_ns, self.time.end_ns)
        if start < end:
            yield from chore_rows(self.traffic.schedule, TimeRange(start, end))

    def spans(self) -> Iterator[SpanRows]:
        for visit in self.visits:
            for rows in span_rows(visit):
                yield rows.within(self.time)


def chunks(traffic: Traffic, time: TimeRange) -> Iterator[Chunk]:
    opening = traffic.schedule.start_ns
    first = max(0, (time.start_ns - LONGEST_NS - opening) // SECOND_NS)
    last = -((opening - time.end_ns) // SECOND_NS)
    step = max(1, int(_CHUNK_REQUESTS / traffic.rate))
    for begin in range(first, last, step):
        end = min(begin + step, last)
        requests = tuple(visits(traffic.schedule, traffic.rate, begin, end))
        yield Chunk(traffic, time, opening + begin * SECOND_NS, opening + end * SECOND_NS, requests)


def records(traffic: Traffic, signal: str, time: TimeRange) -> Iterator[tuple[int, Records]]:
    """Yield (end, records): the records before `end` that were not yielded before, in order of time."""
    early = joined([])
    for chunk in chunks(traffic, time):
        rows = chunk.logs() if signal == LOGS.name else chunk.spans()
        made = joined([early, *(row.records() for row in rows if len(row.source))])
        complete, early = made.in_time_order().split(chunk.end_ns)
        yield chunk.end_ns, complete
