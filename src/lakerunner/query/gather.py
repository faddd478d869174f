"""Runs one leaf on many workers: hands out units, gathers results, and has units of lost workers done by others.

Invariant: every result of every unit is handed on once, or the gathering ends with an error, or the account names the
segments as missing. Rows of a steady operator are handed on as they come; a unit that another worker takes over is run
again, and the rows that were handed on are skipped. Other results wait until their unit has ended.

A lost worker gets no more units, and a unit goes to each worker once at most. If a worker cannot reach the object
store, one other is tried. For a damaged or absent segment no other worker is tried; for a partial answer the unit is
run again without it, and it is named as missing once, however many units need it.

Units are assigned by rendezvous hashing: every worker draws a number for every segment, and the highest reads it. So a
segment always goes to the same worker, which has it in its cache, and a worker that joins or leaves moves only its own
share. Every segment is in one share; segments of a share keep their order, and shares are in the order of their first
segments, so that rows that are needed first come first.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Condition, Thread
from time import monotonic
from uuid import UUID

from lakerunner.model.display import plural
from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, Lost, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.model.tier import Tiles
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import ALL, Cut, Leaf, Shard
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.contract.failures import EngineError
from lakerunner.query.inflow import ReaderGone, Spool
from lakerunner.query.unit import Unit
from lakerunner.query.workers import Worker, Workers

SHARD_ROWS = 4_000_000  # rows of the picked segments per shard, however many workers there are
_SHARDS = 16
_AT_ONCE = 32
_AT_ONCE_PER_WORKER = 2  # one fetches or sends while the other computes
_CLOSE_SECONDS = 1.0
_ANY_SEGMENT = UUID(int=0)
_logger = logging.getLogger("lakerunner.query.gather")


@dataclass(frozen=True)
class UnitSize:
    """The most that one unit reads. A larger segment is a unit of its own."""

    bytes: int = 1 << 30
    segments: int = 500


@dataclass(frozen=True)
class GatherOptions:
    """How the results of a query are gathered. `partial`: segments that cannot be read are named as missing in the
    account instead of raising an error. `ahead`: the work may start long before its rows are read, or be one of several
    leaves that are read one after the other; its rows wait on disk, so that no worker waits for the reader.
    `shard_rows`: rows per shard, so that the same rows are always cut in the same way, however many workers there are.
    """

    partial: bool = False
    ahead: bool = False
    size: UnitSize = field(default_factory=UnitSize)
    spool: Spool = field(default_factory=Spool)
    shard_rows: int = SHARD_ROWS
    most_shards: int = _SHARDS


@dataclass(eq=False)
class Task:
    """One unit, its worker, and its progress. `handed`: rows that the reader has. `number`: its place among the leaf's
    units."""

    worker: str
    segments: tuple[Segment, ...]
    shard: Shard = ALL
    number: int = 0
    tried: set[str] = field(default_factory=set)
    handed: int = 0
    store_was_away: bool = False

    def rank_workers(self, workers: Mapping[str, Worker]) -> list[str]:
        """Return the workers in order of preference. Units over the same segments are spread over the workers, always
        in the same way."""
        names = rank_workers(self.segments[0].id if self.segments else _ANY_SEGMENT, workers)
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
    """One leaf over its segments. One thread reads it; all other methods are for any thread."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: GatherOptions,
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
        """Return the accounts of the units that have ended, the units of each worker, and what is missing."""
        with self._state:
            return self._account

    @property
    def failure(self) -> Exception | None:
        """Return the error that the reader raises; DuckDB, when it is the reader, passes on only its text."""
        with self._state:
            return self._failure

    def start(self) -> None:
        """Start the work in threads of its own and return at once. Starting twice is fine."""
        with self._state:
            if self._prepare():
                self._dispatch()

    def close(self) -> None:
        """Stop running work, from any thread, and wait for that up to a second. Closing twice is fine."""
        with self._state:
            self._closed = True
            self._pending.clear()
            answers = [answer for answer in self._running.values() if answer is not None]
            self._state.notify_all()
        self._stop()
        _close_all(answers)

    # For subclasses: what becomes of results

    @abstractmethod
    def _hand_on(self, task: Task, answer: Answer) -> None:
        """Take the results of a unit, in its thread."""

    @abstractmethod
    def _end(self) -> bool:
        """Finish after all units have ended, with the lock held. Return False if a unit was added."""

    @abstractmethod
    def _stop(self) -> None:
        """Release writers that wait: no more results are needed."""

    # One unit, in its thread

    def _work(self, task: Task) -> None:
        error: Exception | None = None
        account = Account()
        try:
            unit = Unit(self._organization, self._leaf, task.segments, task.shard, self._tiles)
            answer = self._workers[task.worker].run(unit)
            with closing(answer):
                with self._state:
                    if self._closed:
                        raise ReaderGone
                    self._running[task] = answer
                self._hand_on(task, answer)
            account = answer.account + Account(workers={task.worker: 1})
        except Exception as raised:
            if not isinstance(raised, LakerunnerError | ReaderGone):
                _logger.error("unit failed", exc_info=raised)
            error = raised
        with self._state:
            del self._running[task]
            self._busy[task.worker] -= 1
            if self._closed or isinstance(error, ReaderGone):
                return
            if error is None:
                self._account += account
            else:
                self._settle(task, error)
            self._dispatch()

    # With the lock held

    def _prepare(self) -> bool:
        """Cut the leaf into units. Return whether there is anything to start: only once, and only with workers."""
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
        if self._leaf.cut is Cut.SEGMENTS:
            self._pending = assign(self._segments, list(self._workers), self._how.size)
            return True
        rows = sum(segment.rows for segment in self._segments)
        most = 1 if self._leaf.cut is Cut.WHOLE else self._how.most_shards
        shards = max(1, min(most, rows // self._how.shard_rows)) if self._segments else 0
        self._pending = [Task("", tuple(self._segments), Shard(number, shards), number) for number in range(shards)]
        for task in self._pending:
            task.worker = task.rank_workers(self._workers)[0]
        return True

    def _dispatch(self) -> None:
        """Start the tasks that may be started; finish when none is left."""
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
        """Decide after a failed attempt: another worker, the unit without a segment, a gap in the answer, or
        the error."""
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
            # Units by shards have the same segments: those that wait need not find the damage again.
            self._pending = [one for other in (task, *self._pending) if (one := other.without(damaged[0])).segments]
        elif isinstance(error, Corrupt) and self._is_divisible(task):
            self._pending[:0] = task.halves()
        else:
            self._miss(task.segments, task, error)

    def _is_divisible(self, task: Task) -> bool:
        """Return whether the unit's segments may be run in two halves: nothing of it was handed on."""
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
        gone = Unavailable(f"no query worker is reachable: {'; '.join(dict.fromkeys(self._lost.values()))}")
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
        return [name for name in task.rank_workers(self._workers) if name not in out]

    def _fail(self, error: Exception) -> None:
        operator = self._leaf.operator
        if type(error) is UserError and isinstance(operator, SqlRows):
            # From a worker over HTTP: its position is one in the leaf's SQL.
            error = EngineError(error.message, error.position, operator.sql)
        self._failure = self._failure or error
        self._pending.clear()
        self._state.notify_all()
        self._stop()
        Thread(target=_close_all, args=([one for one in self._running.values() if one],), daemon=True).start()


def _close_all(answers: Sequence[Answer]) -> None:
    """Close all at once and wait a second at most; an answer that takes longer goes on closing in its thread."""
    closers = [Thread(target=answer.close, name="gather-close", daemon=True) for answer in answers]
    for closer in closers:
        closer.start()
    deadline = monotonic() + _CLOSE_SECONDS
    for closer in closers:
        closer.join(max(0.0, deadline - monotonic()))


def assign(segments: Sequence[Segment], workers: Sequence[str], most: UnitSize) -> list[Task]:
    """Assign the segments to at least one worker, by name, in units of bounded size."""
    owners = _owners(segments, workers)
    of_worker: dict[str, list[int]] = {}
    for n, owner in enumerate(owners):
        of_worker.setdefault(owner, []).append(n)
    cut = [(owner, part) for owner, numbers in of_worker.items() for part in _cut(numbers, segments, most)]
    cut.sort(key=lambda share: share[1][0])
    parts = ((owner, tuple(segments[n] for n in part)) for owner, part in cut)
    return [Task(owner, part, number=number) for number, (owner, part) in enumerate(parts)]


def rank_workers(segment: UUID, workers: Iterable[str]) -> list[str]:
    """Return the workers in the order in which they are to be tried for this segment."""
    return sorted(workers, key=lambda worker: (_draw(_hasher(worker), segment), worker), reverse=True)


def _owners(segments: Sequence[Segment], workers: Sequence[str]) -> list[str]:
    if len(workers) == 1:
        return [workers[0]] * len(segments)
    hashers = [(_hasher(worker), worker) for worker in workers]
    return [max((_draw(hasher, segment.id), worker) for hasher, worker in hashers)[1] for segment in segments]


def _hasher(worker: str) -> blake2b:
    return blake2b(worker.encode() + b"\0", digest_size=8)


def _draw(hasher: blake2b, segment: UUID) -> bytes:
    drawn = hasher.copy()
    drawn.update(segment.bytes)
    return drawn.digest()


def _cut(numbers: list[int], segments: Sequence[Segment], most: UnitSize) -> list[list[int]]:
    parts: list[list[int]] = []
    size = 0
    for n in numbers:
        size += segments[n].bytes
        if not parts or size > most.bytes or len(parts[-1]) == most.segments:
            parts.append([])
            size = segments[n].bytes
        parts[-1].append(n)
    return parts
