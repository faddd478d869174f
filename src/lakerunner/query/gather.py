"""What many workers make of one leaf: units handed out, results gathered, the lost taken over.

What always holds: every result of every unit is handed on once, or the gathering ends with an error, or the account
names the segments as missing. Rows of a steady operator are handed on as they come; a unit taken over in the middle is
run again and what was handed on of it is skipped. Other results wait until their unit has ended.

A worker that was lost is not asked again, a unit goes to each worker once at most. If the object store is away from a
worker, one other is tried. A segment that is damaged or absent is nobody's fault: no other worker is tried, and for a
partial answer the unit is run again without it. What cannot be read for a partial answer is named once, however many
units wanted it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from time import monotonic
from uuid import UUID

from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, Lost, Unavailable, UserError
from lakerunner.model.plural import plural
from lakerunner.model.segment import Segment
from lakerunner.model.tiling import Tiles
from lakerunner.model.time import TimeRange
from lakerunner.plan.plan import ALL, Cut, Leaf, Shard
from lakerunner.plan.sql_rows import SqlRows
from lakerunner.query.account import Account, Missing
from lakerunner.query.answer import Answer
from lakerunner.query.assign import UnitSize, assign, ranked
from lakerunner.query.failures import EngineError
from lakerunner.query.inflow import Spool, Stopped
from lakerunner.query.unit import Unit
from lakerunner.query.workers import Worker, Workers

SHARD_ROWS = 4_000_000  # of the picked segments: more are cut into shards, however many workers there are
_SHARDS = 16
_AT_ONCE = 32
_AT_ONCE_PER_WORKER = 2  # one is fetched or sent while the other is computed
_CLOSE_SECONDS = 1.0
_ANY_SEGMENT = UUID(int=0)
_logger = logging.getLogger("lakerunner.query.gather")


@dataclass(frozen=True)
class Gathering:
    """How the results of a query are gathered. `partial`: segments that cannot be read are named as missing in the
    account; otherwise they are an error. `ahead`: the work may be started long before its rows are read, or be one of
    several that are read one after the other; its rows wait on disk, so that no worker waits for the reader.
    `shard_rows`: of how many rows a shard of the series or traces is, so that the same rows are always cut in the same
    way, however many workers there are."""

    partial: bool = False
    ahead: bool = False
    size: UnitSize = field(default_factory=UnitSize)
    spool: Spool = field(default_factory=Spool)
    shard_rows: int = SHARD_ROWS
    most_shards: int = _SHARDS


@dataclass(eq=False)
class Task:
    """One unit, by whom it is done, and how far it got. `handed` rows are with the reader. `number`: its place among
    the units of the leaf."""

    worker: str
    segments: tuple[Segment, ...]
    shard: Shard = ALL
    number: int = 0
    tried: set[str] = field(default_factory=set)
    handed: int = 0
    store_was_away: bool = False

    def ranked(self, workers: Mapping[str, Worker]) -> list[str]:
        """Units over the same segments fall to one worker after the other, to the same ones every time."""
        names = ranked(self.segments[0].id if self.segments else _ANY_SEGMENT, workers)
        first = self.shard.number % len(names)
        return names[first:] + names[:first]

    def without(self, segment: Segment) -> Task:
        if segment not in self.segments:
            return self
        return replace(self, segments=tuple(one for one in self.segments if one != segment), tried=set())

    def halves(self) -> list[Task]:
        middle = len(self.segments) // 2
        return [Task(self.worker, part) for part in (self.segments[:middle], self.segments[middle:])]


class Gather(ABC):
    """One leaf over its segments. One thread reads it; the rest is for any thread."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: Gathering,
        tiles: Tiles | None = None,
    ) -> None:
        self._organization = organization
        self._leaf = leaf
        self._segments = segments
        self._tiles = tiles or {}
        self._known = workers
        self._how = how
        self._state = Condition()
        self._workers: dict[str, Worker] = {}
        self._lost: dict[str, str] = {}
        self._pending: list[Task] = []
        self._running: dict[Task, Answer | None] = {}
        self._busy: Counter[str] = Counter()
        self._account = Account()
        self._missing: set[UUID] = set()
        self._failure: Exception | None = None
        self._started = self._ended = self._closed = False

    @property
    def account(self) -> Account:
        """Of the units that have ended: their accounts, how many each worker did, and what is missing."""
        with self._state:
            return self._account

    @property
    def failure(self) -> Exception | None:
        """What the reader raises; DuckDB, reading it, passes on no more than its text."""
        with self._state:
            return self._failure

    def start(self) -> None:
        """Begin the work, in threads of its own, and return at once. Starting twice is fine."""
        with self._state:
            if self._prepare():
                self._dispatch()

    def close(self) -> None:
        """Stop what still runs, from any thread, and wait for that a second at most. Closing twice is fine."""
        with self._state:
            self._closed = True
            self._pending.clear()
            answers = [answer for answer in self._running.values() if answer is not None]
            self._state.notify_all()
        self._stop()
        _close_all(answers)

    # What becomes of results

    @abstractmethod
    def _hand_on(self, task: Task, answer: Answer) -> None:
        """Take the results of a unit, in its thread."""

    @abstractmethod
    def _end(self) -> bool:
        """All units have ended, with the lock held. Whether that was all; False if a unit was added."""

    @abstractmethod
    def _stop(self) -> None:
        """No more results are wanted."""

    # One unit, in its thread

    def _work(self, task: Task) -> None:
        error: Exception | None = None
        account = Account()
        try:
            account = self._attempt(task) + Account(workers={task.worker: 1})
        except Exception as raised:
            if not isinstance(raised, LakerunnerError | Stopped):
                _logger.error("unit failed", exc_info=raised)
            error = raised
        with self._state:
            del self._running[task]
            self._busy[task.worker] -= 1
            if self._closed or isinstance(error, Stopped):
                return
            if error is None:
                self._account += account
            else:
                self._settle(task, error)
            self._dispatch()

    def _attempt(self, task: Task) -> Account:
        unit = Unit(self._organization, self._leaf, task.segments, task.shard, self._tiles)
        answer = self._workers[task.worker].run(unit)
        with closing(answer):
            with self._state:
                if self._closed:
                    raise Stopped
                self._running[task] = answer
            self._hand_on(task, answer)
        return answer.account

    # With the lock held

    def _prepare(self) -> bool:
        """Cut the leaf into units. Whether there is anything to do: not twice, and not without workers."""
        if self._started or self._closed:
            return False
        self._started = True
        try:
            self._workers = {worker.name: worker for worker in self._known.here()}
        except LakerunnerError as error:
            self._fail(error)
            return False
        if not self._workers:
            self._fail(Unavailable("no query workers available (setting `workers`)"))
            return False
        self._pending = self._tasks()
        return True

    def _tasks(self) -> list[Task]:
        if self._leaf.cut is Cut.SEGMENTS:
            shares = assign(self._segments, list(self._workers), self._how.size)
            return [Task(share.worker, share.segments, number=n) for n, share in enumerate(shares)]
        rows = sum(segment.rows for segment in self._segments)
        shards = max(1, min(self._how.most_shards, rows // self._how.shard_rows))
        segments = tuple(self._segments)
        tasks = [Task("", segments, Shard(number, shards), number) for number in range(shards if segments else 0)]
        for task in tasks:
            task.worker = task.ranked(self._workers)[0]
        return tasks

    def _dispatch(self) -> None:
        """Start what may be started; when nothing is left, that was all."""
        for task in list(self._pending) if self._failure is None else ():
            if len(self._running) >= _AT_ONCE:
                return
            if self._busy[task.worker] < _AT_ONCE_PER_WORKER:
                self._take(task)
                Thread(target=self._work, args=(task,), name=f"gather {task.worker}", daemon=True).start()
        if self._running or self._pending or self._failure:
            return
        self._ended = self._end()
        self._state.notify_all()

    def _take(self, task: Task) -> None:
        self._pending.remove(task)
        self._running[task] = None
        self._busy[task.worker] += 1

    def _settle(self, task: Task, error: Exception) -> None:
        """After an attempt that failed: another worker, the unit without a segment, a gap in the answer, or the end."""
        task.tried.add(task.worker)
        if isinstance(error, Lost):
            self._lose(task, error)
        elif isinstance(error, Busy):
            self._pass_on(task, error)
        elif isinstance(error, Unavailable) and not task.store_was_away and self._others(task):
            task.store_was_away = True
            self._pass_on(task, error)
        elif not self._how.partial or not isinstance(error, Unavailable | Corrupt) or not task.segments:
            self._fail(error)
        else:
            self._do_without(task, error)

    def _do_without(self, task: Task, error: Unavailable | Corrupt) -> None:
        """Name what cannot be read as missing, and go on with what can."""
        damaged = [one for one in task.segments if isinstance(error, Corrupt) and one.id == error.segment]
        if damaged and not task.handed:
            self._miss(damaged, task, error)
            # Units by parts of the series share their segments: those that wait need not find it out again.
            self._pending = [one for other in (task, *self._pending) if (one := other.without(damaged[0])).segments]
        elif isinstance(error, Corrupt) and self._is_divisible(task):
            self._pending[:0] = task.halves()
        else:
            self._miss(task.segments, task, error)

    def _is_divisible(self, task: Task) -> bool:
        """Whether the halves of a unit's segments may be worked out apart, and nothing of it was handed on."""
        return self._leaf.cut is Cut.SEGMENTS and len(task.segments) > 1 and not task.handed

    def _miss(self, segments: Sequence[Segment], task: Task, error: Exception) -> None:
        new = [one for one in segments if one.id not in self._missing]
        if not new:
            return
        self._missing.update(one.id for one in new)
        time_range = TimeRange(min(s.time.start_ns for s in new), max(s.time.end_ns for s in new))
        reason = f"broke off after {plural(task.handed, 'row')}: {error}" if task.handed else str(error)
        self._account += Account(missing=(Missing(len(new), time_range, reason),))

    def _lose(self, task: Task, error: Lost) -> None:
        self._lost[task.worker] = str(error)
        gone = Unavailable(f"no query worker is reachable: {'; '.join(self._lost.values())}")
        orphans = [one for one in self._pending if one.worker == task.worker]
        self._pending = [one for one in self._pending if one.worker != task.worker]
        for one in (*reversed(orphans), task):
            self._pass_on(one, gone)

    def _pass_on(self, task: Task, error: LakerunnerError) -> None:
        others = self._others(task)
        if not others:
            self._fail(error)
            return
        task.worker = others[0]
        self._pending.insert(0, task)

    def _others(self, task: Task) -> list[str]:
        out = task.tried | self._lost.keys()
        return [name for name in task.ranked(self._workers) if name not in out]

    def _fail(self, error: Exception) -> None:
        operator = self._leaf.operator
        if type(error) is UserError and isinstance(operator, SqlRows):
            # Of a worker elsewhere: its position is one in the leaf's SQL.
            error = EngineError(error.message, error.position, operator.sql)
        self._failure = self._failure or error
        self._pending.clear()
        self._state.notify_all()
        self._stop()
        Thread(target=_close_all, args=([one for one in self._running.values() if one],), daemon=True).start()


def _close_all(answers: Sequence[Answer]) -> None:
    """At once; an answer that takes long to stop goes on stopping by itself."""
    closers = [Thread(target=answer.close, name="gather-close", daemon=True) for answer in answers]
    for closer in closers:
        closer.start()
    deadline = monotonic() + _CLOSE_SECONDS
    for closer in closers:
        closer.join(max(0.0, deadline - monotonic()))
