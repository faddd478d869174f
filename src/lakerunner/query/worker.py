"""Works units of work out: SQL in a sandbox that reaches nothing but the unit's segments, PromQL in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import Event

from lakerunner.promql.language import PROMQL
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.cache import SegmentCache
from lakerunner.query.failures import Limits
from lakerunner.query.held import Vanished
from lakerunner.query.metrics.run import MetricsRunning
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.unit import MetricsUnit
from lakerunner.query.running import Running, Work
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.scan import relation_sql
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
        sandboxes: Sandboxes,
        slots: Slots | None = None,
        metrics: MetricSegments | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = slots or Slots(units_at_once(0))
        self._cache = cache
        self._limits = limits or sandboxes.limits
        self._sandboxes = sandboxes
        self._clock = clock
        self._metrics = metrics or MetricSegments(cache)

    def run(self, unit: Unit) -> Answer:
        """At once: the work begins when the answer is looked at."""
        if isinstance(unit, MetricsUnit):
            return MetricsRunning(unit, self._metrics, self.slots, PROMQL, self._clock)
        work = _Work(self, unit)
        return Running(self._sandboxes, work.open, self._limits, work)

    def begin(self, unit: WorkUnit, held: ExitStack) -> tuple[Sandbox, Work, Account]:
        """A sandbox with the unit's files, what it has to do, and what it took to get so far."""
        try:
            return self._begin(unit, held)
        except Vanished:
            return self._begin(unit, held)

    def _begin(self, unit: WorkUnit, held: ExitStack) -> tuple[Sandbox, Work, Account]:
        scan = unit.leaf.scan
        began = self._clock()
        files = held.enter_context(self._cache.hold_checked(scan, unit.segments))
        fetched = self._clock()
        sandbox = self._sandboxes.lend(held, unit.organization)
        work = Work(unit.leaf.sql, views={scan.relation: relation_sql(unit, sandbox.link(files.files))})
        seconds = {"fetch": fetched - began, "open": self._clock() - fetched}
        return sandbox, work, replace(files.account, seconds=seconds)

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

    def open(self, held: ExitStack) -> tuple[Sandbox, Work]:
        asked = self._worker.seconds()
        self._worker.slots.take(held, self._unit.organization, self._stopped)
        waited = self._worker.seconds() - asked
        sandbox, work, account = self._worker.begin(self._unit, held)
        self.account = account + Account(seconds={"wait": waited})
        held.callback(self._done, self._worker.seconds())
        return sandbox, work

    def close(self) -> None:
        self._stopped.set()

    def _done(self, began: float) -> None:
        self.account += Account(seconds={"run": self._worker.seconds() - began})
