"""Count queries and units of work as they end: how, after how long, and what they read (services/meters.py).

An answer is counted once: as answered if all of it was read, as refused if the sender has to change the query or to
wait, as failed for any other error, as left if it was closed before its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from prometheus_client import Counter, Histogram

from lakerunner.api.limits import QueryLimits, Slot
from lakerunner.model.errors import Busy, LakerunnerError, UserError
from lakerunner.model.organization import Caller
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.unit import Unit
from lakerunner.services import meters


@dataclass(frozen=True)
class QueryMeters:
    """The meters of queries or of units."""

    ended: Counter
    seconds: Histogram
    read_bytes: Counter


QUERIES = QueryMeters(meters.QUERIES, meters.QUERY_SECONDS, meters.QUERY_BYTES)
UNITS = QueryMeters(meters.UNITS, meters.UNIT_SECONDS, meters.UNIT_BYTES)


class CountedSqlQueries(SqlQueries):
    def sql(self, organization: UUID, question: Question) -> Answer:
        count = _Count(QUERIES)
        with count:
            return CountedAnswer(super().sql(organization, question), count)


class CountedMetricQueries(MetricQueries):
    def promql(self, organization: UUID, question: PromqlQuestion) -> SeriesAnswer:
        count = _Count(QUERIES)
        with count:
            counted: Any = CountedAnswer(super().promql(organization, question), count)
            return counted  # type: ignore[no-any-return]


class CountedLimits(QueryLimits):
    async def slot(self, caller: Caller) -> Slot:
        try:
            return await super().slot(caller)
        except LakerunnerError:
            QUERIES.ended.labels("refused").inc()
            raise


def counted_units(run: Callable[[Unit], Answer]) -> Callable[[Unit], Answer]:
    def counted(unit: Unit) -> Answer:
        count = _Count(UNITS)
        with count:
            return CountedAnswer(run(unit), count)

    return counted


class _Count:
    """The count of one query or unit. As a context manager it counts the error that leaves the block."""

    def __init__(self, counts: QueryMeters) -> None:
        self._counts = counts
        self._began = time.monotonic()
        self._ended = False

    def end(self, state: str, account: Account | None = None) -> None:
        """Count the end; further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        self._counts.ended.labels(state).inc()
        self._counts.seconds.observe(time.monotonic() - self._began)
        if account and not account.from_cache:  # a cached answer has the account of the query that computed it
            self._counts.read_bytes.labels("store").inc(account.bytes_fetched)
            self._counts.read_bytes.labels("cache").inc(account.bytes_cached)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            self.end("refused" if isinstance(error, UserError | Busy) else "failed")


class CountedAnswer:
    """An answer whose end is counted."""

    def __init__(self, answer: Any, count: _Count) -> None:
        self._answer = answer
        self._count = count

    @property
    def schema(self) -> pa.Schema:
        with self._count:
            return self._answer.schema

    @property
    def account(self) -> Account:
        account: Account = self._answer.account
        return account

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    def __iter__(self) -> Iterator[Any]:
        with self._count:
            yield from self._answer
        self._count.end("answered", self.account)

    def close(self) -> None:
        self._count.end("left", self.account)  # before the error is raised in the thread that reads the answer
        self._answer.close()
