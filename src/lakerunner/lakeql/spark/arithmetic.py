"""Numbers, times moved by intervals, and texts put together, in Spark's text."""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.constants import Interval, integer
from lakerunner.lakeql.spark.functions import divided, is_number
from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import Type, Value, common
from lakerunner.lakeql.spark.writer import Writer, Writers

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _arithmetic(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    moved = _moved(w, node, scope)
    if moved:
        return moved
    left, right = _numbers(w, node, scope)
    both = common([left.type, right.type]) or Type.NULL
    return Value(f"({left.sql} {_ARITHMETIC[type(node)]} {right.sql})", both)


def _numbers(w: Writer, node: exp.Binary, scope: Scope) -> tuple[Value, Value]:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    for side, value in ((node.left, left), (node.right, right)):
        if not is_number(value):
            raise w.refusals.not_available(f"reckoning with {value.type.value}", side, "cast it to BIGINT")
    return left, right


def _moved(w: Writer, node: exp.Binary, scope: Scope) -> Value | None:
    """A time plus or minus an interval, a date plus or minus days."""
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    sides = [(node.left, node.right)] + ([(node.right, node.left)] if isinstance(node, exp.Add) else [])
    sign = -1 if isinstance(node, exp.Sub) else 1
    for it, by in sides:
        interval = w.constants.interval(by)
        if interval:
            value = w.value(it, scope)
            if value.type in (Type.TIMESTAMP, Type.DATE):
                return Value(f"(CAST({value.sql} AS TIMESTAMP) + {_interval(interval * sign)})", Type.TIMESTAMP)
            raise w.refusals.not_available(f"{value.type.value} with an interval", node)
    return None


def _divided(w: Writer, node: exp.Div, scope: Scope) -> Value:
    return divided(*_numbers(w, node, scope))


def _whole(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    left, right = _numbers(w, node, scope)
    both = common([left.type, right.type])
    if both not in (Type.INTEGER, Type.BIGINT):
        raise w.refused(node, "cast both sides to BIGINT")
    word = "DIV" if isinstance(node, exp.IntDiv) else "%"
    return Value(f"({left.sql} {word} {right.sql})", Type.BIGINT if word == "DIV" else both)


def _negative(w: Writer, node: exp.Neg, scope: Scope) -> Value:
    value = w.value(node.this, scope)
    if not is_number(value):
        raise w.refusals.not_available(f"reckoning with {value.type.value}", node)
    if integer(node) == -(1 << 63):
        return Value("(-9223372036854775808)", Type.BIGINT)
    return Value(f"(-{value.sql})", value.type)


def _joined(w: Writer, node: exp.DPipe, scope: Scope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    if {left.type, right.type} - {Type.TEXT, Type.NULL}:
        raise w.refusals.not_available("|| of other values than texts", node, "cast them to VARCHAR")
    return Value(f"({left.sql} || {right.sql})", Type.TEXT)


def _interval(interval: Interval) -> str:
    """Months, then days, then the rest: both engines add them in this order."""
    seconds, rest = divmod(abs(interval.ns), 1_000_000_000)
    sign = "-" if interval.ns < 0 else ""
    return f"make_interval(0, {interval.months}, 0, {interval.days}, 0, 0, {sign}{seconds}.{rest // 1000:06}BD)"


ARITHMETIC: Writers = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Div: _divided,
    exp.IntDiv: _whole,
    exp.Mod: _whole,
    exp.Neg: _negative,
    exp.DPipe: _joined,
}
