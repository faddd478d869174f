"""The sides of a comparison: what could be a column, each with what it is compared to.

Rows are compared part by part, and lists value by value: `(a, b) IN ((1, 2), (3, 4))` compares a with 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
PATTERNS = (exp.Like, exp.ILike)
COMPARISONS = (*EQUALITIES, *PATTERNS, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Case)
Side = tuple[exp.Expr, list[exp.Expr]]


def sides(node: exp.Expr) -> Iterator[Side]:
    match node:
        case exp.Between():
            yield from _parts(node.this, [node.args["low"], node.args["high"]])
        case exp.In():
            yield from _parts(node.this, list(node.expressions))
            for one in filter(None, [*node.expressions, node.args.get("query")]):
                yield one, [node.this]
        case exp.Case() if node.this:
            yield node.this, [branch.this for branch in node.args["ifs"]]
        case exp.Binary():
            yield from _parts(node.left, [node.right])
            yield from _parts(node.right, [node.left])


def _parts(side: exp.Expr, others: list[exp.Expr]) -> Iterator[Side]:
    values = [value for other in others for value in _values(other)]
    side = side.this if isinstance(side, exp.Any | exp.All) else side
    if not isinstance(side, exp.Tuple):
        yield side, values
        return
    rows = [value.expressions for value in values if isinstance(value, exp.Tuple)]
    for n, part in enumerate(side.expressions):
        yield part, [row[n] for row in rows if n < len(row)]


def _values(node: exp.Expr) -> list[exp.Expr]:
    """The values of a list behind ANY or ALL, else the node itself."""
    if not isinstance(node, exp.Any | exp.All):
        return [node]
    listed = node.this.unnest()
    return list(listed.expressions) if isinstance(listed, exp.Array | exp.Tuple) else [node]
