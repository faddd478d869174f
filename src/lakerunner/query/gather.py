"""The rows of one leaf, worked out by many workers: units handed out, rows gathered, the lost taken over.

What always holds: every row of every unit is handed on once, or the reader ends with an error, or the account names the
segments as missing. Rows of a steady leaf are handed on as they come; a unit taken over in the middle is run again and
what was handed on of it is skipped. Rows of other leaves wait until their unit has ended.

A worker that was lost is not asked again, a unit goes to each worker once at most. If the object store is away from a
worker, one other is tried. A segment that is damaged or absent is nobody's fault: no other worker is tried, and for a
partial answer the unit is halved until the bad segment is alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, Lost, Unavailable, UserError
from lakerunner.model.plural import plural
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.sql import Leaf
from lakerunner.query.account import Account, Missing
from lakerunner.query.answer import Answer
from lakerunner.query.assign import UnitSize, assign, ranked
from lakerunner.query.failures import EngineError, cancelled
from lakerunner.query.inflow import Inflow, Queued, Spool, Spooled, Stopped
from lakerunner.query.unit import WorkUnit
from lakerunner.query.workers import Worker, Workers

_AT_ONCE = 32
_AT_ONCE_PER_WORKER = 2  # one is fetched or sent while the other is computed
_CLOSE_SECONDS = 1.0
_ANY_SEGMENT = UUID(int=0)
_logger = logging.getLogger("lakerunner.query.gather")


@dataclass(frozen=True)
class Gathering:
    """How a query's rows are gathered. `partial`: segments that cannot be read are named as missing in the account;
    otherwise they are an error. `ahead`: the work may be started long before its rows are read, or be one of several
    that are read one after the other; its rows wait on disk, so that no worker waits for the reader."""

    partial: bool = False
    ahead: bool = False
    size: UnitSize = field(default_factory=UnitSize)
    spool: Spool = field(default_factory=Spool)


@dataclass(eq=False)
class _Task:
    """One unit, by whom it is done, and how far it got. `handed` rows are with the reader."""

    worker: str
    segments: tuple[Segment, ...]
    tried: set[str] = field(default_factory=set)
    handed: int = 0
    store_was_away: bool = False

    def ranked(self, workers: Mapping[str, Worker]) -> list[str]:
        return ranked(self.segments[0].id if self.segments else _ANY_SEGMENT, workers)

    def missing(self, error: Exception) -> Missing:
        time = TimeRange(min(s.time.start_ns for s in self.segments), max(s.time.end_ns for s in self.segments))
        reason = f"broke off after {plural(self.handed, 'row')}: {error}" if self.handed else str(error)
        return Missing(len(self.segments), time, reason)

    def halves(self) -> list[_Task]:
        middle = len(self.segments) // 2
        return [_Task(self.worker, part) for part in (self.segments[:middle], self.segments[middle:])]


class Gather:
    """One leaf over its segments. One thread reads it; the rest is for any thread."""

    def __init__(
        self, organization: UUID, leaf: Leaf, segments: Sequence[Segment], workers: Workers, how: Gathering
    ) -> None:
        self._organization = organization
        self._leaf = leaf
        self._segments = segments
        self._known = workers
        self._how = how
        self._inflow: Inflow = Spooled(how.spool) if how.ahead else Queued()
        self._state = Condition()
        self._workers: dict[str, Worker] = {}
        self._lost: dict[str, str] = {}
        self._pending: list[_Task] = []
        self._running: dict[_Task, Answer | None] = {}
        self._busy: Counter[str] = Counter()
        self._account = Account()
        self._schema: pa.Schema | None = None
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
            if self._started or self._closed:
                return
            self._started = True
            try:
                self._workers = {worker.name: worker for worker in self._known.here()}
            except LakerunnerError as error:
                self._fail(error)
                return
            if not self._workers:
                self._fail(Unavailable("no query workers available (setting `workers`)"))
                return
            shares = assign(self._segments, list(self._workers), self._how.size)
            self._pending = [_Task(share.worker, share.segments) for share in shares]
            self._dispatch()

    def reader(self) -> pa.RecordBatchReader:
        """Once: the rows of all units, as they come; what went wrong is raised from it. Starts the work."""
        self.start()
        with self._state:
            self._state.wait_for(lambda: self._schema is not None or self._failure is not None or self._closed)
            if self._failure or self._schema is None:
                raise self._failure or cancelled()
            return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def close(self) -> None:
        """Stop what still runs, from any thread, and wait for that a second at most. Closing twice is fine."""
        with self._state:
            self._closed = True
            self._pending.clear()
            answers = [answer for answer in self._running.values() if answer is not None]
            self._state.notify_all()
        self._inflow.close()
        _close_all(answers)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._inflow
        with self._state:
            if self._failure or self._closed or not self._ended:
                raise self._failure or cancelled()

    # One unit, in its thread

    def _work(self, task: _Task) -> None:
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

    def _attempt(self, task: _Task) -> Account:
        answer = self._workers[task.worker].run(WorkUnit(self._organization, self._leaf, task.segments))
        with closing(answer):
            with self._state:
                if self._closed:
                    raise Stopped
                self._running[task] = answer
            self._agree(answer.schema, task.worker)
            for batch in self._unseen(task, answer) if self._leaf.steady else self._whole(answer):
                self._inflow.put(batch)
                task.handed += batch.num_rows
        return answer.account

    def _agree(self, schema: pa.Schema, worker: str) -> None:
        with self._state:
            if self._schema is None:
                self._schema = schema
                self._state.notify_all()
            elif not schema.equals(self._schema):
                raise Unavailable(
                    f"query worker {worker} gives columns {_types(schema)}, another {_types(self._schema)}: "
                    "do they run the same version?"
                )

    def _unseen(self, task: _Task, answer: Answer) -> Iterator[pa.RecordBatch]:
        """The rows after those that an earlier worker gave."""
        seen = task.handed
        for batch in answer:
            skipped = min(seen, batch.num_rows)
            seen -= skipped
            if skipped < batch.num_rows:
                yield batch.slice(skipped)
        if seen:
            raise Unavailable(
                f"query worker {task.worker} returned {plural(seen, 'row')} fewer than the worker it replaced"
            )

    def _whole(self, answer: Answer) -> Iterator[pa.RecordBatch]:
        """The rows when all of them are here: an attempt that fails has handed on none."""
        kept = Spooled(self._how.spool)
        with closing(kept):
            for batch in answer:
                kept.put(batch)
            kept.end()
            yield from kept

    # With the lock held

    def _dispatch(self) -> None:
        """Start what may be started; when nothing is left, that was all."""
        for task in list(self._pending) if self._failure is None else ():
            if len(self._running) >= _AT_ONCE:
                return
            if self._busy[task.worker] < _AT_ONCE_PER_WORKER:
                self._pending.remove(task)
                self._running[task] = None
                self._busy[task.worker] += 1
                Thread(target=self._work, args=(task,), name=f"gather {task.worker}", daemon=True).start()
        if self._running or self._pending or self._failure:
            return
        if self._schema is None:  # without segments, or none could be read: the columns are wanted all the same
            nothing = _Task("", ())
            nothing.worker = self._others(nothing)[0]
            self._pending.append(nothing)
            self._dispatch()
            return
        self._ended = True
        self._inflow.end()

    def _settle(self, task: _Task, error: Exception) -> None:
        """After an attempt that failed: another worker, the halves, a gap in the answer, or the end."""
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
        elif isinstance(error, Corrupt) and len(task.segments) > 1 and not task.handed:
            self._pending[:0] = task.halves()
        else:
            self._account += Account(missing=(task.missing(error),))

    def _lose(self, task: _Task, error: Lost) -> None:
        self._lost[task.worker] = str(error)
        gone = Unavailable(f"no query worker is reachable: {'; '.join(self._lost.values())}")
        orphans = [one for one in self._pending if one.worker == task.worker]
        self._pending = [one for one in self._pending if one.worker != task.worker]
        for one in (*reversed(orphans), task):
            self._pass_on(one, gone)

    def _pass_on(self, task: _Task, error: LakerunnerError) -> None:
        others = self._others(task)
        if not others:
            self._fail(error)
            return
        task.worker = others[0]
        self._pending.insert(0, task)

    def _others(self, task: _Task) -> list[str]:
        out = task.tried | self._lost.keys()
        return [name for name in task.ranked(self._workers) if name not in out]

    def _fail(self, error: Exception) -> None:
        if type(error) is UserError:  # of a worker elsewhere: its position is one in the leaf's SQL
            error = EngineError(error.message, error.position, self._leaf.sql)
        self._failure = self._failure or error
        self._pending.clear()
        self._state.notify_all()
        self._inflow.close()
        Thread(target=_close_all, args=([one for one in self._running.values() if one],), daemon=True).start()


def _close_all(answers: Sequence[Answer]) -> None:
    """At once; an answer that takes long to stop goes on stopping by itself."""
    closers = [Thread(target=answer.close, name="gather-close", daemon=True) for answer in answers]
    for closer in closers:
        closer.start()
    deadline = monotonic() + _CLOSE_SECONDS
    for closer in closers:
        closer.join(max(0.0, deadline - monotonic()))


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
