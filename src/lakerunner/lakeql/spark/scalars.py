"""Literals, comparisons, logic, arithmetic and concatenation, in Spark's SQL."""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.constants import Interval, read_integer
from lakerunner.lakeql.spark.values import NULL, NUMBERS, Type, Value, common_type, text_literal
from lakerunner.lakeql.spark.writer import SparkScope, Writer, Writers

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}


def _column(w: Writer, node: exp.Column, scope: SparkScope) -> Value:
    found = scope.find(node)
    if found is None:
        raise w.not_available(f"column {node.sql('duckdb')}", node)
    return found


def _literal(_w: Writer, node: exp.Literal, _: SparkScope) -> Value:
    if node.is_string:
        return Value(text_literal(node.name), Type.TEXT)
    digits = node.name.replace("_", "")
    if "e" in digits.lower():
        return Value(f"{digits}D", Type.DOUBLE)
    if "." in digits:
        return Value(f"{digits}BD", Type.DECIMAL)
    number = int(digits)
    if number < 1 << 31:
        return Value(digits, Type.INTEGER)
    return Value(f"{digits}L", Type.BIGINT) if number < 1 << 63 else Value(f"{digits}BD", Type.HUGEINT)


def _paren(w: Writer, node: exp.Expr, scope: SparkScope) -> Value:
    inner = w.value(node.this, scope)
    return Value(f"({inner.sql})", inner.type)


