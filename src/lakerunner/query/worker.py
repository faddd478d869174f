"""Works units of work out: each on a DuckDB connection of its own, that can reach nothing but its own segments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import Event

import duckdb

from lakerunner.promql.functions import FUNCTIONS
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.cache import SegmentCache
from lakerunner.query.guard import check_sql
from lakerunner.query.instance import Instances
from lakerunner.query.metrics.run import MetricsRunning
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.unit import MetricsUnit
from lakerunner.query.running import Running
from lakerunner.query.scan import quoted, relation_sql
from lakerunner.query.slots import Slots
from lakerunner.query.unit import WorkUnit
from lakerunner.query.units import Unit


def units_at_once(setting: int) -> int:
    """0: as many as there are cores, so that one fetches while another computes; memory is that of each."""
    return setting or max(2, min(4, os.cpu_count() or 1))


class QueryWorker:
    """Safe to use from many threads. Units past those that may run at once wait, then are turned away as Busy."""

    name = "here"

    def __init__(
        self,
        cache: SegmentCache,
        instances: Instances,
        slots: Slots | None = None,
        metrics: MetricSegments | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = slots or Slots(units_at_once(0))
        self._cache = cache
        self._instances = instances
        self._clock = clock
        self._metrics = metrics or MetricSegments(cache)

    def run(self, unit: Unit) -> Answer:
        """At once: the work begins when the answer is looked at."""
        if isinstance(unit, MetricsUnit):
            return MetricsRunning(unit, self._metrics, self.slots, FUNCTIONS, self._clock)
        work = _Work(self, unit)
        return Running(unit.leaf.sql, work.open, self._instances.limits, work)

    def begin(self, unit: WorkUnit, held: ExitStack) -> tuple[duckdb.DuckDBPyConnection, Account]:
        """The connection that has the unit's relation, and what it took to have it."""
        scan = unit.leaf.scan
        began = self._clock()
        files = held.enter_context(self._cache.hold_checked(scan, unit.segments))
        fetched = self._clock()
        connection, linked = self._instances.open_over(held, files.files)
        connection.execute(f"CREATE TEMP VIEW {quoted(scan.relation)} AS {relation_sql(unit, linked)}")
        check_sql(connection, unit.leaf.sql, {scan.relation})
        seconds = {"fetch": fetched - began, "open": self._clock() - fetched}
        return connection, replace(files.account, seconds=seconds)

    def seconds(self) -> float:
        return self._clock()


class _Work:
    """One unit, from the wait for its turn to the end: the source (query/running.py) of its relation."""

    failure = None

    def __init__(self, worker: QueryWorker, unit: WorkUnit) -> None:
        self.account = Account()
        self._stopped = Event()
        self._worker = worker
        self._unit = unit

    def open(self, held: ExitStack) -> duckdb.DuckDBPyConnection:
        asked = self._worker.seconds()
        self._worker.slots.take(held, self._stopped)
        waited = self._worker.seconds() - asked
        connection, account = self._worker.begin(self._unit, held)
        self.account = account + Account(seconds={"wait": waited})
        held.callback(self._done, self._worker.seconds())
        return connection

    def close(self) -> None:
        self._stopped.set()

    def _done(self, began: float) -> None:
        self.account += Account(seconds={"run": self._worker.seconds() - began})
