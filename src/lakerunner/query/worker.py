"""Run units of work: rows by SQL in a sandbox that reaches nothing but the unit's segments, series in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event

import pyarrow as pa

from lakerunner.plan.operator import RowOperator, StreamPlan
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.metrics.unit_series import UnitSeries
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.running import Running, Work
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.segment_cache.lease import Vanished
from lakerunner.query.segment_cache.relation import relation_sql
from lakerunner.query.slots import Slots
from lakerunner.query.unit import Unit
from lakerunner.series.evaluation.pieces import SCHEMA, Piece, SeriesOperator


def units_at_once(setting: int) -> int:
    """Return how many units run at once. 0: two to four, by the number of cores, so that one fetches while another
    computes; each has its own memory."""
    return setting or max(2, min(4, os.cpu_count() or 1))


class QueryWorker:
    """Safe to use from many threads. Units beyond those that may run at once wait, then are refused as Busy."""

    name = "here"

    def __init__(
        self,
        cache: SegmentCache,
        sandboxes: Sandboxes,
        slots: Slots | None = None,
        metrics: MetricSegments | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = slots or Slots(units_at_once(0))
        self.metrics = metrics or MetricSegments(cache)
        self.cache = cache
        self.limits = limits or sandboxes.limits
        self.sandboxes = sandboxes
        self.clock = clock

    def run(self, unit: Unit) -> Answer:
        """Return at once: the work begins when the answer is read."""
        operator = unit.leaf.operator
        if isinstance(operator, SeriesOperator):
            return SeriesRunning(self, unit, operator)
        if isinstance(operator, RowOperator):
            return RowsRunning(self, unit, operator)
        raise TypeError(f"operator {operator.name} takes {operator.input}, which no worker has")


class RowsRunning:
    """An Answer (query/answer.py): what an operator makes of the rows that a sandbox reads for it."""

    def __init__(self, worker: QueryWorker, unit: Unit, operator: RowOperator) -> None:
        self._work = UnitRows(worker, unit, operator)
        self._rows = Running(worker.sandboxes, self._work.open, worker.limits, self._work)

    @property
    def schema(self) -> pa.Schema:
        rows = self._rows.schema  # opens the work, which decides on the operator
        return self._work.operator.result_schema or rows

    @property
    def account(self) -> Account:
        return self._rows.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        _ = self._rows.schema
        return self._work.operator.run(iter(self._rows))

    def close(self) -> None:
        self._rows.close()


class SeriesRunning:
    """An Answer of pieces, which become batches only where they travel. One thread reads it; any may close it."""

    schema: pa.Schema = SCHEMA

    def __init__(self, worker: QueryWorker, unit: Unit, operator: SeriesOperator) -> None:
        self._worker = worker
        self._unit = unit
        self._operator = operator
        self._stopped = Event()
        self._seconds = Account()
        self._series = UnitSeries(worker.metrics, unit.segments, unit.shard, unit.tiles, self._stopped)

    @property
    def account(self) -> Account:
        return self._seconds + self._series.account

    def __iter__(self) -> Iterator[Piece]:
        waiting = self._worker.clock()
        with ExitStack() as held:
            self._worker.slots.take(held, self._unit.organization, self._stopped)
            began = self._worker.clock()
            points = 0
            for piece in self._operator.run(self._series):
                points += piece.points
                self._operator.check_points(points)
                yield piece
            self._seconds = Account(seconds={"wait": began - waiting, "run": self._worker.clock() - began})

    def close(self) -> None:
        self._stopped.set()


class UnitRows:
    """One unit, from the wait for its turn to the end: the source (query/sandbox/running.py) of its relation. Once it
    is open, `operator` is the one to run."""

    failure = None

    def __init__(self, worker: QueryWorker, unit: Unit, operator: RowOperator) -> None:
        self.account = Account()
        self._stopped = Event()
        self._worker = worker
        self._unit = unit
        self._given = self.operator = operator

    def open(self, held: ExitStack) -> tuple[Sandbox, Work] | None:
        began = self._worker.clock()
        self._worker.slots.take(held, self._unit.organization, self._stopped)
        waited = self._worker.clock() - began
        try:
            opened, account = self._begin(held)
        except Vanished:
            opened, account = self._begin(held)
        self.account = account + Account(seconds={"wait": waited})
        held.callback(self._done, self._worker.clock())
        return opened

    def close(self) -> None:
        self._stopped.set()

    def _begin(self, held: ExitStack) -> tuple[tuple[Sandbox, Work] | None, Account]:
        """Return a sandbox with the unit's files and what it has to do, None if no row is left to read; and what it
        took to get so far."""
        worker, unit = self._worker, self._unit
        began = worker.clock()
        left = self._left()
        self.operator, scan = left.operator, left.scan
        files = held.enter_context(worker.cache.hold(scan, left.segments, checked=True))
        fetched = worker.clock()
        account = files.account + Account(read=len(unit.segments) - len(left.segments))  # those in tables of streams
        if not files.files and self.operator.result_schema is not None:
            return None, account + Account(seconds={"fetch": fetched - began})
        sandbox = worker.sandboxes.lend(held, unit.organization)
        relation = relation_sql(scan, left.segments, sandbox.link(files.files), in_order=self.operator.steady)
        work = Work(self.operator.source_sql(scan), views={scan.relation: relation})
        seconds = {"fetch": fetched - began, "open": worker.clock() - fetched}
        return (sandbox, work), account + Account(seconds=seconds)

    def _left(self) -> StreamPlan:
        """Return what is to be done with rows, after the tables of streams were read if the operator wants them."""
        scan, segments = self._unit.leaf.scan, self._unit.segments
        if not self._given.wants_streams:
            return StreamPlan(self._given, scan, segments)
        return self._given.with_streams(scan, segments, self._worker.cache.stream_tables(segments))

    def _done(self, began: float) -> None:
        self.account += Account(seconds={"run": self._worker.clock() - began})
