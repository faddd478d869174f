"""Aggregates and window functions that mean the same to Spark as to DuckDB, with FILTER and OVER, in Spark's SQL.

In a template `{over}` is what follows each call: a FILTER, or a window. Sums and averages of integers are computed in
decimals, so that they are exact as DuckDB's are.
"""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.constants import read_integer
from lakerunner.lakeql.spark.values import ORDERED, Signature, Type, Value, of_one
from lakerunner.lakeql.spark.writer import SparkScope, Writer, Writers

_SUM_TYPES = {
    Type.INTEGER: "DECIMAL(20, 0)",
    Type.BIGINT: "DECIMAL(20, 0)",
    Type.UNSIGNED: "DECIMAL(20, 0)",
    Type.HUGEINT: "DECIMAL(38, 0)",
}
_MEASURED = (Type.INTEGER, Type.BIGINT, Type.DOUBLE)
_ANY = tuple(Type)


def _sums() -> tuple[Signature, ...]:
    whole = [
        Signature(((type_,),), Type.HUGEINT, f"sum({{distinct}}CAST({{0}} AS {wide})){{over}}")
        for type_, wide in _SUM_TYPES.items()
    ]
    other = [Signature(((t,),), t, "sum({distinct}{0}){over}") for t in (Type.DECIMAL, Type.DOUBLE)]
    return (*whole, *other)


def _averages() -> tuple[Signature, ...]:
    count = "nullif(count({distinct}{0}){over}, 0L)"
    whole = [
        Signature(
            ((type_,),),
            Type.DOUBLE,
            f"(CAST(sum({{distinct}}CAST({{0}} AS {wide})){{over}} AS DOUBLE) / {count})",
        )
        for type_, wide in _SUM_TYPES.items()
    ]
    decimal = Signature(((Type.DECIMAL,),), Type.DOUBLE, f"(CAST(sum({{distinct}}{{0}}){{over}} AS DOUBLE) / {count})")
    return (*whole, decimal, Signature(((Type.DOUBLE,),), Type.DOUBLE, "avg({distinct}{0}){over}"))


def _spread(name: str) -> tuple[Signature, ...]:
    return of_one(_MEASURED, Type.DOUBLE, f"{name}(CAST({{0}} AS DOUBLE)){{over}}")


def _by(name: str) -> tuple[Signature, ...]:
    """Return max_by or min_by. DuckDB skips rows where either argument is NULL."""
    sql = f"{name}({{0}}, CASE WHEN {{0}} IS NOT NULL THEN {{1}} END){{over}}"
    return (Signature((ORDERED, ORDERED), None, sql),)


_QUANTILE = (Signature((_MEASURED, (Type.DECIMAL, Type.DOUBLE)), Type.DOUBLE, "percentile({0}, {1}){over}", False),)
_COUNT = (
    Signature((), Type.BIGINT, "count(1){over}"),
    Signature((_ANY,), Type.BIGINT, "count({distinct}{0}){over}"),
)

AGGREGATES: dict[str, tuple[Signature, ...]] = {
    "count": _COUNT,
    "sum": _sums(),
    **dict.fromkeys(("avg", "mean"), _averages()),
    "min": of_one(ORDERED, None, "min({distinct}{0}){over}"),
    "max": of_one(ORDERED, None, "max({distinct}{0}){over}"),
    "bool_and": of_one((Type.BOOLEAN,), Type.BOOLEAN, "bool_and({0}){over}"),
    "bool_or": of_one((Type.BOOLEAN,), Type.BOOLEAN, "bool_or({0}){over}"),
    **dict.fromkeys(("count_if", "countif"), of_one((Type.BOOLEAN,), Type.HUGEINT, "count_if({0}){over}")),
    **dict.fromkeys(("arg_max", "argmax", "max_by"), _by("max_by")),
    **dict.fromkeys(("arg_min", "argmin", "min_by"), _by("min_by")),
    **dict.fromkeys(("stddev", "stddev_samp"), _spread("stddev_samp")),
    **dict.fromkeys(("variance", "var_samp"), _spread("var_samp")),
    "stddev_pop": _spread("stddev_pop"),
    "var_pop": _spread("var_pop"),
    "median": (Signature((_MEASURED,), Type.DOUBLE, "percentile({0}, 0.5){over}", False),),
    "quantile_cont": _QUANTILE,
}

