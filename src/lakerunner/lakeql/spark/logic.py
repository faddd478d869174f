"""Columns and literals, comparisons, and what is built of them with AND, OR and CASE, in Spark's text."""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import NULL, Type, Value, text
from lakerunner.lakeql.spark.writer import Writer, Writers

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}


def _column(w: Writer, node: exp.Column, scope: Scope) -> Value:
    found = scope.find(node)
    if found is None:
        raise w.refusals.not_available(f"column {node.sql('duckdb')}", node)
    return found


def _literal(_w: Writer, node: exp.Literal, _: Scope) -> Value:
    if node.is_string:
        return Value(text(node.name), Type.TEXT)
    digits = node.name.replace("_", "")
    if "e" in digits.lower():
        return Value(f"{digits}D", Type.DOUBLE)
    if "." in digits:
        return Value(f"{digits}BD", Type.DECIMAL)
    number = int(digits)
    if number < 1 << 31:
        return Value(digits, Type.INTEGER)
    return Value(f"{digits}L", Type.BIGINT) if number < 1 << 63 else Value(f"{digits}BD", Type.HUGEINT)


def _null(_w: Writer, _node: exp.Null, _: Scope) -> Value:
    return NULL


def _boolean(_w: Writer, node: exp.Boolean, _: Scope) -> Value:
    return Value("TRUE" if node.this else "FALSE", Type.BOOLEAN)


def _paren(w: Writer, node: exp.Expr, scope: Scope) -> Value:
    inner = w.value(node.this, scope)
    return Value(f"({inner.sql})", inner.type)


def _alias(w: Writer, node: exp.Alias, scope: Scope) -> Value:
    return w.value(node.this, scope)


def _connected(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    word = "AND" if isinstance(node, exp.And) else "OR"
    return Value(f"({w.condition(node.left, scope)} {word} {w.condition(node.right, scope)})", Type.BOOLEAN)


def _not(w: Writer, node: exp.Not, scope: Scope) -> Value:
    return Value(f"(NOT {w.condition(node.this, scope)})", Type.BOOLEAN)


def _comparison(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    return Value(w.compared(_COMPARISONS[type(node)], left, right, node), Type.BOOLEAN)


def _distinct_from(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    left, right = w.value(node.left, scope), w.value(node.right, scope)
    return Value(f"(NOT {w.compared('<=>', left, right, node)})", Type.BOOLEAN)


def _is(w: Writer, node: exp.Is, scope: Scope) -> Value:
    value, word = w.value(node.this, scope), "IS NOT" if node.args.get("negate") else "IS"
    if isinstance(node.expression, exp.Null):
        return Value(f"({value.sql} {word} NULL)", Type.BOOLEAN)
    if isinstance(node.expression, exp.Boolean) and value.type in (Type.BOOLEAN, Type.NULL):
        return Value(f"({value.sql} {word} {'TRUE' if node.expression.this else 'FALSE'})", Type.BOOLEAN)
    raise w.refused(node)


def _between(w: Writer, node: exp.Between, scope: Scope) -> Value:
    if node.args.get("symmetric"):
        raise w.refusals.not_available("BETWEEN SYMMETRIC", node)
    values = [w.value(part, scope) for part in (node.this, node.args["low"], node.args["high"])]
    it, low, high = w.alike(values, node)
    return Value(f"({it} BETWEEN {low} AND {high})", Type.BOOLEAN)


def _in(w: Writer, node: exp.In, scope: Scope) -> Value:
    value = w.value(node.this, scope)
    if query := node.args.get("query"):
        sql, types = w.subquery(query, scope)
        if types != [value.type]:
            raise w.refusals.not_available("IN with columns of other types", node, "cast to one type")
        return Value(f"({value.sql} IN ({sql}))", Type.BOOLEAN)
    if not node.expressions:
        raise w.refused(node)
    it, *others = w.alike([value, *(w.value(other, scope) for other in node.expressions)], node)
    return Value(f"({it} IN ({', '.join(others)}))", Type.BOOLEAN)


def _exists(w: Writer, node: exp.Exists, scope: Scope) -> Value:
    return Value(f"EXISTS ({w.subquery(node.this, scope)[0]})", Type.BOOLEAN)


def _scalar(w: Writer, node: exp.Expr, scope: Scope) -> Value:
    sql, types = w.subquery(node, scope)
    if len(types) != 1:
        raise w.refusals.not_available("a subquery of several columns here", node)
    return Value(f"({sql})", types[0])


def _like(w: Writer, node: exp.Binary, scope: Scope) -> Value:
    value, pattern = w.value(node.this, scope), node.expression
    if value.type is not Type.TEXT or not pattern.is_string:
        raise w.refusals.not_available("LIKE without a literal pattern", node)
    signs = pattern.name.replace("\\", "\\\\")  # DuckDB's LIKE escapes with nothing, Spark's with a backslash
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    if isinstance(node, exp.Like):
        return Value(f"({value.sql} {word} {text(signs)})", Type.BOOLEAN)
    if not signs.isascii():
        raise w.refusals.not_available("ILIKE with letters beyond ASCII", node, "use lower(...) LIKE")
    return Value(f"(lakerunner_lower({value.sql}) {word} {text(signs.lower())})", Type.BOOLEAN)


def _case(w: Writer, node: exp.Case, scope: Scope) -> Value:
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
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Alias: _alias,
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _not,
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.NullSafeNEQ: _distinct_from,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Subquery: _scalar,
    exp.Select: _scalar,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Case: _case,
}
