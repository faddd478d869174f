"""SQL that Spark SQL runs whole, over the same picked segments: joins, sorts and groups that outgrow one process.

Spark itself is elsewhere (pipeline/ask/) and is handed in. This module makes its answers the same as DuckDB's: DuckDB
binds the query to empty relations, which gives the names and types of the answer's columns and refuses what DuckDB
would refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from lakerunner.model.segment import Segment
from lakerunner.plan.spark import SparkPlan
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import cancelled
from lakerunner.query.row_gather import LeafRows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.running import Running, Work
from lakerunner.query.segment_cache.relation import empty_sql
from lakerunner.query.unit import own_segments


class SparkRun(Protocol):
    """One query in Spark."""

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Run the query, once, and give its rows in this schema."""

    def cancel(self) -> None:
        """Stop the query, from any thread, at any time. Cancelling twice is fine."""


class Spark(Protocol):
    """Safe to use from many threads."""

    def start(self, organization: UUID, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> SparkRun:
        """Return at once. `segments` are those of each of the plan's scans, in their order."""


class Outgrown:
    """Safe to use from many threads."""

    def __init__(self, spark: Spark, sandboxes: Sandboxes) -> None:
        self._spark = spark
        self._sandboxes = sandboxes

    def answer(
        self,
        organization: UUID,
        plan: SparkPlan,
        segments: Sequence[Sequence[Segment]],
        warnings: frozenset[str] = frozenset(),
    ) -> SparkAnswer:
        """Return at once: the work begins when the answer is read."""
        own = [own_segments(organization, *one) for one in zip((s.signal for s in plan.scans), segments, strict=True)]
        read = sum(map(len, own))
        bind = Work(plan.sql, views={scan.relation: empty_sql(scan) for scan in plan.scans}, bind=True)

        def open_(held: ExitStack) -> tuple[Sandbox, Work]:
            return self._sandboxes.lend(held, organization), bind

        bound = Running(self._sandboxes, open_, self._sandboxes.limits, LeafRows({}))
        run = self._spark.start(organization, plan, own)
        account = Account(considered=read, read=read, workers={"spark": read}, warnings=warnings)
        return SparkAnswer(run, bound, account)


class SparkAnswer:
    """An Answer (query/answer.py). `bound` is the same query over nothing, in DuckDB."""

    def __init__(
        self, run: SparkRun, bound: Running, account: Account, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._bound = bound
        self._account = account
        self._clock = clock
        self._schema: pa.Schema | None = None
        self._lock = Lock()
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        with self._lock:
            if self._schema is None:
                self._schema = self._bound.schema
                self._bound.close()
            return self._schema

    @property
    def account(self) -> Account:
        return self._account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        if self._closed:
            raise cancelled()
        began, rows = self._clock(), 0
        try:
            for batch in self._run.batches(schema):
                rows += batch.num_rows
                yield batch
        finally:
            self._account += Account(rows=rows, seconds={"spark": self._clock() - began})
            self.close()

    def close(self) -> None:
        self._closed = True
        self._bound.close()
        self._run.cancel()
