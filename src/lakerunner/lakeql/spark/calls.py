"""Casts, and calls of the functions of a row, in Spark's text."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from lakerunner.lakeql.spark.aggregates import AGGREGATES, WINDOW_FUNCTIONS
from lakerunner.lakeql.spark.casts import cast, target
from lakerunner.lakeql.spark.functions import FUNCTIONS, bucketed, concatenated, part_signature, truncated
from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import Type, Value, text
from lakerunner.lakeql.spark.windows import aggregate
from lakerunner.lakeql.spark.writer import Writer, Writers
from lakerunner.model.time import MAX_NS


def _cast(w: Writer, node: exp.Cast, scope: Scope) -> Value:
    if node.this.is_string and target(node) in (Type.TIME, Type.TIMESTAMP, Type.DATE):
        return _constant_time(w, node)
    value = w.value(node.this, scope)
    made = cast(value, node)
    if made is None:
        what = f"a cast from {value.type.value} to {node.to.sql('duckdb')}"
        raise w.refusals.not_available(what, node)
    return made


def _constant_time(w: Writer, node: exp.Cast) -> Value:
    to, said = target(node), node.this.name
    if to is Type.TIME and said in ("infinity", "-infinity"):
        return Value(f"{'-' if said[0] == '-' else ''}{MAX_NS}L", Type.TIME)
    time = w.constants.time(node)
    if time is None or isinstance(node, exp.TryCast):
        raise w.refusals.not_available("a cast of this text to a time", node)
    if to is Type.TIME:
        return Value(f"{time.ns}L", Type.TIME)
    micros = Value(f"timestamp_micros({time.ns // 1000}L)", Type.TIMESTAMP)
    return micros if to is Type.TIMESTAMP else Value(f"CAST({micros.sql} AS DATE)", Type.DATE)


def _bracket(w: Writer, node: exp.Bracket, scope: Scope) -> Value:
    value = w.value(node.this, scope)
    if value.type is not Type.MAP or len(node.expressions) != 1 or not node.expressions[0].is_string:
        raise w.refusals.not_available("[...]", node)
    return Value(f"try_element_at({value.sql}, {text(node.expressions[0].name)})", Type.TEXT)


def _call(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    name = node.name.lower()
    if name in AGGREGATES or name in WINDOW_FUNCTIONS:
        return aggregate(w, node, scope, "")
    if name in _SPECIAL:
        write, fewest, most = _SPECIAL[name]
        if not fewest <= len(node.expressions) <= most:
            raise w.refusals.not_available(f"{name} of {len(node.expressions)} arguments", node)
        return write(w, node, scope)
    return _signed(w, name, node.expressions, node, scope)


def _signed(w: Writer, name: str, arguments: list[exp.Expr], node: exp.Expr, scope: Scope) -> Value:
    """A call by the signature that fits its arguments."""
    if name not in FUNCTIONS:
        raise w.refusals.not_available(f"function {name}", node)
    values = [w.value(argument, scope) for argument in arguments]
    for signature in FUNCTIONS[name]:
        if signature.fits(arguments, values):
            return signature.value(values)
    raise w.mismatched(name, values, node)


def _matched(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    """x ~ 'pattern' matches the whole of x."""
    sides = [node.this, node.expression]
    return _signed(w, "regexp_full_match", sides, node, scope)


def _substring(w: Writer, node: exp.Substring, scope: Scope) -> Value:
    arguments = [part for part in (node.this, node.args.get("start"), node.args.get("length")) if part]
    return _signed(w, "substring", arguments, node, scope)


def _chosen(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    """coalesce, greatest, least: one of the arguments."""
    values = [w.value(argument, scope) for argument in node.expressions]
    name = {"ifnull": "coalesce"}.get(node.name.lower(), node.name.lower())
    alike = w.alike(values, node)
    return Value(f"{name}({', '.join(alike)})" if len(alike) > 1 else alike[0], w.one_type(values))


def _nullif(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    one, other = (w.value(argument, scope) for argument in node.expressions)
    return Value(f"(CASE WHEN {w.compared('=', one, other, node)} THEN NULL ELSE {one.sql} END)", one.type)


def _if(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    test, *results = node.expressions
    values = [w.value(result, scope) for result in results]
    yes, no = w.alike(values, node)
    return Value(f"(CASE WHEN {w.condition(test, scope)} THEN {yes} ELSE {no} END)", w.one_type(values))


def _concat(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    values = [w.value(argument, scope) for argument in node.expressions]
    made = concatenated(values)
    if made is None:
        raise w.mismatched("concat", values, node)
    return made


def _date_part(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    part, of = node.expressions
    signature = part_signature(part.name.lower()) if part.is_string else None
    value = w.value(of, scope)
    if signature is None or not signature.fits([of], [value]):
        raise w.refusals.not_available(f"date_part {part.sql()} of {value.type.value}", node)
    return signature.value([value])


def _date_trunc(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    unit, of = node.expressions
    value = w.value(of, scope)
    made = truncated(unit.name.lower(), value) if unit.is_string else None
    if made is None:
        raise w.refusals.not_available(f"date_trunc {unit.sql()} of {value.type.value}", node)
    return made


def _time_bucket(w: Writer, node: exp.Anonymous, scope: Scope) -> Value:
    width = w.constants.interval(node.expressions[0])
    value = w.value(node.expressions[1], scope)
    if not width or width.months or value.type is not Type.TIMESTAMP:
        raise w.refusals.not_available("time_bucket as it stands here", node, "give days or less, and a time")
    size = width.days * 86_400_000_000 + width.ns // 1000
    if size <= 0:
        raise w.refusals.not_available("a bucket of no width", node)
    return bucketed(size, value)


# With the fewest and the most arguments that each takes.
_SPECIAL: dict[str, tuple[Callable[[Writer, exp.Anonymous, Scope], Value], int, int]] = {
    **dict.fromkeys(("coalesce", "greatest", "least"), (_chosen, 1, 1000)),
    "ifnull": (_chosen, 2, 2),
    "nullif": (_nullif, 2, 2),
    "if": (_if, 3, 3),
    "concat": (_concat, 1, 1000),
    **dict.fromkeys(("date_part", "datepart"), (_date_part, 2, 2)),
    **dict.fromkeys(("date_trunc", "datetrunc"), (_date_trunc, 2, 2)),
    "time_bucket": (_time_bucket, 2, 2),
}
CALLS: Writers = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Bracket: _bracket,
    exp.Anonymous: _call,
    exp.RegexpLike: _matched,
    exp.Substring: _substring,
}