# Only with OVER.
_NUMBERED = ("row_number", "rank", "dense_rank")
_SHARE = ("percent_rank", "cume_dist")
_INT = (Type.INTEGER,)
WINDOW_FUNCTIONS: dict[str, tuple[Signature, ...]] = {
    **{name: (Signature((), Type.BIGINT, f"CAST({name}(){{over}} AS BIGINT)"),) for name in _NUMBERED},
    **{name: (Signature((), Type.DOUBLE, f"{name}(){{over}}"),) for name in _SHARE},
    "ntile": of_one(_INT, Type.BIGINT, "CAST(ntile({0}){over} AS BIGINT)"),
    **{
        name: (
            Signature((_ANY,), None, f"{name}({{0}}){{over}}"),
            Signature((_ANY, _INT), None, f"{name}({{0}}, {{1}}){{over}}"),
        )
        for name in ("lag", "lead")
    },
    "first_value": of_one(_ANY, None, "first_value({0}){over}"),
    "last_value": of_one(_ANY, None, "last_value({0}){over}"),
    "nth_value": (Signature((_ANY, _INT), None, "nth_value({0}, {1}){over}"),),
}


# ---- calls

_SIDES = {"PRECEDING", "FOLLOWING"}


def has_aggregate(node: exp.Expr) -> bool:
    """Whether it contains an aggregate: then it is not a key of GROUP BY ALL."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
            return True
        if not isinstance(node, exp.Window | exp.Query):
            pending += node.iter_expressions()
    return False


def direction(node: exp.Expr) -> str:
    """Return the direction of an ORDER BY item. DuckDB puts NULLs last in both directions by default."""
    way = "DESC" if node.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"


def _order_item(w: Writer, node: exp.Expr, scope: SparkScope) -> str:
    """Write one item of ORDER BY, with the place of NULLs as DuckDB has it."""
    value = w.value(node.this, scope)
    if value.type not in ORDERED:
        raise w.not_available(f"ORDER BY {value.type.value}", node)
    return value.sql + direction(node)


def _filter(w: Writer, node: exp.Filter, scope: SparkScope) -> Value:
    condition = w.condition(node.expression.this, scope)
    if not (isinstance(node.this, exp.Anonymous) and node.this.name.lower() in AGGREGATES):
        raise w.refused(node)
    return write_aggregate(w, node.this, scope, f" FILTER (WHERE {condition})")


def _window(w: Writer, node: exp.Window, scope: SparkScope) -> Value:
    call = node.this
    if not isinstance(call, exp.Anonymous) or node.args.get("alias"):
        raise w.not_available("this OVER", node)
    name = call.name.lower()
    if name in AGGREGATES and not all(one.windowed for one in AGGREGATES[name]):
        raise w.not_available(f"{name} with OVER", node)
    if name in WINDOW_FUNCTIONS and not node.args.get("order"):
        raise w.not_available(f"{name} without ORDER BY", node)
    return write_aggregate(w, call, scope, f" OVER ({_frame(w, node, scope)})")


def write_aggregate(w: Writer, node: exp.Anonymous, scope: SparkScope, over: str) -> Value:
    name, arguments = node.name.lower(), node.expressions
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    known: tuple[Signature, ...] = AGGREGATES.get(name) or (WINDOW_FUNCTIONS.get(name, ()) if "OVER" in over else ())
    values = [w.value(argument, scope) for argument in arguments]
    for one in known:
        if one.fits(arguments, values) and (not distinct or "{distinct}" in one.sql):
            return one.value(values, distinct="DISTINCT " if distinct else "", over=over)
    if not known:
        raise w.not_available(f"function {name} without OVER", node)
    raise w.mismatched(name, values, node)


def _frame(w: Writer, node: exp.Window, scope: SparkScope) -> str:
    keys = [w.value(key, scope) for key in node.args.get("partition_by") or ()]
    for key in keys:
        if key.type not in ORDERED:
            raise w.not_available(f"PARTITION BY {key.type.value}", node)
    parts = ["PARTITION BY " + ", ".join(key.sql for key in keys)] if keys else []
    if order := node.args.get("order"):
        parts.append("ORDER BY " + ", ".join(_order_item(w, item, scope) for item in order.expressions))
    if spec := node.args.get("spec"):
        parts.append(_spec(w, spec))
    return " ".join(parts)


def _spec(w: Writer, spec: exp.WindowSpec) -> str:
    kind = str(spec.args.get("kind")).upper()
    bounds = [_bound(spec, side, kind) for side in ("start", "end")]
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") or None in bounds:
        raise w.not_available("this frame of a window", spec)
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound(spec: exp.WindowSpec, side: str, kind: str) -> str | None:
    bound, way = spec.args.get(side), spec.args.get(f"{side}_side")
    if bound == "CURRENT ROW" or (bound is None and side == "end"):
        return "CURRENT ROW"
    if str(way) not in _SIDES:
        return None
    if bound == "UNBOUNDED":
        return f"UNBOUNDED {way}"
    number = read_integer(bound) if isinstance(bound, exp.Expr) else None
    return f"{number} {way}" if kind == "ROWS" and number is not None else None


WINDOWS: Writers = {exp.Filter: _filter, exp.Window: _window}
