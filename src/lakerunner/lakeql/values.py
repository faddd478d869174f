"""Whose values an expression gives, where they are a table's column's unchanged: `l.timestamp`, `max(timestamp)`.

That is how the rules for times, ids and the organization follow a column through functions that only choose among
values, and through subqueries.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.scope import Found
from lakerunner.lakeql.tables import LOGS_TABLE, Kind, TableColumn

Lookup = Callable[[exp.Column], Found]

_FIRST = """
any_value arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin first first_value lag last last_value lead
max max_by median min min_by mode nth_value nullif quantile_disc
"""
_CHOOSE_FIRST = frozenset(_FIRST.split())
_CHOOSE_ANY = frozenset({"coalesce", "greatest", "if", "ifnull", "least"})
_WRAPPERS = (exp.Paren, exp.Alias, exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_A_TIME = LOGS_TABLE.columns[0]


def value_column(node: exp.Expr, lookup: Lookup) -> TableColumn | None:
    match node:
        case exp.Column():
            return lookup(node).column
        case exp.Anonymous():
            return _chosen(node.name.lower(), node.expressions, lookup)
        case exp.Case():
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return _one_time([*results, *filter(None, [node.args.get("default")])], lookup)
        case exp.Cast() if node.to.this == DType.TIMESTAMP_NS:
            return _A_TIME
    return value_column(node.this, lookup) if isinstance(node, _WRAPPERS) else None


def is_time(node: exp.Expr, lookup: Lookup) -> bool:
    """Whether this is a TIMESTAMP_NS, as far as one can tell."""
    column = value_column(node, lookup)
    return column is not None and column.kind is Kind.TIME


def _chosen(name: str, arguments: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    if name == "make_timestamp_ns":
        return _A_TIME
    if name in _CHOOSE_FIRST and arguments:
        inner = arguments[0]
        return value_column(inner.this if isinstance(inner, exp.Order) else inner, lookup)
    return _one_time(arguments, lookup) if name in _CHOOSE_ANY else None


def _one_time(nodes: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    """One TIMESTAMP_NS among the choices makes the value a TIMESTAMP_NS."""
    return _A_TIME if any(is_time(node, lookup) for node in nodes) else None
