"""SQL that runs in a DuckDB instance of this process, as an answer: streamed, bounded, and stopped from any thread.

What always holds: it ends whole or with an error, and whatever ends it, all that it held is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from threading import Condition
from typing import Protocol, TypeVar

import duckdb
import pyarrow as pa

from lakerunner.query.account import Account
from lakerunner.query.arrow_types import arrow_types
from lakerunner.query.failures import Limits, cancelled, too_many_rows, translated

_BATCH_ROWS = 2048  # DuckDB's own vector: the first rows come as soon as there are any
_INTERRUPT_EVERY = 0.01
_INTERRUPTS = 500
T = TypeVar("T")


class Source(Protocol):
    """Where the rows of the SQL's relations come from. For any thread."""

    @property
    def account(self) -> Account:
        """What it took so far."""

    @property
    def failure(self) -> Exception | None:
        """What went wrong there: of an error in what it reads DuckDB passes on no more than the text."""

    def close(self) -> None:
        """Stop: whoever waits for it gets an error within a second. More than once is fine."""


class Running:
    """An Answer (query/answer.py) of this process. One thread reads it; any thread may close it. `open_` gives the
    connection that has the SQL's relations; what it leaves in the stack is closed at the end."""

    def __init__(
        self,
        sql: str,
        open_: Callable[[ExitStack], duckdb.DuckDBPyConnection],
        limits: Limits,
        source: Source,
    ) -> None:
        self._sql = sql
        self._open = open_
        self._limits = limits
        self._source = source
        self._held = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._rows: duckdb.DuckDBPyRelation | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._schema: pa.Schema | None = None
        self._state = Condition()
        self._busy = False
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._in_duckdb(self._begin)
        return self._schema

    @property
    def account(self) -> Account:
        return self._source.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        schema, rows = self.schema, 0
        try:
            while (batch := self._in_duckdb(self._next)) is not None:
                rows += batch.num_rows
                if rows > self._limits.max_rows:
                    raise too_many_rows(self._limits)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        finally:
            self.close()

    def close(self) -> None:
        with self._state:
            self._closed = True
        self._source.close()
        with self._state:
            for _ in range(_INTERRUPTS):
                if not self._busy:
                    break
                # An interrupt that comes before DuckDB has begun is lost: so once more.
                if self._connection is not None:
                    self._connection.interrupt()
                self._state.wait(_INTERRUPT_EVERY)
            if not self._busy:
                self._release()

    def _begin(self) -> pa.Schema:
        self._connection = self._open(self._held)
        if self._closed:  # while the segments were fetched, which nothing interrupts
            raise cancelled()
        self._rows = self._connection.sql(self._sql)
        types = arrow_types(self._connection, tuple(map(str, self._rows.types)))
        return _with_unique_names(pa.schema(list(zip(self._rows.columns, types, strict=True))))

    def _next(self) -> pa.RecordBatch | None:
        if self._rows is None:
            raise cancelled()
        if self._reader is None:
            self._reader = self._rows.to_arrow_reader(_BATCH_ROWS)
            self._held.callback(self._reader.close)
        with suppress(StopIteration):
            return self._reader.read_next_batch()
        return None

    def _in_duckdb(self, step: Callable[[], T]) -> T:
        """One step of the work. Whoever comes last, this or `close`, lets go of what is held."""
        with self._state:
            if self._closed:
                raise cancelled()
            self._busy = True
        try:
            result = step()
        except BaseException as error:
            stopped, self._closed = self._closed, True
            if isinstance(error, duckdb.Error | pa.ArrowException | OSError):
                said = cancelled() if stopped else self._source.failure
                raise said or translated(error, self._limits) from None
            raise
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
                if self._closed:
                    self._release()
        return result

    def _release(self) -> None:
        self._rows = None
        self._held.close()
        self._connection = self._reader = None


def _with_unique_names(schema: pa.Schema) -> pa.Schema:
    """A second column `n` is called `n_1`, as DuckDB does in a subquery, so that a row can be a JSON object."""
    taken = set(schema.names)
    seen: set[str] = set()
    fields = []
    for field in schema:
        name = field.name
        if name in seen:
            name = next(new for n in count(1) if (new := f"{name}_{n}") not in taken)
            taken.add(name)
        seen.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)
