"""The answer of a plan whose finish is SQL: its rows, within the limits of a query, errors in the user's terms, and an
account of all it took.

What always holds: past a limit it ends with an error that names the limit, never short. `seconds` in its account are
the planning's, what was waited for the workers, and what the coordinator took beside; the time the reader of the answer
takes is in none of them. Errors of the engine are placed in the text that the user wrote (query/located.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from lakerunner.query.account import Account
from lakerunner.query.failures import EngineError, Limits, too_long, too_many_rows
from lakerunner.query.located import located
from lakerunner.query.result_cache import ResultCache
from lakerunner.query.rounds import InRounds

T = TypeVar("T")


@dataclass(frozen=True)
class RowTerms:
    """`before` is what was done already: the planning, the picking of segments. `text` is what the user wrote."""

    limits: Limits
    before: Account
    text: str
    clock: Callable[[], float]


class RowAnswer:
    """An Answer (query/answer.py). One thread reads it; any thread may close it. With `results` it is kept there."""

    def __init__(self, rounds: InRounds, terms: RowTerms, results: ResultCache | None = None, key: bytes = b"") -> None:
        self._rounds = rounds
        self._terms = terms
        self._results = results
        self._key = key
        self._rows = 0
        self._busy = 0.0

    @property
    def schema(self) -> pa.Schema:
        return self._step(lambda: self._rounds.schema)

    @property
    def account(self) -> Account:
        account = self._terms.before + self._rounds.account
        coordinating = max(0.0, self._busy - account.seconds.get("gather", 0.0))
        return replace(account + Account(seconds={"coordinate": coordinating}), rows=self._rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._results is None:
            return self._batches()
        return self._results.keep(self._key, self.schema, self._batches(), lambda: self.account)

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
        limits = self._terms.limits
        self._rows += batch.num_rows
        if self._rows > limits.max_rows:
            raise too_many_rows(limits)
        if self._busy > limits.seconds:
            raise too_long(limits.seconds)

    def _step(self, step: Callable[[], T]) -> T:
        began = self._terms.clock()
        try:
            return step()
        except EngineError as error:
            raise located(error, self._terms.text) from None
        finally:
            self._busy += self._terms.clock() - began
