"""The rows of a plan whose finish is SQL: round after round, within the limits of a query, with an account.

Input: the plan's SQL, and for each relation the rows that workers gave. Output: an Answer.

A round is the answer over one time interval; a plan that cannot be split by time has one round. Each segment is in one
round, no bucket of the plan has rows in two rounds, and all rows of a round lie before those of the next (after, if
rounds descend). The answer is the rows of all rounds in order, from `offset` on, `limit` of them; once it has them,
running work is stopped and later rounds are never started. While one round is read, workers compute at most the next
two.

The coordinator runs the SQL in a sandbox. Rows are streamed where DuckDB reads each relation once; otherwise they are
put into a table first, which DuckDB may spill.

Past a limit the answer ends with an error that names the limit, never silently short. `seconds` in its account are
those of planning, of waiting for workers, and of coordinating; the time that the reader takes is in none of them.
Errors of the engine get their position in the user's text (query/sql_errors.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.plan import Rounds
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, total
from lakerunner.query.contract.failures import EngineError, Limits, cancelled, too_long, too_many_rows
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.row_gather import LeafRows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.running import Running, Work
from lakerunner.query.sql_errors import locate_error
from lakerunner.query.workers import Workers, release

T = TypeVar("T")
_AHEAD = 2
RoundSegments = tuple[Segment, ...]

# The first round is small, so that its rows come early; the next ones grow, because each costs about 10 ms.
FIRST_BYTES = 8 << 20
_GROWTH = 32  # a full round has at least this many times the bytes of the first one
_MOST_FULL_ROUNDS = 48  # the growing ones before them come on top
_OPENING_BYTES = 256 << 10  # the cost of opening a segment, expressed as bytes read


def cut(
    segments: Sequence[Segment], time: TimeRange, rounds: Rounds, first_bytes: int = FIRST_BYTES
) -> list[RoundSegments]:
    """Return the segments of each round, at least one, which is empty if there are no segments. Rows outside `time` do
    not matter."""
    clusters = list(_clusters(segments, time, rounds))
    if rounds.descending:
        clusters.reverse()
    return list(_join_clusters(clusters, first_bytes)) or [()]


def _clusters(segments: Sequence[Segment], time: TimeRange, rounds: Rounds) -> Iterator[RoundSegments]:
    """Yield the smallest possible rounds, ascending."""

    def bucket(ns: int) -> int:
        return (ns - rounds.origin_ns) // rounds.bucket_ns

    spans = [(max(s.time.start_ns, time.start_ns), min(s.time.end_ns, time.end_ns) - 1, s) for s in segments]
    cluster: list[Segment] = []
    last = 0
    for first_ns, last_ns, segment in sorted(spans, key=lambda span: span[:2]):
        if cluster and bucket(first_ns) > last:
            yield tuple(cluster)
            cluster = []
        last = max(last, bucket(last_ns)) if cluster else bucket(last_ns)
        cluster.append(segment)
    if cluster:
        yield tuple(cluster)


def _join_clusters(clusters: Sequence[RoundSegments], first_bytes: int) -> Iterator[RoundSegments]:
    """Join neighbours until they are worth a round."""
    weights = [sum(segment.bytes + _OPENING_BYTES for segment in cluster) for cluster in clusters]
    full = max(_GROWTH * first_bytes, sum(weights) // _MOST_FULL_ROUNDS)
    enough = first_bytes
    group: list[Segment] = []
    weight = 0
    for cluster, more in zip(clusters, weights, strict=True):
        group += cluster
        weight += more
        if weight >= enough:
            yield tuple(group)
            group, weight, enough = [], 0, min(2 * enough, full)
    if group:
        yield tuple(group)


class Coordinator:
    """Safe to use from many threads. It does not limit rows, because an answer may take many runs (RowAnswer does)."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        self.limits = sandboxes.limits

    def run(self, organization: UUID, sql: str, leaves: LeafRows) -> Running:
        """Return at once; the work begins when the answer is read. When it ends, the leaves are closed."""

        def open_(held: ExitStack) -> tuple[Sandbox, Work]:
            held.callback(leaves.close)
            streams = leaves.readers()
            return self.sandboxes.lend(held, organization), Work(sql, streams=streams)

        return Running(self.sandboxes, open_, replace(self.limits, max_rows=sys.maxsize), leaves)


