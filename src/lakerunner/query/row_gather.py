"""The rows of a leaf, gathered for one reader as they come.

What always holds: rows of a steady operator are handed on at once, and skipped if another worker gives them again;
rows of others when their unit has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import Unavailable
from lakerunner.model.plural import plural
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Leaf
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.failures import cancelled
from lakerunner.query.gather import Gather, Gathering, Task
from lakerunner.query.inflow import Inflow, Queued, Spooled
from lakerunner.query.workers import Workers

T = TypeVar("T")


class RowGather(Gather):
    """The rows of a leaf, for one reader, as they come: an Answer (query/answer.py) where nothing is to be added."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: Gathering,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(organization, leaf, segments, workers, how)
        self._inflow: Inflow = Spooled(how.spool) if how.ahead else Queued()
        self._schema: pa.Schema | None = None
        self._clock = clock
        self._waited = 0.0

    @property
    def account(self) -> Account:
        return super().account + Account(seconds={"gather": self._waited})

    @property
    def schema(self) -> pa.Schema:
        """Starts the work, and waits for the first columns."""
        self.start()
        with self._state:
            self._timed(
                lambda: self._state.wait_for(
                    lambda: self._schema is not None or self._failure is not None or self._closed
                )
            )
            if self._failure or self._schema is None:
                raise self._failure or cancelled()
            return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Once: the rows of all units; what went wrong is raised from it."""
        _, rows = self.schema, iter(self._inflow)
        while (batch := self._timed(lambda: next(rows, None))) is not None:
            yield batch
        with self._state:
            if self._failure or self._closed or not self._ended:
                raise self._failure or cancelled()

    def reader(self) -> pa.RecordBatchReader:
        """Once: the same rows, for DuckDB."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def _hand_on(self, task: Task, answer: Answer) -> None:
        self._agree(answer.schema, task.worker)
        for batch in self._unseen(task, answer) if self._leaf.operator.steady else self._whole(answer):
            self._inflow.put(batch)
            task.handed += batch.num_rows

    def _end(self) -> bool:
        if self._schema is None:  # without segments, or none could be read: the columns are wanted all the same
            nothing = Task("", ())
            nothing.worker = self._others(nothing)[0]
            self._pending.append(nothing)
            self._dispatch()
            return False
        self._inflow.end()
        return True

    def _stop(self) -> None:
        self._inflow.close()

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

    def _unseen(self, task: Task, answer: Answer) -> Iterator[pa.RecordBatch]:
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

    def _timed(self, step: Callable[[], T]) -> T:
        began = self._clock()
        try:
            return step()
        finally:
            self._waited += self._clock() - began


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
