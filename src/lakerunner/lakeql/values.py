"""Whose values an expression gives, where they are a table's column's unchanged: `l.timestamp`, `max(timestamp)`.

That is how the rules for times, ids and the organization follow a column through functions that only choose among
values, through subqueries, and into the items of `events`, `links` and `exemplars`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
_CHOOSE_ITEM = frozenset(["array_extract", "list_element", "list_extract", "list_first", "list_last", "unnest"])
_CHOOSE_ITEMS = frozenset(["array_filter", "array_slice", "list_filter", "list_slice"])
# How a value that is compared without regard to case is stored.
STORED_CASE: dict[Kind, Callable[[str], str]] = {
    Kind.ID: str.lower,
    Kind.HEX: str.lower,
    Kind.SEVERITY: str.upper,
}
_WRAPPERS = (exp.Paren, exp.Alias, exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_A_TIME = LOGS_TABLE.columns[0]


def value_column(node: exp.Expr, lookup: Lookup) -> TableColumn | None:
    match node:
        case exp.Column():
            return lookup(node).column or item_field(_variable(node, node.table, lookup), node.name)
        case exp.Anonymous():
            return _chosen(node.name.lower(), node.expressions, lookup)
        case exp.Case():
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return _one_of([*results, *filter(None, [node.args.get("default")])], lookup)
        case exp.Cast() if node.to.this == DType.TIMESTAMP_NS:
            return _A_TIME
        case exp.Dot():
            of = node.this
            inner = _variable(of, of.name, lookup) if isinstance(of, exp.Identifier) else value_column(of, lookup)
            return item_field(inner, node.expression.name)
        case exp.Bracket() if len(node.expressions) == 1:
            inner = value_column(node.this, lookup)
            return inner if isinstance(node.expressions[0], exp.Slice) else item_of(inner)
        case exp.Subquery() | exp.Select() if len(node.selects) == 1 and not node.is_star:
            return value_column(node.selects[0], lookup)
    return value_column(node.this, lookup) if isinstance(node, _WRAPPERS) else None


def is_time(node: exp.Expr, lookup: Lookup) -> bool:
    """Whether this is a TIMESTAMP_NS, as far as one can tell."""
    column = value_column(node, lookup)
    return column is not None and column.kind is Kind.TIME


def same_case(one: TableColumn, other: TableColumn) -> bool:
    """Whether the values of both are stored in the same case."""
    return one.kind in STORED_CASE and STORED_CASE[one.kind] is STORED_CASE.get(other.kind)


def item_of(column: TableColumn | None) -> TableColumn | None:
    """One item of the list that this column holds; None if it holds no list of items."""
    return replace(column, kind=Kind.ITEM) if column and column.kind is Kind.ITEMS else None


def item_field(column: TableColumn | None, name: str) -> TableColumn | None:
    if column is None or column.kind is not Kind.ITEM:
        return None
    return next((field for field in column.fields if field.name == name.lower()), None)


def _variable(node: exp.Expr, name: str, lookup: Lookup) -> TableColumn | None:
    """The item that this name stands for in a lambda or list comprehension around the node."""
    around = node.find_ancestor(exp.Lambda, exp.Comprehension, exp.Query) if name else None
    while around is not None and not isinstance(around, exp.Query):
        if isinstance(around, exp.Comprehension):
            variable, items = around.expression, around.args["iterator"]
        else:
            variable, items = (
                around.expressions[0],
                next(iter(around.parent.expressions if around.parent else ()), None),
            )
        if variable.name.lower() == name.lower() and items is not None:
            return item_of(value_column(items, lookup))
        around = around.find_ancestor(exp.Lambda, exp.Comprehension, exp.Query)
    return None


def _chosen(name: str, arguments: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    if name == "make_timestamp_ns":
        return _A_TIME
    if name in _CHOOSE_ANY:
        return _one_of(arguments[1:] if name == "if" else arguments, lookup)
    inner = arguments[0] if arguments else None
    if inner is None or name not in _CHOOSE_FIRST | _CHOOSE_ITEM | _CHOOSE_ITEMS:
        return None
    column = value_column(inner.this if isinstance(inner, exp.Order) else inner, lookup)
    if name in _CHOOSE_ITEM:
        return item_of(column)
    return column if name in _CHOOSE_FIRST or item_of(column) else None


def _one_of(nodes: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    """One TIMESTAMP_NS among the choices makes the value a TIMESTAMP_NS. All of them, apart from literals in its case,
    make it an id or a severity."""
    columns = [value_column(node, lookup) for node in nodes]
    if any(column and column.kind is Kind.TIME for column in columns):
        return _A_TIME
    first = next(filter(None, columns), None)
    if first is None or any(not same_case(first, column) for column in columns if column):
        return None
    case = STORED_CASE[first.kind]
    others = [node for node, column in zip(nodes, columns, strict=True) if column is None]
    plain = (isinstance(node, exp.Null) or (node.is_string and node.name == case(node.name)) for node in others)
    return first if all(plain) else None
