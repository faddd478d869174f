"""The coordinator's part of a query: its SQL over what the leaves gave, in a DuckDB instance of this process.

Comes in: the plan's SQL and, for each relation it names, the rows that workers gave. Goes out: the answer's rows. What
always holds: rows are streamed through where DuckDB reads each relation once; where it would read one twice they are
put into a table first, which DuckDB spills if it must.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace

import duckdb

from lakerunner.query.feed import Feeds
from lakerunner.query.guard import check_sql
from lakerunner.query.instance import Instances
from lakerunner.query.running import Running
from lakerunner.query.scan import quoted

_STREAM_SCAN = '"name": "PYTHON_ARROW_SCAN"'


class Coordinator:
    """Safe to use from many threads. Rows are not limited here: an answer may take many runs (query/bounded.py)."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self.limits = instances.limits

    def run(self, sql: str, feeds: Feeds) -> Running:
        """At once: the work begins when the answer is looked at. When it ends the feeds are closed."""

        def open_(held: ExitStack) -> duckdb.DuckDBPyConnection:
            held.callback(feeds.close)
            rows = feeds.readers()
            connection = self._instances.open(held)
            for name, reader in rows.items():
                connection.register(name, reader)
            check_sql(connection, sql, set(rows))
            _keep_what_is_read_twice(connection, sql, list(rows))
            return connection

        return Running(sql, open_, replace(self.limits, max_rows=sys.maxsize), feeds)


def _keep_what_is_read_twice(connection: duckdb.DuckDBPyConnection, sql: str, relations: list[str]) -> None:
    """A stream can be read once. How often the SQL reads one is seen in DuckDB's own plan, which may share the rows of
    what stands in it twice, or read twice what stands in it once."""
    (plan,) = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    if str(plan[1]).count(_STREAM_SCAN) <= len(relations):
        return
    for name in relations:
        connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {quoted(name)}")
        connection.unregister(name)
        connection.execute(f"ALTER TABLE kept RENAME TO {quoted(name)}")
