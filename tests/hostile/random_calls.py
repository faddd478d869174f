"""Random calls of the functions that a query may use, with odd arguments of mostly the right types.

DuckDB's own catalog says what types a function takes; one argument in ten is of another type all the same.
"""

from __future__ import annotations

from functools import lru_cache

import duckdb
from hypothesis import strategies as st

from lakerunner.lakeql.functions import FUNCTIONS, FUNCTIONS_BY_KIND

DEPTH = 3
_TEXTS = (
    *(
        "''",
        "'x'",
        "'%'",
        "'%Y-%m-%d'",
        "'{}'",
        "'\\'",
        "'$.a'",
        "'[1, {\"a\": null}]'",
        "'(a+)+$'",
        "'nan'",
        "'1e400'",
    ),
    *("'-infinity'", "'00000000-0000-0000-0000-000000000000'", "'2024-02-30'", "'day'", "'é\u0301\u202e😀'", "chr(0)"),
    *("'${env:HOSTILE_CANARY}'", "'/etc/passwd'", "rpad('x', 1000, 'xy')", "NULL::VARCHAR", "'UTC'", "'DESC'", "'g'"),
)
_INTEGERS = (
    *("0", "1", "-1", "2", "1000", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775807"),
    *("NULL::BIGINT", "255::UTINYINT", "170141183460469231731687303715884105727::HUGEINT"),
)
_DOUBLES = (
    "0.5",
    "-0.0::DOUBLE",
    "'nan'::DOUBLE",
    "'inf'::DOUBLE",
    "'-inf'::DOUBLE",
    "1.7976931348623157e308",
    "5e-324",
)
_TIMES = (
    *("TIMESTAMP '2024-02-29 23:59:59.999999'", "TIMESTAMP 'infinity'", "TIMESTAMP '290309-12-22 (BC) 00:00:00'"),
    *("TIMESTAMP '294247-01-10 04:00:54.775806'", "make_timestamp_ns(-1)", "now()", "NULL::TIMESTAMP"),
)
_POOLS: dict[str, tuple[str, ...]] = {
    "VARCHAR": (*_TEXTS, "message", "service_name", "collector", "attributes['tier']", "organization_id", "severity"),
    "INTEGER": (*_INTEGERS, "flags", "length(service_name)"),
    "DOUBLE": (*_DOUBLES, "flags / 3"),
    "TIMESTAMP": (*_TIMES, "timestamp"),
    "DATE": ("DATE '2024-02-29'", "DATE 'infinity'", "DATE '-5877641-06-25'", "DATE '5881580-07-10'", "NULL::DATE"),
    "TIME": ("TIME '24:00:00'", "TIME '00:00:00.000001'"),
    "INTERVAL": ("INTERVAL 1 DAY", "INTERVAL 0 SECOND", "INTERVAL '-1 month 31 days'", "to_years(290000)"),
    "BOOLEAN": ("true", "false", "NULL::BOOLEAN", "flags > 0"),
    "BLOB": ("'\\xff\\x00'::BLOB", "''::BLOB", "encode(message)"),
    "JSON": ('\'{"a": [1, null, {"b": 1e400}]}\'::JSON', "to_json(attributes)", "'[[[[[[]]]]]]'::JSON", "'null'::JSON"),
    "LIST": (
        "[]",
        "[1, NULL, 2]",
        "[[1], []]",
        "['a', 'b']",
        "range(10)",
        "[message, service_name]",
        "map_keys(attributes)",
    ),
    "MAP": ("MAP {}", "MAP {'a': 1}", "attributes", "resource_attrs", "MAP {1: MAP {2: 3}}"),
    "STRUCT": ("{'a': 1, 'b': [1]}", "{'a': {'b': NULL}}", "row(1, 'x')"),
}
_BODIES = ("x", "x + 1", "x || x", "[x]", "x IS NULL", "length(x::VARCHAR)", "{'a': x}")
_TABLES = ("logs", "metrics", "spans", "(SELECT * FROM logs LIMIT 3)")


@lru_cache
def signatures() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the types that each allowed function takes, by its name; nothing for syntax that looks like a call."""
    rows = duckdb.execute("SELECT function_name, parameter_types FROM duckdb_functions()").fetchall()
    found: dict[str, set[tuple[str, ...]]] = {}
    for name, types in rows:
        if name in FUNCTIONS:
            found.setdefault(name, set()).add(tuple(type_ or "ANY" for type_ in types))
    return {name: tuple(sorted(found.get(name, {("VARCHAR",)}), key=str)) for name in sorted(FUNCTIONS)}


def statements() -> st.SearchStrategy[str]:
    """A SELECT of one or two random calls: plain, grouped, over a window, or in a condition."""
    calls, tables = _calls(DEPTH, tuple(sorted(FUNCTIONS))), st.sampled_from(_TABLES)
    windowed = _calls(2, tuple(sorted({*FUNCTIONS_BY_KIND["window"], *FUNCTIONS_BY_KIND["aggregate"]})))
    frames = st.sampled_from(
        ["", "ORDER BY timestamp", "PARTITION BY service_name ORDER BY timestamp ROWS 1 PRECEDING", "ORDER BY 1 DESC"]
    )
    return st.one_of(
        st.builds(lambda made, table: f"SELECT {made} AS x FROM {table}", calls, tables),
        st.builds(lambda one, two: f"SELECT {one} AS x, {two} AS y", _constant_calls(), _constant_calls()),
        st.builds(lambda made, table: f"SELECT {made} AS x, count(*) FROM {table} GROUP BY ALL", calls, tables),
        st.builds(lambda made, table: f"SELECT message FROM logs WHERE {made} IS NOT NULL", calls, tables),
        st.builds(lambda made, frame, table: f"SELECT {made} OVER ({frame}) FROM {table}", windowed, frames, tables),
        st.builds(lambda made: f"SELECT list_transform(range(5), lambda x: {made})", _constant_calls()),
    )


def _calls(depth: int, names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names).flatmap(lambda name: call(name, depth))


def _constant_calls() -> st.SearchStrategy[str]:
    """Calls that name no column: DuckDB works them out while it plans."""
    return _calls(2, tuple(sorted(FUNCTIONS))).filter(lambda made: not any(name in made for name in _COLUMNS))


_COLUMNS = ("message", "service_name", "collector", "attributes", "organization_id", "severity", "flags", "timestamp")


def call(name: str, depth: int) -> st.SearchStrategy[str]:
    """Return calls of one function, whose arguments may be calls down to this depth."""
    taken = st.sampled_from(signatures()[name]).flatmap(
        lambda types: st.tuples(*(_argument(type_, depth - 1) for type_ in types[:6]))
    )
    odd = st.lists(_argument("ANY", depth - 1), max_size=4).map(tuple)
    arguments = st.integers(0, 9).flatmap(lambda dice: odd if dice == 0 else taken)
    return arguments.map(lambda given: f"{name}({', '.join(given)})")


def _argument(type_: str, depth: int) -> st.SearchStrategy[str]:
    if type_ == "LAMBDA":
        return st.sampled_from(_BODIES).map(lambda body: f"lambda x: {body}")
    pool = st.sampled_from(_POOLS[_pool(type_)]) if _pool(type_) else st.sampled_from(_ANY)
    if depth <= 0:
        return pool
    return st.integers(0, 3).flatmap(lambda dice: _calls(depth, tuple(sorted(FUNCTIONS))) if dice == 0 else pool)


_ANY = tuple(value for values in _POOLS.values() for value in values)


def _pool(type_: str) -> str:
    """Name the pool of a type of DuckDB's catalog; empty: any will do."""
    if type_.endswith("[]"):
        return "LIST"
    for word, pool in (
        *(("MAP", "MAP"), ("STRUCT", "STRUCT"), ("TIMESTAMP", "TIMESTAMP"), ("TIME", "TIME"), ("INTERVAL", "INTERVAL")),
        *(("INT", "INTEGER"), ("DECIMAL", "DOUBLE"), ("FLOAT", "DOUBLE"), ("VARCHAR", "VARCHAR"), ("JSON", "JSON")),
        *(("DOUBLE", "DOUBLE"), ("DATE", "DATE"), ("BOOLEAN", "BOOLEAN"), ("BLOB", "BLOB")),
    ):
        if type_.startswith(word) or (
            word == "INT" and type_.removeprefix("U").startswith(("BIG", "TINY", "SMALL", "HUGE", "INT"))
        ):
            return pool
    return ""