@dataclass(frozen=True)
class Round:
    """The answer over one time interval, the rows of leaves that it is made of, and the number of segments."""

    answer: Answer
    leaves: LeafRows
    segments: int

    def close(self) -> None:
        """Close the leaves first, because the answer may be waiting for them."""
        self.leaves.close()
        self.answer.close()


class RoundAnswer:
    """An Answer (query/answer.py) of at least one round; `limit` None: all rows. At its end it releases `workers`."""

    def __init__(self, rounds: Sequence[Round], workers: Workers, offset: int = 0, limit: int | None = None) -> None:
        self._rounds = rounds
        self._workers = workers
        self._offset = offset
        self._limit = limit
        self._closed = False
        self._ended = False

    @property
    def schema(self) -> pa.Schema:
        return self._rounds[0].answer.schema

    @property
    def account(self) -> Account:
        account = total(round_.answer.account for round_ in self._rounds)
        left = sum(round_.segments for round_ in self._rounds) - account.done
        return account + Account(pruned={"limit": left}) if self._ended and left > 0 else account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        skip, left = self._offset, self._limit
        _ = self.schema
        try:
            for batch in self._batches():
                skipped = min(skip, batch.num_rows)
                batch = batch.slice(skipped, left)
                skip -= skipped
                if left is not None:
                    left -= batch.num_rows
                if left == 0:
                    self.close()  # before the rows go out, so that no worker goes on while they are read
                yield batch
                if left == 0:
                    break
            self._ended = True
        finally:
            self.close()

    def close(self) -> None:
        self._closed = True
        for round_ in self._rounds:
            round_.close()
        release(self._workers)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._limit == 0:
            return
        for n, round_ in enumerate(self._rounds):
            # With a limit, the workers run ahead only after a round that did not reach it.
            ahead = _AHEAD if self._limit is None else min(n, _AHEAD)
            for coming in self._rounds[n : n + ahead + 1]:
                coming.leaves.start()
            # Of several rounds, one without rows adds nothing. The first one gives the columns.
            if n == 0 or round_.leaves.has_rows():
                yield from round_.answer
            if self._closed:
                raise cancelled()


class RowAnswer:
    """An Answer (query/answer.py). One thread reads it; any thread may close it. `before` accounts for what was done
    already: planning and picking segments. `text` is what the user wrote. With `results` it is cached there."""

    def __init__(
        self,
        rounds: RoundAnswer,
        limits: Limits,
        before: Account,
        text: str,
        clock: Callable[[], float],
        results: tuple[ResultCache, bytes] | None = None,
    ) -> None:
        self._rounds = rounds
        self._limits = limits
        self._before = before
        self._text = text
        self._clock = clock
        self._results = results
        self._rows = 0
        self._busy = 0.0

    @property
    def schema(self) -> pa.Schema:
        try:
            return self._step(lambda: self._rounds.schema)
        except BaseException:
            self.close()
            raise

    @property
    def account(self) -> Account:
        account = self._before + self._rounds.account
        coordinating = max(0.0, self._busy - account.seconds.get("gather", 0.0))
        return replace(account + Account(seconds={"coordinate": coordinating}), rows=self._rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._results is None:
            return self._batches()
        results, key = self._results
        return results.keep(key, self.schema, self._batches(), lambda: self.account)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            _, batches = self.schema, iter(self._rounds)
            while (batch := self._step(lambda: next(batches, None))) is not None:
                self._count(batch)
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        self._rounds.close()

    def _count(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._rows > self._limits.max_rows:
            raise too_many_rows(self._limits)
        if self._busy > self._limits.seconds:
            raise too_long(self._limits.seconds)

    def _step(self, step: Callable[[], T]) -> T:
        began = self._clock()
        try:
            return step()
        except EngineError as error:
            raise locate_error(error, self._text) from None
        finally:
            self._busy += self._clock() - began
