"""Works units of work out: each query in a DuckDB instance of its own, that can reach nothing but its own segments.

What always holds: the instance reads the files of its unit's segments and no others, installs and loads nothing, and
its settings are locked before the query runs. The answer is streamed; it ends whole or with an error. Whatever ends it,
the segments are let go, the instance is closed and its spill files are removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Condition
from typing import TypeVar

import duckdb
import pyarrow as pa

from lakerunner.query.cache import SegmentCache
from lakerunner.query.failures import Limits, cancelled, too_many_rows, translated
from lakerunner.query.guard import check_sql
from lakerunner.query.macros import MACROS
from lakerunner.query.scan import quoted, relation_sql, text
from lakerunner.query.unit import WorkUnit

_BATCH_ROWS = 2048  # DuckDB's own vector: the first rows come as soon as there are any
_INTERRUPT_EVERY = 0.01
_INTERRUPTS = 500
_Settings = dict[str, str | bool | int | float | list[str]]
_ALWAYS: _Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
T = TypeVar("T")


class QueryWorker:
    """`memory` and `threads` are those of one query; threads 0: one per core. Safe to use from many threads."""

    def __init__(
        self,
        cache: SegmentCache,
        *,
        memory: str,
        threads: int,
        seconds: float,
        max_rows: int,
        spill_directory: Path,
        spill_max: str = "10GB",
    ) -> None:
        self._cache = cache
        self._threads = threads or os.cpu_count() or 1
        self._spill_directory = spill_directory.resolve()
        self._limits = Limits(memory, seconds, max_rows, (cache.directory, self._spill_directory))
        self._spill_max = spill_max
        self._numbers = count()
        self._forget_dead()

    def run(self, unit: WorkUnit) -> LocalAnswer:
        """At once: the work begins when the answer is looked at."""
        return LocalAnswer(unit, self._open, self._limits)

    def _open(self, unit: WorkUnit, held: ExitStack) -> duckdb.DuckDBPyConnection:
        """A connection with the unit's relations, locked; what `held` closes, the query needs."""
        paths = held.enter_context(self._cache.hold(unit.segments))
        spill = self._spill_directory / f"{os.getpid()}-{next(self._numbers)}"
        held.callback(shutil.rmtree, spill, ignore_errors=True)
        limits: _Settings = {
            "memory_limit": self._limits.memory,
            "threads": str(self._threads),
            "max_execution_time": str(max(1, round(self._limits.seconds * 1000))),
            "temp_directory": str(spill),
        }
        connection = duckdb.connect(":memory:", config=_ALWAYS | limits)
        held.callback(connection.close)
        allowed = ", ".join(text(str(path)) for path in paths.values())
        connection.execute(f"SET allowed_paths = [{allowed}]; SET enable_external_access = false")
        connection.execute("SET TimeZone = 'UTC'")
        # Given to connect(), this limit is shown and not kept.
        connection.execute(f"SET max_temp_directory_size = {text(self._spill_max)}")
        for macro in MACROS:
            connection.execute(macro)
        for input_ in unit.inputs:
            relation = quoted(input_.scan.relation)
            connection.execute(f"CREATE TEMP VIEW {relation} AS {relation_sql(input_, paths)}")
        check_sql(connection, unit.sql, {input_.scan.relation for input_ in unit.inputs})
        connection.execute("SET lock_configuration = true")
        return connection

    def _forget_dead(self) -> None:
        """Spill of a process that is no more; a live one's is named by its own number."""
        self._spill_directory.mkdir(parents=True, exist_ok=True)
        for path in self._spill_directory.iterdir():
            pid = path.name.partition("-")[0]
            if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


class LocalAnswer:
    """An Answer (query/answer.py) of this process. One thread reads it; any thread may close it."""

    def __init__(
        self,
        unit: WorkUnit,
        open_: Callable[[WorkUnit, ExitStack], duckdb.DuckDBPyConnection],
        limits: Limits,
    ) -> None:
        self._unit = unit
        self._open = open_
        self._limits = limits
        self._held = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
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
        self._connection = self._open(self._unit, self._held)
        if self._closed:  # while the segments were fetched, which nothing interrupts
            raise cancelled()
        self._reader = self._connection.sql(self._unit.sql).to_arrow_reader(_BATCH_ROWS)
        self._held.callback(self._reader.close)
        return _with_unique_names(self._reader.schema)

    def _next(self) -> pa.RecordBatch | None:
        if self._reader is None:
            raise cancelled()
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
            self._closed = True
            if isinstance(error, duckdb.Error | pa.ArrowException | OSError):
                raise translated(error, self._limits) from None
            raise
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
                if self._closed:
                    self._release()
        return result

    def _release(self) -> None:
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
