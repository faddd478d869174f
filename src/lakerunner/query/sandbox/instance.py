"""The DuckDB instance of a sandbox: opened before the sandbox is confined, locked before it runs anything.

Invariants: the instance reads the files of its own directory and no others, installs and loads nothing, and its
settings are locked. Each request has its own connection, whose views and relations end with it.

Macros hold the meaning of stored values, written once in DuckDB's SQL. `typed_text` turns typed JSON
(model/typed_json.py) into the plain text of the value: a string as it is, the digits of a number, true or false, bytes
in base64, an array or a map as JSON, NULL for the empty value. The text is the same whether the value was stored in a
column of its own or in the overflow map.

Kernels are the functions that the coordinator's SQL calls in addition to DuckDB's own: exact sums and means of numbers
that were split by exponent, rounded once (plan/aggregate.py says why). A number x is `part * 2**(-32 * bin)` with an
integer part. NaN and the infinities are counted in bin ODD, each in its own bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from lakerunner.query.sandbox.confine import FILES, SPILL
from lakerunner.query.segment_cache.sql_text import text

_ALWAYS: dict[str, str | bool | int | float | list[str]] = {
    # One thread until the process is confined: confinement binds only threads that start after it.
    "threads": "1",
    "async_threads": "0",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    # Off, since a cached range may be a hole that the segment cache has filled since. The kernel caches files anyway.
    "enable_external_file_cache": "false",
}
ODD = 100_000
INFINITY, MINUS_INFINITY, NOT_A_NUMBER = 1, 1 << 40, 1 << 80
_COUNT_BITS = (1 << 40) - 1
_PARTS = 'STRUCT("bin" INTEGER, "part" HUGEINT)[]'
Parts = Sequence[Mapping[str, Any]]
_TYPED_TEXT = r"""
CREATE MACRO typed_text(v) AS CASE
    WHEN starts_with(v, '"') THEN json_extract_string(v, '$')
    WHEN v = 'null' THEN NULL
    WHEN NOT starts_with(v, '{"') THEN v
    WHEN regexp_full_match(v, '\{"bytesValue":"[A-Za-z0-9+/=]*"\}') THEN json_extract_string(v, '$.bytesValue')
    WHEN regexp_full_match(v, '\{"doubleValue":"(NaN|-?Infinity)"\}') THEN json_extract_string(v, '$.doubleValue')
    WHEN starts_with(v, '{"kvlistValue":{') AND len(json_keys(v)) = 1
        THEN substring(v, length('{"kvlistValue":') + 1, length(v) - length('{"kvlistValue":') - 1)
    ELSE v
END
"""
_DOUBLE_TEXT = """
CREATE MACRO double_text(d) AS CASE
    WHEN isnan(d) THEN 'NaN'
    WHEN isinf(d) THEN CASE WHEN d > 0 THEN 'Infinity' ELSE '-Infinity' END
    ELSE CAST(d AS VARCHAR)
