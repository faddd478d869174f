"""The coordinator's part of a query: its SQL over what the leaves gave, in a DuckDB instance of this process.

Comes in: the plan's SQL and, for each relation it names, the rows that workers gave. Goes out: the answer's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import duckdb
import pyarrow as pa

from lakerunner.query.guard import check_sql
from lakerunner.query.instance import Instances
from lakerunner.query.running import Running, Source


class Coordinator:
    """Safe to use from many threads."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def run(
        self,
        sql: str,
        relations: Callable[[ExitStack], Mapping[str, pa.RecordBatchReader]],
        source: Source,
    ) -> Running:
        """`relations` is called when the work begins, its rows come from the source; what it leaves in the stack is
        closed when the work ends."""

        def open_(held: ExitStack) -> duckdb.DuckDBPyConnection:
            given = relations(held)
            connection = self._instances.open(held)
            for name, rows in given.items():
                connection.register(name, rows)
            check_sql(connection, sql, set(given))
            return connection

        return Running(sql, open_, self._instances.limits, source)
