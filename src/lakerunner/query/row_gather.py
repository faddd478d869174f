"""Gathers the rows of a leaf for one reader, as they come.

Rows of a steady operator are handed on at once, and skipped if another worker repeats them; rows of other operators are
handed on when their unit has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from lakerunner.model.display import plural
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Leaf
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, total
from lakerunner.query.contract.failures import cancelled
from lakerunner.query.gather import Gather, GatherOptions, Task
from lakerunner.query.inflow import Inflow, QueuedInflow, SpooledInflow
from lakerunner.query.workers import Workers

T = TypeVar("T")


class RowGather(Gather):
    """The rows of a leaf for one reader: an Answer (query/answer.py) if the finish adds nothing."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: GatherOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(organization, leaf, segments, workers, how)
        self._inflow: Inflow = SpooledInflow(how.spool) if how.ahead else QueuedInflow()
        self._schema: pa.Schema | None = None
        self._clock = clock
        self._waited = 0.0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._first: pa.RecordBatch | None = None

    @property
    def account(self) -> Account:
        return super().account + Account(seconds={"gather": self._waited})

    @property
    def schema(self) -> pa.Schema:
        """Start the work and wait for the first columns."""
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

    def has_rows(self) -> bool:
        """Wait for the first row, or for the end; raise what went wrong. It is for the thread that reads, before it
        does."""
        if self._batches is None:
            self._batches = self._read()
            self._first = next((batch for batch in self._batches if batch.num_rows), None)
        return self._first is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all units, once; raise what went wrong."""
        if self.has_rows() and self._batches is not None:
            first, self._first = self._first, None
            yield first
            yield from self._batches

    def _read(self) -> Iterator[pa.RecordBatch]:
        _, rows = self.schema, iter(self._inflow)
        while (batch := self._timed(lambda: next(rows, None))) is not None:
            yield batch
        with self._state:
            if self._failure or self._closed or not self._ended:
                raise self._failure or cancelled()

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of the same rows for DuckDB, once."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def _hand_on(self, task: Task, answer: Answer) -> None:
        self._agree(answer.schema, task.worker)
        for batch in self._remaining(task, answer) if self._leaf.operator.steady else self._complete(answer):
            self._inflow.put(batch)
            task.handed += batch.num_rows

    def _end(self) -> bool:
        if self._schema is None:  # no segments, or none could be read: the answer needs columns all the same
            empty = Task("", ())
            empty.worker = self._others(empty)[0]
            self._pending.append(empty)
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

    def _remaining(self, task: Task, answer: Answer) -> Iterator[pa.RecordBatch]:
        """Yield the rows after those that an earlier worker gave."""
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

    def _complete(self, answer: Answer) -> Iterator[pa.RecordBatch]:
        """Yield the rows once all of them are here, so that a failed attempt has handed on none."""
        kept = SpooledInflow(self._how.spool)
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


class LeafRows:
    """The rows of a plan's leaves by relation: the RowSource (query/sandbox/running.py) of the coordinator's SQL."""

    def __init__(self, gathers: Mapping[str, RowGather]) -> None:
        self._gathers = gathers

    @property
    def account(self) -> Account:
        return total(one.account for one in self._gathers.values())

    @property
    def failure(self) -> Exception | None:
        return next((one.failure for one in self._gathers.values() if one.failure), None)

    def start(self) -> None:
        for one in self._gathers.values():
            one.start()

    def has_rows(self) -> bool:
        """Start all leaves, and wait for the first row of any."""
        self.start()
        return any(one.has_rows() for one in self._gathers.values())

    def readers(self) -> dict[str, pa.RecordBatchReader]:
        """Start all leaves at once, in whatever order they are read."""
        self.start()
        return {relation: one.reader() for relation, one in self._gathers.items()}

    def close(self) -> None:
        for one in self._gathers.values():
            one.close()


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
