"""The types in which DuckDB gives rows to Arrow, known before there are any.

Comes in: types as DuckDB writes them. Goes out: Arrow's. A reader of a query's rows has its schema only when the first
of them are there, so DuckDB is asked for no row of these types; what it said is remembered, as all that run queries are
set alike (query/instance.py).
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

_KEPT = 1024  # lists of types
_known: dict[tuple[str, ...], tuple[pa.DataType, ...]] = {}


def arrow_types(connection: duckdb.DuckDBPyConnection, types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    found = _known.get(types)
    if found is None:
        nothing = ", ".join(f"CAST(NULL AS {one})" for one in types)
        found = tuple(connection.sql(f"SELECT {nothing} LIMIT 0").to_arrow_table().schema.types)
        if len(_known) >= _KEPT:
            _known.clear()
        _known[types] = found
    return found
