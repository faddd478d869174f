"""SQL aggregates that split: what workers compute from their rows, and how the coordinator folds the results.

Templates are DuckDB's SQL. In `keys` and `partials`, {x} and {y} stand for the arguments, which are null in rows that a
FILTER leaves out; in `fold`, {0}, {1}, ... stand for the columns of keys and partials, in this order, and {result} for
the type that DuckDB gives the aggregate.

What always holds: the fold over the partials of any split of the rows is the aggregate of all rows, bit for bit for
counts, extrema and sums of integers. A sum of floats is correctly rounded, unlike DuckDB's own, whose last bits depend
on the order: numbers are cut by their exponent into integers (the macros sum_bin and sum_part), whose sums are exact,
and rounded once at the end (query/sandbox/instance.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INTEGERS = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT".split()  # noqa: SIM905
)
FLOATS = frozenset({"FLOAT", "DOUBLE"})
_DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
# Types that Arrow turns into another type (a DECIMAL, or text), also inside a list or a struct.
_OTHER_IN_ARROW = re.compile(r"\b(?:HUGEINT|UUID|JSON)\b")
# Types that survive Arrow unchanged, with the same order.
_PLAIN = INTEGERS - {"HUGEINT"} | FLOATS | {"VARCHAR", "BOOLEAN", "TIMESTAMP_NS", "TIMESTAMP", "DATE"}


@dataclass(frozen=True)
class Split:
    """How an aggregate splits. Workers group by `keys` beside the query's own keys; the fold merges these finer groups
    again."""

    partials: tuple[str, ...]
    fold: str
    keys: tuple[str, ...] = ()


_COUNT = Split(("count({x})",), "CAST(coalesce(sum({0}), 0) AS BIGINT)")
_COUNT_IF = Split(("count_if({x})",), "CAST(coalesce(sum({0}), 0) AS {result})")
_SUM = Split(("sum({x})",), "CAST(sum({0}) AS {result})")
_BINS = "list({{'bin': {0}, 'part': CAST({1} AS HUGEINT)}}) FILTER (WHERE {0} IS NOT NULL)"
_FLOAT_SUM = Split(("sum(sum_part({x}))",), f"exact_sum({_BINS})", ("sum_bin({x})",))
_FLOAT_MEAN = Split(
    ("sum(sum_part({x}))", "count({x})"), f"exact_mean({_BINS}, CAST(sum({{2}}) AS BIGINT))", ("sum_bin({x})",)
)
_MEAN = Split(("sum({x})", "count({x})"), "exact_ratio(CAST(sum({0}) AS HUGEINT), CAST(sum({1}) AS BIGINT))")
_DISTINCT = Split((), "count(DISTINCT {0})", ("{x}",))
_ABOUT_DISTINCT = Split((), "approx_count_distinct({0})", ("{x}",))
_LARGEST = Split(("arg_max({x}, {y})", "max({y}) FILTER (WHERE ({x}) IS NOT NULL)"), "arg_max({0}, {1})")
_SMALLEST = Split(("arg_min({x}, {y})", "min({y}) FILTER (WHERE ({x}) IS NOT NULL)"), "arg_min({0}, {1})")


def _same(name: str) -> Split:
    return Split((f"{name}({{x}})",), f"{name}({{0}})")


# By name, then by the type that the first argument must have.
_SPLITS: dict[str, tuple[tuple[frozenset[str], Split], ...]] = {
    "sum": ((INTEGERS, _SUM), (FLOATS, _FLOAT_SUM)),
    **dict.fromkeys(("avg", "mean"), ((INTEGERS, _MEAN), (FLOATS, _FLOAT_MEAN))),
    **{name: ((_PLAIN, _same(name)),) for name in ("min", "max", "any_value")},
    **{name: ((frozenset({"BOOLEAN"}), _same(name)),) for name in ("bool_and", "bool_or")},
    **{name: ((INTEGERS - {"HUGEINT"}, _same(name)),) for name in ("bit_and", "bit_or", "bit_xor")},
    **dict.fromkeys(("count_if", "countif"), ((frozenset({"BOOLEAN"}), _COUNT_IF),)),
    "approx_count_distinct": ((_PLAIN, _ABOUT_DISTINCT),),
    **dict.fromkeys(("arg_max", "argmax", "max_by"), ((_PLAIN, _LARGEST),)),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), ((_PLAIN, _SMALLEST),)),
}
_TWO_ARGUMENTS = frozenset("arg_max argmax max_by arg_min argmin min_by".split())  # noqa: SIM905
SPLITTING = frozenset(_SPLITS) | {"count"}


def restore_type(column: str, type_: str) -> str:
    """Return SQL that casts a key, which workers gave as this column, back to its original type."""
    return f"CAST({column} AS {type_})" if _OTHER_IN_ARROW.search(type_) else column


def split_of(name: str, types: tuple[str, ...], *, distinct: bool = False) -> Split | None:
    """Return how an aggregate with arguments of these types splits; None if it needs all rows at once."""
    if name == "count" and len(types) == 1:
        plain = types[0] in _PLAIN
        return (_DISTINCT if plain else None) if distinct else _COUNT
    if distinct or len(types) != (2 if name in _TWO_ARGUMENTS else 1):
        return None
    if name == "sum" and _DECIMAL.fullmatch(types[0]):
        return _SUM
    fitting = [split for kinds, split in _SPLITS.get(name, ()) if types[0] in kinds]
    if not fitting or (len(types) == 2 and types[1] not in _PLAIN):
        return None
    return fitting[0]
