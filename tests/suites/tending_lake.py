"""A lake without files for the tests of compaction and rollup: a real index, a bus in memory, and jobs that make index
rows only, or fail as they are told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lakerunner.bus.bus import Bus
from lakerunner.bus.postgres import PostgresBus
from lakerunner.bus.topics import CompactBox, Message, RollupBox, compact_boxes, decode, encode
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.tending import Retry
from lakerunner.model.errors import Crashed, Unavailable
from lakerunner.model.failpoint import arm
from lakerunner.model.merging import MergeLimits
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.tier import window_end
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, Outcome
from lakerunner.pipeline.rollup_job import RollupWork
from lakerunner.services.boxer import Boxer, compact_lane, rollup_lane
from lakerunner.services.compact import Compaction
from lakerunner.services.outbox import commit_messages
from lakerunner.services.rollup import Planned, Rollup
from lakerunner.services.work import Worker, WorkParts
from lakerunner.settings import Settings
from servers.memory_bus import MemoryBus

ACME = Organization(UUID("aaaaaaaa-0000-4000-8000-000000000001"), "acme")
OTHER = Organization(UUID("bbbbbbbb-0000-4000-8000-000000000002"), "other")
ADDRESS = StoreAddress("memory://")
LIMITS = CompactLimits(memory=1 << 20, max_bytes=2000)
MERGE = MergeLimits(max_segments=4, target_bytes=1000)
SETTINGS = Settings(
    compact_target_bytes=1000, compact_max_segments=4, compact_max_seconds=60.0, rollup_max_seconds=10.0
)
MS = 1_000_000


@dataclass
class Jobs:
    """What the next jobs do. `crash`: works with one of these segments kill their worker; `damaged` ones cannot be
    read; `fail`: works that have one of these fail; `first` is called before the job ends."""

    crash: set[UUID] = field(default_factory=set)
    damaged: set[UUID] = field(default_factory=set)
    fail: set[UUID] = field(default_factory=set)
    away: bool = False
    first: Callable[[], None] = lambda: None
    sizes: list[int] = field(default_factory=list)  # works of each job

    def _begin(self, works: Sequence[Sequence[Segment]]) -> None:
        self.sizes.append(len(works))
        if self.away:
            raise Unavailable("the store is away")
        if any(one.id in self.crash for work in works for one in work):
            raise Crashed("a worker died")
        self.first()

    def _trouble(self, segments: Sequence[Segment]) -> Outcome | None:
        for one in segments:
            if one.id in self.damaged:
                return Outcome((), error=f"{one.id} is damaged", damaged=one.id)
            if one.id in self.fail:
                return Outcome((), error="it does not work")
        return None

    def compact(self, _spark: Any, works: Sequence[CompactWork], *_: Any) -> list[Outcome]:
        self._begin([work.segments for work in works])
        return [self._trouble(work.segments) or Outcome((merged(work),)) for work in works]

    def rollup(self, _spark: Any, works: Sequence[RollupWork], *_: Any) -> list[Outcome]:
        self._begin([work.touched for work in works])
        return [self._trouble((*work.sources, *work.made)) or Outcome((rolled(work),)) for work in works]


def merged(work: CompactWork) -> Segment:
    first = work.segments[0]
    return segment(
        segment_id("merge", work.level, [str(one.id) for one in work.segments]),
        time=_hull(work.segments),
        collector=work.collector,
        signal=work.signal,
        frequency_ms=work.frequency_ms,
        level=work.level,
        rows=sum(one.rows for one in work.segments),
        bytes=sum(one.bytes for one in work.segments),
        ingested=max(one.ingested for one in work.segments),
        rolled=first.rolled,
        rule_set=first.rule_set,
    )


def rolled(work: RollupWork) -> Segment:
    """A row for each window, as if the touched segments had one series."""
    ends = [
        window_end(time // MS, work.target_frequency_ms)
        for one in work.touched
        for time in (one.time.start_ns, one.time.end_ns - 1)
    ]
    return segment(
        segment_id("roll", work.target_frequency_ms, [str(one.id) for one in (*work.touched, *work.sources)]),
        time=TimeRange(min(ends) * MS, max(ends) * MS + 1),
        collector=work.collector,
        signal="metrics",
        frequency_ms=work.target_frequency_ms,
        rows=len(set(ends)),
    )


def segment(id_: UUID | str, **changes: Any) -> Segment:
    values: dict[str, Any] = {
        "id": id_ if isinstance(id_, UUID) else segment_id(id_),
        "organization": ACME.id,
        "collector": "c",
        "signal": "logs",
        "time": TimeRange(0, 10),
        "rows": 1,
        "bytes": 10,
        "sort_version": 1,
        "columns": (Column("timestamp", ""),),
    }
    return Segment(**{**values, **changes})


def _hull(segments: Sequence[Segment]) -> TimeRange:
    return TimeRange(min(one.time.start_ns for one in segments), max(one.time.end_ns for one in segments))


class Lake:
    def __init__(self, index: Index, bus: Bus | None = None) -> None:
        self.index = index
        self.bus: Bus = bus or MemoryBus()
        self.jobs = Jobs()
        self.now = 0.0
        self.probes = 0

    def worker_parts(self, attempts: int = 3, at_once: int = 4) -> WorkParts:
        return WorkParts(self.index.tending, self._probe, Retry(attempts, 10.0), at_once)

    def _probe(self) -> None:
        self.probes += 1

    def compaction(self, **changes: int) -> Worker[CompactBox, CompactWork]:
        spark: Any = nullcontext  # of None: the jobs need no session
        kind = Compaction(self.index, spark, ADDRESS, MERGE, LIMITS, self.jobs.compact)
        return Worker(kind, self.bus, self.worker_parts(**changes), lambda: self.now)

    def rollups(self, **changes: int) -> Worker[RollupBox, Planned]:
        spark: Any = nullcontext  # of None: the jobs need no session
        kind = Rollup(self.index, spark, ADDRESS, LIMITS, self.jobs.rollup)
        return Worker(kind, self.bus, self.worker_parts(**changes), lambda: self.now)

    def boxers(self) -> list[Boxer[Any]]:
        lanes = [*(compact_lane(signal, SETTINGS) for signal in ("logs", "metrics")), rollup_lane(SETTINGS)]
        return [Boxer(lane, self.bus, lambda: self.now) for lane in lanes]

    def commit(self, *segments: Segment, tell: bool = False) -> list[Segment]:
        """One by one, as ingest does; `tell`: with the messages that follow."""
        for one in segments:
            self.index.commit(Commit((one,), (), (), messages=commit_messages([one]) if tell else ()))
        return list(segments)

    def box(self, *segments: Segment, level: int = 0) -> None:
        first = segments[0]
        box = CompactBox(
            ACME.id, first.collector, first.signal, first.frequency_ms, level, tuple(one.id for one in segments)
        )
        self.bus.publish([(compact_boxes(first.signal), encode(box))])

    def rollup_box(self, target: int, *segments: Segment) -> None:
        first = segments[0]
        box = RollupBox(ACME.id, first.collector, first.frequency_ms, target, tuple(one.id for one in segments))
        self.bus.publish([("segments.metrics.rollup", encode(box))])

    def relay(self) -> int:
        sent = 0
        while some := self.index.outbox.relay(self.bus.publish):
            sent += some
        return sent

    def live(self, signal: str = "logs", frequency_ms: int = 0) -> list[Segment]:
        picked = self.index.segments.pick(ACME.id, signal, ALL_TIME, frequency_ms=frequency_ms)
        return sorted(picked.segments, key=lambda one: (one.ingested, one.id))

    def levels(self, signal: str = "logs", frequency_ms: int = 0) -> list[tuple[int, int]]:
        """(level, rows) of what is live, in the order it came in."""
        return [(one.level, one.rows) for one in self.live(signal, frequency_ms)]

    def left(self, topic: str, group: str) -> list[Message]:
        """What is still on the bus for the group, its members being closed."""
        subscription = self.bus.subscribe([topic], group)
        found = [decode(delivery.payload) for delivery in subscription.take(100, 0)]
        subscription.close()
        return found

    def hurry(self) -> None:
        """Every pause of failed work is over."""
        with self.index.pool.connection() as connection:
            connection.execute("UPDATE lrdb.failed_work SET next_at = now() - interval '1 s'")
        self.now += 100.0

    def age(self, seconds: int) -> None:
        """All that is there came so much earlier."""
        with self.index.pool.connection() as connection:
            query = "UPDATE lrdb.segments SET created_at = created_at - make_interval(secs => %s)"
            connection.execute(query, [seconds])


def step_until(url: str, name: str, failpoint: str, steps: int) -> None:
    """What a process does that tends a lake: so many steps of the boxer, compaction or rollup, on the real bus. Armed,
    it dies on the way."""
    arm(failpoint)
    index = Index.open(url)
    bus = PostgresBus(index.pool, url)
    lake = Lake(index, bus)
    openers: dict[str, Callable[[], Sequence[Any]]] = {
        "boxer": lake.boxers,
        "compact": lambda: [lake.compaction()],
        "rollup": lambda: [lake.rollups()],
    }
    workers = openers[name]()
    for _ in range(steps):
        lake.relay()
        for worker in workers:
            worker.step()
        lake.now += 700.0
    for worker in workers:
        worker.close()
    bus.close()
    index.close()
