"""An answer within the limits of a query: no more rows and no longer than they say, and an account of all it took.

What always holds: past a limit it ends with an error that names the limit, never short. `seconds` in its account are
the planning's, what was waited for the workers, and what the coordinator took beside; the time the reader of the answer
takes is in none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.failures import Limits, too_long, too_many_rows

T = TypeVar("T")


class Bounded:
    """An Answer (query/answer.py). `before` is what was done already: the planning, the picking of segments."""

    def __init__(
        self, answer: Answer, limits: Limits, before: Account, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._before = before
        self._clock = clock
        self._rows = 0
        self._busy = 0.0

    @property
    def schema(self) -> pa.Schema:
        return self._timed(lambda: self._answer.schema)

    @property
    def account(self) -> Account:
        account = self._before + self._answer.account
        coordinating = max(0.0, self._busy - account.seconds.get("gather", 0.0))
        return replace(account + Account(seconds={"coordinate": coordinating}), rows=self._rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            _, batches = self.schema, iter(self._answer)
            while (batch := self._next(batches)) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        self._answer.close()

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        batch = self._timed(lambda: next(batches, None))
        if batch is not None:
            self._rows += batch.num_rows
            if self._rows > self._limits.max_rows:
                raise too_many_rows(self._limits)
            if self._busy > self._limits.seconds:
                raise too_long(self._limits.seconds)
        return batch

    def _timed(self, step: Callable[[], T]) -> T:
        began = self._clock()
        try:
            return step()
        finally:
            self._busy += self._clock() - began
