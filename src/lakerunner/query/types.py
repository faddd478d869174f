"""What DuckDB makes of a SELECT over a scan, found by binding it to the scan's empty relation: no file is read."""

from __future__ import annotations

from contextlib import suppress

import duckdb

from lakerunner.plan.scan import Scan
from lakerunner.query.macros import MACROS
from lakerunner.query.scan import empty_sql, quoted


class BoundTypes:
    """Types (plan/types.py) by asking DuckDB. Safe to use from many threads. The SQL has been checked by lakeql/ and is
    bound only, in an instance that can reach no file."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": "1", "python_enable_replacements": "false"})
        for macro in MACROS:
            self._connection.execute(macro)
        self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")

    def of(self, sql: str, scan: Scan) -> list[tuple[str, str]] | None:
        with self._connection.cursor() as cursor, suppress(duckdb.Error):
            cursor.execute(f"CREATE TEMP VIEW {quoted(scan.relation)} AS {empty_sql(scan)}")
            return [(name, type_) for name, type_, *_ in cursor.execute(f"DESCRIBE {sql}").fetchall()]
        return None
