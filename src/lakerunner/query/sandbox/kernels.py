"""The functions that the coordinator's SQL calls beside DuckDB's own: sums and means of numbers cut by exponent, exact
and rounded once (plan/aggregate.py says why; query/sandbox/macros.py has the cutting).

A number x is `part * 2**(-32 * bin)`, part a whole number. Not a number and the infinities are counted in bin ODD, each
in bits of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nan
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

ODD = 100_000
INFINITY, MINUS_INFINITY, NOT_A_NUMBER = 1, 1 << 40, 1 << 80
_COUNT_BITS = (1 << 40) - 1
_PARTS = 'STRUCT("bin" INTEGER, "part" HUGEINT)[]'
Parts = Sequence[Mapping[str, Any]]


def exact_sum(parts: pa.ChunkedArray) -> pa.Array:
    """The sum, rounded once; null if there is no number."""
    return _each(lambda given: _rounded(_total(given)), parts)


def exact_mean(parts: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.Array:
    return _each(lambda given, n: _rounded(_over(_total(given), n)), parts, count)


def exact_ratio(total: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.Array:
    return _each(lambda sum_, n: _rounded(Fraction(int(sum_), n)), total, count)


def _each(function: Callable[..., float], *columns: pa.ChunkedArray) -> pa.Array:
    """Null where an argument is null, or a list of no parts. By columns: of single values DuckDB takes NaN for null."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([None if None in row or row[0] == [] else function(*row) for row in rows], pa.float64())


def _over(total: Fraction | float, count: int) -> Fraction | float:
    return total / count if isinstance(total, Fraction) else total


def _total(parts: Parts) -> Fraction | float:
    whole = 0
    lowest = max(0, *(part["bin"] for part in parts if part["bin"] != ODD), 0)
    odd = sum(int(part["part"]) for part in parts if part["bin"] == ODD)
    if odd:
        return _odd(odd)
    for part in parts:
        whole += int(part["part"]) << 32 * (lowest - part["bin"])
    return Fraction(whole, 1 << 32 * lowest)


def _odd(counted: int) -> float:
    up, down = counted & _COUNT_BITS, counted >> 40 & _COUNT_BITS
    if counted >> 80 or (up and down):
        return nan
    return inf if up else -inf


def _rounded(value: Fraction | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


@dataclass(frozen=True)
class Kernel:
    """A Python function of columns as DuckDB sees it."""

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
