"""The loop of compaction and rollup: take boxes, plan works, run them in a Spark job, commit each, acknowledge the
boxes.

Comes in: boxes from the bus, and failed ones whose pause is over. Goes out: commits, and rows of failed work. A kind
(compact.py, rollup.py) says what a box means.

What always holds: a box that was taken is kept until each of its works is committed, recorded as failed, or void. An
attempt counts as failed only for the work that fails or kills its worker, and not if the store or the index is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.bus.topics import CompactBox, RollupBox, decode, encode
from lakerunner.index.tending import Retry, Tending, Work
from lakerunner.model.errors import Conflict, Corrupt, Crashed, Unavailable
from lakerunner.model.failpoint import reach
from lakerunner.model.segment import Segment
from lakerunner.pipeline.compact import Outcome
from lakerunner.services import meters
from lakerunner.services.boxer import readable
from lakerunner.services.logs import Log

log = Log("work")
_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 2.0  # between two looks for failed work that is due
_CONFLICTS = 20  # this many in a row are not chance

B = TypeVar("B", bound=CompactBox | RollupBox)
W = TypeVar("W")
R = TypeVar("R")


class WorkKind(Protocol[B, W]):
    """How boxes of one kind are planned, run and committed. `points` are the failpoints before and after a commit, and
    after the box is acknowledged."""

    @property
    def name(self) -> str: ...

    @property
    def topics(self) -> Sequence[str]: ...

    @property
    def box(self) -> type[B]: ...

    @property
    def points(self) -> tuple[str, str, str]: ...

    def plan(self, box: B) -> list[W]:
        """Return what there is to do, by the segments that are live now; nothing if all of it is done or void."""

    def run(self, works: Sequence[W]) -> list[Outcome]:
        """Run one Spark job. Crashed if a worker died."""

    def commit(self, work: W, outcome: Outcome) -> None:
        """Commit a work. Conflict if the segments that it was made of have changed."""

    def segments(self, work: W) -> tuple[Segment, ...]:
        """Return the segments that the work is for: a failed work becomes a box of these."""

    def does_without(self, work: W, damaged: UUID) -> bool:
        """Return whether the work can be done without this segment, which is set aside."""

    def report(self, work: W, outcome: Outcome, seconds: float) -> None: ...


@dataclass(frozen=True)
class WorkParts:
    """What a worker needs. `probe` raises if Spark does not work. `at_once` is the number of works in one job. `turn`
    is held while a job runs, so that those who share it do not fill Spark."""

    tending: Tending
    probe: Callable[[], None]
    retry: Retry
    at_once: int
    turn: Lock = field(default_factory=Lock)


@dataclass(eq=False)
class _Task(Generic[B]):
    """A box that was taken from the bus or from failed work. `recorded` are its works that have just failed, by their
    segments: they are not retried at once when others of the box are."""

    box: B
    delivery: Delivery | None = None
    failed: Work | None = None
    conflicts: int = 0
    recorded: set[frozenset[UUID]] = field(default_factory=set)


def run_each(
    run: Callable[[Sequence[W]], list[R]],
    works: Sequence[W],
    probe: Callable[[], None],
    name: str,
    failed: Callable[[str], R],
) -> list[R]:
    """Run works in one job; after a crash one by one, which finds the one that caused it: its result is `failed`."""
    try:
        return run(works)
    except Exception as error:
        if isinstance(error, Unavailable) and not isinstance(error, Crashed):
            raise
        probe()  # if other workers live, the work is to blame
        is_bug = not isinstance(error, Crashed)
        log.error("job failed", trace=is_bug, work=name, works=len(works), error=str(error))
        if len(works) > 1:
            return [one for work in works for one in run_each(run, [work], probe, name, failed)]
        return [failed(f"{type(error).__name__}: {error}")]


def _failed(reason: str) -> Outcome:
    return Outcome((), error=reason)


class Worker(Generic[B, W]):
    """The loop of one kind of work. `clock` returns monotonic seconds."""

    def __init__(
        self, kind: WorkKind[B, W], bus: Bus, parts: WorkParts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kind = kind
        self._parts = parts
        self._clock = clock
        self._next_look = clock()
        self._subscription: Subscription = bus.subscribe(kind.topics, kind.name)
        self._in_hand: list[_Task[B]] = []

    def step(self) -> None:
        if not self._in_hand:
            self._take()
        if not self._in_hand or not self._parts.turn.acquire(timeout=_WAIT_SECONDS):
            return
        try:
            ended = self._try(self._in_hand)
        finally:
            self._parts.turn.release()
        for task in ended:
            self._give_up(task)

    def close(self) -> None:
        """Stop; failed work that was taken is due again at once."""
        for task in self._in_hand:
            if task.failed:
                self._parts.tending.put_off(task.failed, 0.0)
        self._in_hand = []
        self._subscription.close()

    def _take(self) -> None:
        """Take boxes. Failed work comes first: there is little of it, and it has waited."""
        at_once = self._parts.at_once
        if self._clock() >= self._next_look:
            for work in self._parts.tending.due(self._kind.topics, at_once):
                self._take_failed(work)
            self._next_look = self._clock() + (0.0 if self._in_hand else _LOOK_SECONDS)
        room = at_once - len(self._in_hand)
        if room:
            wait = 0.0 if self._in_hand else _WAIT_SECONDS
            for delivery in self._subscription.take(room, wait):
                box = readable(delivery, self._kind.box)
                if box is None:
                    self._subscription.commit([delivery])
                else:
                    self._in_hand.append(_Task(box, delivery))

    def _take_failed(self, work: Work) -> None:
        try:
            box = decode(work.payload)
        except Corrupt as error:
            log.error("failed work of another version dropped", work=work.id, error=str(error))
            box = None
        if isinstance(box, self._kind.box):
            self._in_hand.append(_Task(box, failed=work))
        else:
            self._parts.tending.done(work)

    def _try(self, tasks: Sequence[_Task[B]]) -> list[_Task[B]]:
        """Do what there is to do; return the tasks that have ended."""
        planned = [
            (task, work)
            for task in tasks
            for work in self._kind.plan(task.box)
            if frozenset(self._ids(work)) not in task.recorded
        ]
        again: list[_Task[B]] = []
        for start in range(0, len(planned), self._parts.at_once):
            some = planned[start : start + self._parts.at_once]
            started = self._clock()
            works = [work for _, work in some]
            outcomes = run_each(self._kind.run, works, self._parts.probe, self._kind.name, _failed)
            for (task, work), outcome in zip(some, outcomes, strict=True):
                if not self._finish(task, work, outcome, self._clock() - started):
                    again.append(task)
        return [task for task in tasks if task not in again]

    def _finish(self, task: _Task[B], work: W, outcome: Outcome, seconds: float) -> bool:
        """Commit a work or record its failure; return False if the box must be planned again."""
        if outcome.damaged is not None and self._kind.does_without(work, outcome.damaged):
            self._set_aside(task.box.organization, outcome.damaged, outcome.error)
            return False
        if outcome.error or outcome.damaged is not None:
            self._fail(task, work, outcome.error or f"segment {outcome.damaged} cannot be read")
            return True
        before, after, _ = self._kind.points
        reach(before)
        try:
            self._kind.commit(work, outcome)
        except Conflict as error:
            return self._conflicted(task, work, str(error))
        reach(after)
        self._kind.report(work, outcome, seconds)
        return True

    def _conflicted(self, task: _Task[B], work: W, reason: str) -> bool:
        log.debug("another worker committed first; checking again", work=self._kind.name, reason=reason)
        meters.WORK_CONFLICTS.labels(self._kind.name).inc()
        task.conflicts += 1
        if task.conflicts < _CONFLICTS:
            return False
        self._fail(task, work, f"another worker committed first, {task.conflicts} times: {reason}")
        return True

    def _set_aside(self, organization: UUID, segment: UUID, reason: str) -> None:
        if self._parts.tending.set_aside(organization, [segment], reason):
            meters.SEGMENTS_ASIDE.labels(self._kind.name).inc()
            log.warning("segment set aside", work=self._kind.name, segment=str(segment), reason=reason)

    def _fail(self, task: _Task[B], work: W, reason: str) -> None:
        segments = self._ids(work)
        topic = task.delivery.topic if task.delivery else self._kind.topics[0]
        failed = task.failed or Work(topic, encode(replace(task.box, segments=tuple(sorted(segments)))))
        retry = self._parts.retry
        attempts, state = self._parts.tending.fail(failed, task.box.organization, segments, reason, retry)
        task.recorded.add(frozenset(segments))
        meters.WORK_FAILURES.labels(self._kind.name).inc()
        log.warning("work failed", work=self._kind.name, id=failed.id, attempts=attempts, state=state, reason=reason)

    def _ids(self, work: W) -> list[UUID]:
        return [one.id for one in self._kind.segments(work)]

    def _give_up(self, task: _Task[B]) -> None:
        if task.delivery:
            self._subscription.commit([task.delivery])
        elif task.failed and not task.recorded:
            self._parts.tending.done(task.failed)
        self._in_hand.remove(task)
        reach(self._kind.points[2])
