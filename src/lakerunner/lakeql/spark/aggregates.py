"""Aggregates and window functions that mean the same to Spark as to DuckDB, as Spark's text for them.

In a text `{over}` is what follows each call: a FILTER, or a window. Sums and averages of whole numbers are worked out
in decimals, so that they are exact as DuckDB's are.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.lakeql.spark.values import ORDERED, Type, Value

_SUM_TYPES = {
    Type.INTEGER: "DECIMAL(20, 0)",
    Type.BIGINT: "DECIMAL(20, 0)",
    Type.UNSIGNED: "DECIMAL(20, 0)",
    Type.HUGEINT: "DECIMAL(38, 0)",
}
_MEASURED = (Type.INTEGER, Type.BIGINT, Type.DOUBLE)
_ANY = tuple(Type)


@dataclass(frozen=True)
class Aggregate:
    """`{distinct}` stands where DISTINCT may; an aggregate without it does not take it. `gives` None: the type of the
    first argument."""

    takes: tuple[tuple[Type, ...], ...]
    gives: Type | None
    sql: str
    windowed: bool = True

    def value(self, values: list[Value], distinct: bool, over: str) -> Value | None:
        """None if it does not take these."""
        if len(values) != len(self.takes) or (distinct and "{distinct}" not in self.sql):
            return None
        if not all(value.type in takes for value, takes in zip(values, self.takes, strict=True)):
            return None
        parts = {"distinct": "DISTINCT " if distinct else "", "over": over}
        return Value(self.sql.format(*(value.sql for value in values), **parts), self.gives or values[0].type)


def _sums() -> tuple[Aggregate, ...]:
    whole = [
        Aggregate(((type_,),), Type.HUGEINT, f"sum({{distinct}}CAST({{0}} AS {wide})){{over}}")
        for type_, wide in _SUM_TYPES.items()
    ]
    other = [Aggregate(((t,),), t, "sum({distinct}{0}){over}") for t in (Type.DECIMAL, Type.DOUBLE)]
    return (*whole, *other)


def _averages() -> tuple[Aggregate, ...]:
    count = "nullif(count({distinct}{0}){over}, 0L)"
    whole = [
        Aggregate(
            ((type_,),),
            Type.DOUBLE,
            f"(CAST(sum({{distinct}}CAST({{0}} AS {wide})){{over}} AS DOUBLE) / {count})",
        )
        for type_, wide in _SUM_TYPES.items()
    ]
    decimal = Aggregate(((Type.DECIMAL,),), Type.DOUBLE, f"(CAST(sum({{distinct}}{{0}}){{over}} AS DOUBLE) / {count})")
    return (*whole, decimal, Aggregate(((Type.DOUBLE,),), Type.DOUBLE, "avg({distinct}{0}){over}"))


def _one(takes: tuple[Type, ...], gives: Type | None, sql: str) -> tuple[Aggregate, ...]:
    return (Aggregate((takes,), gives, sql),)


def _spread(name: str) -> tuple[Aggregate, ...]:
    return _one(_MEASURED, Type.DOUBLE, f"{name}(CAST({{0}} AS DOUBLE)){{over}}")


def _by(name: str) -> tuple[Aggregate, ...]:
    """DuckDB passes over rows where either is NULL."""
    sql = f"{name}({{0}}, CASE WHEN {{0}} IS NOT NULL THEN {{1}} END){{over}}"
    return (Aggregate((ORDERED, ORDERED), None, sql),)


_QUANTILE = (Aggregate((_MEASURED, (Type.DECIMAL, Type.DOUBLE)), Type.DOUBLE, "percentile({0}, {1}){over}", False),)
_COUNT = (
    Aggregate((), Type.BIGINT, "count(1){over}"),
    Aggregate((_ANY,), Type.BIGINT, "count({distinct}{0}){over}"),
)

AGGREGATES: dict[str, tuple[Aggregate, ...]] = {
    "count": _COUNT,
    "sum": _sums(),
    **dict.fromkeys(("avg", "mean"), _averages()),
    "min": _one(ORDERED, None, "min({distinct}{0}){over}"),
    "max": _one(ORDERED, None, "max({distinct}{0}){over}"),
    "bool_and": _one((Type.BOOLEAN,), Type.BOOLEAN, "bool_and({0}){over}"),
    "bool_or": _one((Type.BOOLEAN,), Type.BOOLEAN, "bool_or({0}){over}"),
    **dict.fromkeys(("count_if", "countif"), _one((Type.BOOLEAN,), Type.HUGEINT, "count_if({0}){over}")),
    **dict.fromkeys(("arg_max", "argmax", "max_by"), _by("max_by")),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), _by("min_by")),
    **dict.fromkeys(("stddev", "stddev_samp"), _spread("stddev_samp")),
    **dict.fromkeys(("variance", "var_samp"), _spread("var_samp")),
    "stddev_pop": _spread("stddev_pop"),
    "var_pop": _spread("var_pop"),
    "median": (Aggregate((_MEASURED,), Type.DOUBLE, "percentile({0}, 0.5){over}", False),),
    "quantile_cont": _QUANTILE,
}

# Only with OVER.
_NUMBERED = ("row_number", "rank", "dense_rank")
_SHARE = ("percent_rank", "cume_dist")
_INT = (Type.INTEGER,)
WINDOW_FUNCTIONS: dict[str, tuple[Aggregate, ...]] = {
    **{name: (Aggregate((), Type.BIGINT, f"CAST({name}(){{over}} AS BIGINT)"),) for name in _NUMBERED},
    **{name: (Aggregate((), Type.DOUBLE, f"{name}(){{over}}"),) for name in _SHARE},
    "ntile": _one(_INT, Type.BIGINT, "CAST(ntile({0}){over} AS BIGINT)"),
    **{
        name: (
            Aggregate((_ANY,), None, f"{name}({{0}}){{over}}"),
            Aggregate((_ANY, _INT), None, f"{name}({{0}}, {{1}}){{over}}"),
        )
        for name in ("lag", "lead")
    },
    "first_value": _one(_ANY, None, "first_value({0}){over}"),
    "last_value": _one(_ANY, None, "last_value({0}){over}"),
    "nth_value": (Aggregate((_ANY, _INT), None, "nth_value({0}, {1}){over}"),),
}
