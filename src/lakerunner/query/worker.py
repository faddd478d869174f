"""Works units of work out: each in a DuckDB instance of its own, that can reach nothing but its own segments."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import duckdb

from lakerunner.query.account import Account
from lakerunner.query.cache import SegmentCache
from lakerunner.query.guard import check_sql
from lakerunner.query.instance import Instances, lock
from lakerunner.query.running import Running
from lakerunner.query.scan import quoted, relation_sql
from lakerunner.query.unit import WorkUnit


class QueryWorker:
    """Safe to use from many threads."""

    name = "here"

    def __init__(self, cache: SegmentCache, instances: Instances, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._instances = instances
        self._clock = clock

    def run(self, unit: WorkUnit) -> Running:
        """At once: the work begins when the answer is looked at."""
        work = _Work(unit, self._cache, self._instances, self._clock)
        return Running(unit.leaf.sql, work.open, self._instances.limits, lambda: work.account)


class _Work:
    def __init__(self, unit: WorkUnit, cache: SegmentCache, instances: Instances, clock: Callable[[], float]) -> None:
        self.account = Account()
        self._unit = unit
        self._cache = cache
        self._instances = instances
        self._clock = clock

    def open(self, held: ExitStack) -> duckdb.DuckDBPyConnection:
        began = self._clock()
        scan = self._unit.leaf.scan
        files = held.enter_context(self._cache.hold(scan, self._unit.segments))
        fetched = self._clock()
        connection = self._instances.open(held, [one.path for one in files.files.values()])
        connection.execute(f"CREATE TEMP VIEW {quoted(scan.relation)} AS {relation_sql(self._unit, files.files)}")
        check_sql(connection, self._unit.leaf.sql, {scan.relation})
        lock(connection)
        seconds = {"fetch": fetched - began, "open": self._clock() - fetched}
        self.account = replace(files.account, seconds=seconds)
        held.callback(self._done, self._clock())
        return connection

    def _done(self, began: float) -> None:
        self.account += Account(seconds={"run": self._clock() - began})