def _connected(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    word = "AND" if isinstance(node, exp.And) else "OR"
    return Value(f"({w.condition(node.left, scope)} {word} {w.condition(node.right, scope)})", Type.BOOLEAN)


def _comparison(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    return Value(w.compared(_COMPARISONS[type(node)], left, right, node), Type.BOOLEAN)


def _distinct_from(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    return Value(f"(NOT {w.compared('<=>', left, right, node)})", Type.BOOLEAN)


def _is(w: Writer, node: exp.Is, scope: SparkScope) -> Value:
    value, word = w.value(node.this, scope), "IS NOT" if node.args.get("negate") else "IS"
    if isinstance(node.expression, exp.Null):
        return Value(f"({value.sql} {word} NULL)", Type.BOOLEAN)
    if isinstance(node.expression, exp.Boolean) and value.type in (Type.BOOLEAN, Type.NULL):
        return Value(f"({value.sql} {word} {'TRUE' if node.expression.this else 'FALSE'})", Type.BOOLEAN)
    raise w.refused(node)


def _between(w: Writer, node: exp.Between, scope: SparkScope) -> Value:
    if node.args.get("symmetric"):
        raise w.not_available("BETWEEN SYMMETRIC", node)
    values = [w.value(part, scope) for part in (node.this, node.args["low"], node.args["high"])]
    it, low, high = w.alike(values, node)
    return Value(f"({it} BETWEEN {low} AND {high})", Type.BOOLEAN)


def _in(w: Writer, node: exp.In, scope: SparkScope) -> Value:
    value = w.value(node.this, scope)
    if query := node.args.get("query"):
        sql, types = w.subquery(query, scope)
        if types != [value.type]:
            raise w.not_available("IN with columns of other types", node, "cast to one type")
        return Value(f"({value.sql} IN ({sql}))", Type.BOOLEAN)
    if not node.expressions:
        raise w.refused(node)
    it, *others = w.alike([value, *(w.value(other, scope) for other in node.expressions)], node)
    return Value(f"({it} IN ({', '.join(others)}))", Type.BOOLEAN)


def _scalar(w: Writer, node: exp.Expr, scope: SparkScope) -> Value:
    sql, types = w.subquery(node, scope)
    if len(types) != 1:
        raise w.not_available("a subquery of several columns here", node)
    return Value(f"({sql})", types[0])


def _like(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    value, pattern = w.value(node.this, scope), node.expression
    if value.type is not Type.TEXT or not pattern.is_string:
        raise w.not_available("LIKE without a literal pattern", node)
    signs = pattern.name.replace("\\", "\\\\")  # DuckDB's LIKE escapes with nothing, Spark's with a backslash
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    if isinstance(node, exp.Like):
        return Value(f"({value.sql} {word} {text_literal(signs)})", Type.BOOLEAN)
    if not signs.isascii():
        raise w.not_available("ILIKE with letters beyond ASCII", node, "use lower(...) LIKE")
    return Value(f"(lakerunner_lower({value.sql}) {word} {text_literal(signs.lower())})", Type.BOOLEAN)


def _case(w: Writer, node: exp.Case, scope: SparkScope) -> Value:
    branches = node.args["ifs"]
    otherwise = node.args.get("default")
    results = [w.value(branch.args["true"], scope) for branch in branches]
    results.append(w.value(otherwise, scope) if otherwise else NULL)
    texts = w.alike(results, node)
    whens = []
    for branch, result in zip(branches, texts, strict=False):
        if node.this:
            it, other = w.value(node.this, scope), w.value(branch.this, scope)
            condition = w.compared("=", it, other, branch)
        else:
            condition = w.condition(branch.this, scope)
        whens.append(f"WHEN {condition} THEN {result}")
    return Value(f"(CASE {' '.join(whens)} ELSE {texts[-1]} END)", w.one_type(results))


LOGIC: Writers = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: lambda _w, _node, _scope: NULL,
    exp.Boolean: lambda _w, node, _scope: Value("TRUE" if node.this else "FALSE", Type.BOOLEAN),
    exp.Paren: _paren,
    exp.Alias: lambda w, node, scope: w.value(node.this, scope),
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: lambda w, node, scope: Value(f"(NOT {w.condition(node.this, scope)})", Type.BOOLEAN),
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.NullSafeNEQ: _distinct_from,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: lambda w, node, scope: Value(f"EXISTS ({w.subquery(node.this, scope)[0]})", Type.BOOLEAN),
    exp.Subquery: _scalar,
    exp.Select: _scalar,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Case: _case,
}


# ---- arithmetic

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _arithmetic(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    moved = _add_interval(w, node, scope)
    if moved:
        return moved
    left, right = _numbers(w, node, scope)
    both = common_type([left.type, right.type]) or Type.NULL
    return Value(f"({left.sql} {_ARITHMETIC[type(node)]} {right.sql})", both)


def _is_number(value: Value) -> bool:
    """Whether arithmetic is allowed: with unsigned numbers Spark would not overflow where DuckDB does."""
    return value.type in NUMBERS and value.type is not Type.UNSIGNED


def _numbers(w: Writer, node: exp.Binary, scope: SparkScope) -> tuple[Value, Value]:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    for side, value in ((node.left, left), (node.right, right)):
        if not _is_number(value):
            raise w.not_available(f"arithmetic with {value.type.value}", side, "cast it to BIGINT")
    return left, right


def _add_interval(w: Writer, node: exp.Binary, scope: SparkScope) -> Value | None:
    """Write a time plus or minus an interval, or a date plus or minus days; None for anything else."""
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
            raise w.not_available(f"{value.type.value} with an interval", node)
    return None


def _divide(w: Writer, node: exp.Div, scope: SparkScope) -> Value:
    """Write a division of doubles. Spark would fail on division by zero, so that case is a power, which keeps the sign
    of zero."""
    one, other = (f"CAST({side.sql} AS DOUBLE)" for side in _numbers(w, node, scope))
    sql = f"(CASE WHEN {other} = 0D THEN {one} * power({other}, -1D) ELSE {one} / {other} END)"
    return Value(sql, Type.DOUBLE)


def _divide_integers(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    left, right = _numbers(w, node, scope)
    both = common_type([left.type, right.type])
    if both not in (Type.INTEGER, Type.BIGINT):
        raise w.refused(node, "cast both sides to BIGINT")
    word = "DIV" if isinstance(node, exp.IntDiv) else "%"
    return Value(f"({left.sql} {word} {right.sql})", Type.BIGINT if word == "DIV" else both)


def _negate(w: Writer, node: exp.Neg, scope: SparkScope) -> Value:
    value = w.value(node.this, scope)
    if not _is_number(value):
        raise w.not_available(f"arithmetic with {value.type.value}", node)
    if read_integer(node) == -(1 << 63):
        return Value("(-9223372036854775808)", Type.BIGINT)
    return Value(f"(-{value.sql})", value.type)


def _concatenate(w: Writer, node: exp.DPipe, scope: SparkScope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    if {left.type, right.type} - {Type.TEXT, Type.NULL}:
        raise w.not_available("|| of other values than texts", node, "cast them to VARCHAR")
    return Value(f"({left.sql} || {right.sql})", Type.TEXT)


def _interval(interval: Interval) -> str:
    """Write an interval: months, then days, then the rest, because both engines add them in this order."""
    seconds, rest = divmod(abs(interval.ns), 1_000_000_000)
    sign = "-" if interval.ns < 0 else ""
    return f"make_interval(0, {interval.months}, 0, {interval.days}, 0, 0, {sign}{seconds}.{rest // 1000:06}BD)"


ARITHMETIC: Writers = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Div: _divide,
    exp.IntDiv: _divide_integers,
    exp.Mod: _divide_integers,
    exp.Neg: _negate,
    exp.DPipe: _concatenate,
}