END
"""
# A key may occur twice in OTLP but not in a DuckDB map: the first one counts. A macro's argument is planned again at
# each place where it is used, and this one is long: the outer lambda names it once.
_FIRST_OF_EACH = """
CREATE MACRO first_of_map_rows(entries) AS list_transform([entries], lambda es: CASE
    WHEN len(list_distinct(list_transform(es, lambda e: e.key))) = len(es) THEN es
    ELSE list_filter(es, lambda e, i: list_position(list_transform(es, lambda x: x.key), e.key) = i)
END)[1]
"""
_ATTRIBUTE_MAP = """
CREATE MACRO attribute_map(columns, overflow) AS map_from_entries(list_sort(first_of_map_rows(list_concat(
    list_filter(columns, lambda e: e.value IS NOT NULL),
    list_transform(map_entries(overflow), lambda e: {'key': e.key, 'value': typed_text(e.value)})
))))
"""
# DuckDB's own cast rounds, so that 23:59:59.9999999 becomes the next day; this macro truncates, before 1970 too. It has
# a single division because it runs for every row.
_MICROSECONDS = """
CREATE MACRO microseconds(t) AS make_timestamp(floor_of_thousand(epoch_ns(CAST(t AS TIMESTAMP_NS))))
"""
_FLOOR_OF_THOUSAND = """
CREATE MACRO floor_of_thousand(n) AS CASE WHEN n >= 0 THEN n // 1000 ELSE (n - 999) // 1000 END
"""
# date_trunc or time_bucket of `microseconds`, where buckets of a whole number of microseconds begin at the epoch.
_BUCKET_START = """
CREATE MACRO bucket_start(t, width) AS
    make_timestamp(floor_of_width(epoch_ns(CAST(t AS TIMESTAMP_NS)), width) * (width // 1000))
"""
_FLOOR_OF_WIDTH = """
CREATE MACRO floor_of_width(n, width) AS CASE WHEN n >= 0 THEN n // width ELSE (n + 1) // width - 1 END
"""
# A double is part * 2^(-32 * bin), where part is an integer of at most 88 bits: exact, as is the sum of parts of one
# bin. The exponent need only be roughly right. Multiplied in two steps because 2^1074 is not a double. NaN and the
# infinities are counted in the bin ODD.
_SUM_BIN = f"""
CREATE MACRO sum_bin(x) AS CASE
    WHEN x IS NULL THEN NULL
    WHEN NOT isfinite(x) THEN {ODD}
    WHEN x = 0 THEN 0
    ELSE CAST(floor((53 - log2(abs(x))) / 32) AS INTEGER) + 1
END
"""
_SUM_PART = f"""
CREATE MACRO sum_part(x) AS CASE
    WHEN x IS NULL OR x = 0 THEN CAST(0 AS HUGEINT)
    WHEN isnan(x) THEN CAST({NOT_A_NUMBER} AS HUGEINT)
    WHEN isinf(x) THEN CASE WHEN x > 0 THEN CAST({INFINITY} AS HUGEINT) ELSE CAST({MINUS_INFINITY} AS HUGEINT) END
    ELSE CAST(x * pow(2.0::DOUBLE, 16 * sum_bin(x)) * pow(2.0::DOUBLE, 16 * sum_bin(x)) AS HUGEINT)
END
"""

MACROS = (
    _TYPED_TEXT,
    _DOUBLE_TEXT,
    _FIRST_OF_EACH,
    _ATTRIBUTE_MAP,
    _FLOOR_OF_THOUSAND,
    _MICROSECONDS,
    _FLOOR_OF_WIDTH,
    _BUCKET_START,
    _SUM_BIN,
    _SUM_PART,
)


def open_instance() -> duckdb.DuckDBPyConnection:
    """Open an instance with our macros and kernels, without limits yet. Starts no thread."""
    root = duckdb.connect(":memory:", config=_ALWAYS)
    root.execute("SET GLOBAL TimeZone = 'UTC'")  # GLOBAL: otherwise each connection has its own
    root.execute("SET GLOBAL errors_as_json = true")  # with the position in the SQL (child.py)
    # Safe, as a file's name contains its segment's id and footers never change; saves half the time of a small query.
    root.execute("SET GLOBAL parquet_metadata_cache = true")
    for macro in MACROS:
        root.execute(macro)
    for kernel in KERNELS:
        kernel.create(root)
    return root


def limit(root: duckdb.DuckDBPyConnection, directory: Path, limits: dict[str, Any]) -> None:
    """Set the instance's directory and limits: `memory`, `milliseconds`, `spill`."""
    root.execute(f"SET temp_directory = {text(str(directory / SPILL))}")
    root.execute(f"SET allowed_directories = [{text(f'{directory / FILES}/')}]")
    root.execute("SET enable_external_access = false")
    root.execute(f"SET memory_limit = {text(limits['memory'])}")
    root.execute(f"SET max_temp_directory_size = {text(limits['spill'])}")
    root.execute(f"SET GLOBAL max_execution_time = {int(limits['milliseconds'])}")


def lock(root: duckdb.DuckDBPyConnection, threads: int) -> None:
    """Start the threads and refuse every further setting. This is the last step."""
    root.execute(f"SET threads = {int(threads)}")
    root.execute("SET lock_configuration = true")


def exact_sum(parts: pa.ChunkedArray) -> pa.Array:
    """Return the sum, rounded once; null if there is no number."""
    return _map_rows(lambda given: _to_float(_total(given)), parts)


def exact_mean(parts: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.Array:
    return _map_rows(lambda given, n: _to_float(_over(_total(given), n)), parts, count)


def exact_ratio(total: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.Array:
    return _map_rows(lambda sum_, n: _to_float(Fraction(int(sum_), n)), total, count)


def _map_rows(function: Callable[..., float], *columns: pa.ChunkedArray) -> pa.Array:
    """Apply the function to each row; null where an argument is null or the list of parts is empty. Works on columns,
    because DuckDB takes a NaN for null in functions of single values."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([None if None in row or row[0] == [] else function(*row) for row in rows], pa.float64())


def _over(total: Fraction | float, count: int) -> Fraction | float:
    return total / count if isinstance(total, Fraction) else total


def _total(parts: Parts) -> Fraction | float:
    whole = 0
    lowest = max(0, *(part["bin"] for part in parts if part["bin"] != ODD), 0)
    odd = sum(int(part["part"]) for part in parts if part["bin"] == ODD)
    if odd:
        return _decode_odd(odd)
    for part in parts:
        whole += int(part["part"]) << 32 * (lowest - part["bin"])
    return Fraction(whole, 1 << 32 * lowest)


def _decode_odd(counted: int) -> float:
    up, down = counted & _COUNT_BITS, counted >> 40 & _COUNT_BITS
    if counted >> 80 or (up and down):
        return nan
    return inf if up else -inf


def _to_float(value: Fraction | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


@dataclass(frozen=True)
class Kernel:
    """A Python function of columns, as DuckDB registers it."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    result: str

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.create_function(
            self.name, self.function, list(self.arguments), self.result, type=PythonUDFType.ARROW
        )


KERNELS = (
    Kernel("exact_sum", exact_sum, (_PARTS,), "DOUBLE"),
    Kernel("exact_mean", exact_mean, (_PARTS, "BIGINT"), "DOUBLE"),
    Kernel("exact_ratio", exact_ratio, ("HUGEINT", "BIGINT"), "DOUBLE"),
)
