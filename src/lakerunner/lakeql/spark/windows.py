"""Calls of aggregates and window functions, with FILTER and OVER, in Spark's text."""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.constants import integer
from lakerunner.lakeql.spark.aggregates import AGGREGATES, WINDOW_FUNCTIONS, Aggregate
from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import ORDERED, Value
from lakerunner.lakeql.spark.writer import Writer, Writers

_SIDES = {"PRECEDING", "FOLLOWING"}


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate stands in it: then it is no key of GROUP BY ALL."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
            return True
        if not isinstance(node, exp.Window | exp.Query):
            pending += node.iter_expressions()
    return False


def direction(node: exp.Expr) -> str:
    """DuckDB puts NULLs last in both directions unless told otherwise."""
    way = "DESC" if node.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"


def _ordered(w: Writer, node: exp.Expr, scope: Scope) -> str:
    """One item of ORDER BY: where DuckDB puts NULLs is written out."""
    value = w.value(node.this, scope)
    if value.type not in ORDERED:
        raise w.refusals.not_available(f"ORDER BY {value.type.value}", node)
    return value.sql + direction(node)


def _filter(w: Writer, node: exp.Filter, scope: Scope) -> Value:
    condition = w.condition(node.expression.this, scope)
    if not (isinstance(node.this, exp.Anonymous) and node.this.name.lower() in AGGREGATES):
        raise w.refused(node)
    return aggregate(w, node.this, scope, f" FILTER (WHERE {condition})")


def _window(w: Writer, node: exp.Window, scope: Scope) -> Value:
    call = node.this
    if not isinstance(call, exp.Anonymous) or node.args.get("alias"):
        raise w.refusals.not_available("this OVER", node)
    name = call.name.lower()
    if name in AGGREGATES and not all(one.windowed for one in AGGREGATES[name]):
        raise w.refusals.not_available(f"{name} with OVER", node)
    if name in WINDOW_FUNCTIONS and not node.args.get("order"):
        raise w.refusals.not_available(f"{name} without ORDER BY", node)
    return aggregate(w, call, scope, f" OVER ({_frame(w, node, scope)})")


def aggregate(w: Writer, node: exp.Anonymous, scope: Scope, over: str) -> Value:
    name, arguments = node.name.lower(), node.expressions
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    known: tuple[Aggregate, ...] = AGGREGATES.get(name) or (WINDOW_FUNCTIONS.get(name, ()) if "OVER" in over else ())
    values = [w.value(argument, scope) for argument in arguments]
    for aggregate in known:
        made = aggregate.value(values, distinct, over)
        if made:
            return made
    if not known:
        raise w.refusals.not_available(f"function {name} without OVER", node)
    raise w.mismatched(name, values, node)


def _frame(w: Writer, node: exp.Window, scope: Scope) -> str:
    keys = [w.value(key, scope) for key in node.args.get("partition_by") or ()]
    for key in keys:
        if key.type not in ORDERED:
            raise w.refusals.not_available(f"PARTITION BY {key.type.value}", node)
    parts = ["PARTITION BY " + ", ".join(key.sql for key in keys)] if keys else []
    if order := node.args.get("order"):
        parts.append("ORDER BY " + ", ".join(_ordered(w, item, scope) for item in order.expressions))
    if spec := node.args.get("spec"):
        parts.append(_spec(w, spec))
    return " ".join(parts)


def _spec(w: Writer, spec: exp.WindowSpec) -> str:
    kind = str(spec.args.get("kind")).upper()
    bounds = [_bound(spec, side, kind) for side in ("start", "end")]
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") or None in bounds:
        raise w.refusals.not_available("this frame of a window", spec)
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound(spec: exp.WindowSpec, side: str, kind: str) -> str | None:
    bound, way = spec.args.get(side), spec.args.get(f"{side}_side")
    if bound == "CURRENT ROW" or (bound is None and side == "end"):
        return "CURRENT ROW"
    if str(way) not in _SIDES:
        return None
    if bound == "UNBOUNDED":
        return f"UNBOUNDED {way}"
    number = integer(bound) if isinstance(bound, exp.Expr) else None
    return f"{number} {way}" if kind == "ROWS" and number is not None else None


WINDOWS: Writers = {exp.Filter: _filter, exp.Window: _window}
