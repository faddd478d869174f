"""Literals in the case of what they are compared with: ids are stored in lower case, severities in upper case.

Comes in: a resolved tree. Goes out: the same tree, in which `severity = 'error'` reads `severity = 'ERROR'`, so that
everything after it (pruning, both engines) compares without regard to case by comparing what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.sides import COMPARISONS, Side, sides
from lakerunner.lakeql.values import STORED_CASE, value_column

_WITH_A_TEXT = frozenset(
    ["contains", "ends_with", "instr", "nullif", "position", "prefix", "starts_with", "strpos", "suffix"]
)
_WITH_A_LIST = frozenset(["array_contains", "array_has", "list_contains", "list_has", "list_position"])
_FROM_HEX = frozenset({"from_hex", "unhex"})


def fold_literals(tree: exp.Query, resolution: Resolution) -> None:
    for node in list(tree.find_all(*COMPARISONS, exp.StartsWith, exp.Anonymous, exp.Intersect, exp.Except)):
        if isinstance(node.parent, exp.Escape) and node.parent.expression.name.isalpha():
            continue  # a letter of the pattern that is no letter
        for side, others in [*sides(node), *_arguments(node)]:
            column = value_column(side, resolution.found)
            fold = STORED_CASE.get(column.kind) if column else None
            for other in others if fold else ():
                literal = _literal(other)
                if fold and literal is not None:
                    literal.set("this", fold(literal.name))
                    if literal is not other:
                        other.replace(literal)


def _arguments(node: exp.Expr) -> Iterator[Side]:
    """What calls compare, an argument with a text or with the values of a list; and what INTERSECT and EXCEPT do."""
    if isinstance(node, exp.StartsWith):
        yield node.this, [node.expression]
    if isinstance(node, exp.Intersect | exp.Except):
        for left, right in zip(node.left.selects, node.right.selects, strict=False):
            yield left, [right.unalias()]
            yield right, [left.unalias()]
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
        return
    first, second = node.expressions
    if node.name.lower() in _WITH_A_TEXT:
        yield first, [second]
    elif node.name.lower() in _WITH_A_LIST and isinstance(first, exp.Array):
        yield second, list(first.expressions)


def _literal(node: exp.Expr) -> exp.Expr | None:
    """The text that is compared: a literal, cast to text or in parentheses, or the hexadecimal of some bytes."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _FROM_HEX and len(node.expressions) == 1:
        node = node.expressions[0]
    elif isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES)):
        node = node.this
    return node if node.is_string else None
