"""Check what a query is made of: every node of its tree is on a list, or the query is refused.

The lists hold what is known to be safe and to pass through sqlglot unchanged, never what is dangerous: syntax that
DuckDB or sqlglot learns later is refused until it was reviewed and listed.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.functions import FUNCTIONS, TABLE_FUNCTIONS
from lakerunner.lakeql.log_table import LOGQL
from lakerunner.lakeql.shorthands import HAS_TOKEN, SEARCH
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.suggest import suggest_function

_QUERY = {"with_", "order", "limit", "offset"}
_SET_OPERATION = {*_QUERY, "this", "expression", "distinct", "by_name"}
# The nodes whose arguments are clauses, with the clauses that may be there.
_CLAUSES: dict[type[exp.Expr], set[str]] = {
    exp.Select: {
        *_QUERY,
        *("expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows"),
    },
    exp.Union: _SET_OPERATION,
    exp.Except: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Subquery: {*_QUERY, "this", "alias"},
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias", "materialized"},
    exp.Table: {"this", "alias"},
    exp.Join: {"this", "side", "kind", "method", "on", "using"},
    exp.Lateral: {"this", "alias"},
    exp.Unnest: {"expressions", "alias"},
    exp.Values: {"expressions", "alias"},
    exp.Star: {"except_", "replace"},
    exp.DataType: {"this", "expressions", "nested", "kind"},
}
_CLAUSE_NAMES = {
    "into": "SELECT INTO",
    "locks": "FOR UPDATE",
    "recursive": "WITH RECURSIVE",
    "pivots": "PIVOT",
    "db": "a qualified table name",
    "catalog": "a qualified table name",
    "when": "AT",
    "rename": "* RENAME",
    "offset": "WITH ORDINALITY",
    "values": "an array of fixed size",
}
_OTHER_NODES: tuple[type[exp.Expr], ...] = (
    *(exp.From, exp.Where, exp.Group, exp.Having, exp.Qualify, exp.Order, exp.Ordered, exp.Limit, exp.Offset),
    *(exp.Fetch, exp.Distinct, exp.TableAlias, exp.Alias, exp.Column, exp.Identifier, exp.Var, exp.Literal),
    *(exp.Null, exp.Boolean, exp.Paren, exp.Tuple, exp.Anonymous, exp.Cast, exp.TryCast, exp.ColumnDef),
    *(exp.DataTypeParam, exp.Case, exp.If, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT),
    *(exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like, exp.ILike, exp.Escape),
    *(exp.SimilarTo, exp.Glob, exp.RegexpLike, exp.StartsWith, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv),
    *(exp.Mod, exp.Neg, exp.Pow, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseNot, exp.BitwiseLeftShift),
    *(exp.BitwiseRightShift, exp.DPipe, exp.Bracket, exp.Slice, exp.Array, exp.Struct, exp.PropertyEQ, exp.ToMap),
    *(exp.Dot, exp.Lambda, exp.Comprehension, exp.Interval, exp.Substring, exp.Trim),
    *(exp.AtTimeZone, exp.Collate, exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp),
    *(exp.Window, exp.WindowSpec, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup),
    *(exp.JSONExtract, exp.JSONExtractScalar, exp.Exists, exp.Any, exp.All, exp.ArrayOverlaps),
    *(exp.ArrayContainsAll, exp.ArrayContainedBy, exp.GroupingSets, exp.Rollup, exp.Cube),
)
_NODE_NAMES: dict[type[exp.Expr], str] = {
    exp.ByteString: "E'...'",
    exp.RawString: "$$...$$",
    exp.LimitOptions: "FETCH, or a LIMIT with %,",
}
_FUNCTIONS = FUNCTIONS | {SEARCH, HAS_TOKEN}
_TABLE_FUNCTIONS = TABLE_FUNCTIONS | {LOGQL}
_NODES = frozenset({*_CLAUSES, *_OTHER_NODES})

_TYPES = {
    *(DType.BOOLEAN, DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT, DType.INT128),
    *(DType.UTINYINT, DType.USMALLINT, DType.UINT, DType.UBIGINT, DType.FLOAT, DType.DOUBLE, DType.DECIMAL),
    *(DType.TEXT, DType.VARCHAR, DType.VARBINARY, DType.BLOB, DType.UUID, DType.JSON),
    *(DType.DATE, DType.TIME, DType.TIMESTAMP, DType.TIMESTAMPNTZ, DType.TIMESTAMPTZ),
    *(DType.TIMESTAMP_S, DType.TIMESTAMP_MS, DType.TIMESTAMP_NS, DType.INTERVAL),
    *(DType.ARRAY, DType.LIST, DType.STRUCT, DType.MAP),
}
_RELATIONS = (exp.Table, exp.Subquery, exp.Unnest, exp.Values, exp.Lateral)
_JOIN_METHODS = {"", "ASOF"}
_JOIN_KINDS = {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}


def check_allowed(tree: exp.Query, source: QueryText) -> None:
    """Raise a UserError that names the first node of the tree that is not available, and its place."""
    for node in tree.walk():
        if type(node) not in _NODES:
            name = _NODE_NAMES.get(type(node)) or _words(type(node).__name__)
            raise source.error(f"{name} is not available", node)
        _check_clauses(node, source)
        match node:
            case exp.Select() if not node.expressions:
                raise source.error("SELECT needs something to select", node)
            case exp.Anonymous():
                _check_function(node, source)
            case exp.DataType():
                _check_type(node, source)
            case exp.Join():
                _check_join(node, source)
            case exp.Star():
                _check_star(node, source)
            case exp.Dot():
                _check_dot(node, source)
            case exp.Subquery() | exp.CTE() | exp.Lateral() | exp.SetOperation():
                _check_inner_query(node, source)
            case exp.From() | exp.Table():
                _check_relation(node, source)


def _check_clauses(node: exp.Expr, source: QueryText) -> None:
    clauses = _CLAUSES.get(type(node))
    if clauses is None:
        return
    for name, value in node.args.items():
        if value and name not in clauses:
            raise source.error(f"{_CLAUSE_NAMES.get(name, _words(name))} is not available", node)


def _check_function(node: exp.Anonymous, source: QueryText) -> None:
    name = node.name.lower()
    known, kind = (
        (_TABLE_FUNCTIONS, "table function") if isinstance(node.parent, exp.Table) else (_FUNCTIONS, "function")
    )
    if name not in known:
        near = suggest_function(name) or next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.75)), "")
        hint = f": did you mean {near}?" if near else ""
        raise source.error(f"{kind} {node.name} is not available{hint}", node)


def _check_type(node: exp.DataType, source: QueryText) -> None:
    if node.this not in _TYPES:
        name = node.args.get("kind") or node.this.value
        raise source.error(f"type {name} is not available", node.parent or node)
    if not isinstance(node.parent, exp.Cast | exp.DataType | exp.ColumnDef):
        raise source.error(f"{node.this.value} is a type: quote it to name a column", node.parent or node)


def _check_join(node: exp.Join, source: QueryText) -> None:
    _check_relation(node, source)
    if node.method not in _JOIN_METHODS:
        raise source.error(f"{node.method} JOIN is not available: use ON or USING", node)
    if node.kind not in _JOIN_KINDS or (node.side == "RIGHT" and node.kind in ("SEMI", "ANTI")):
        raise source.error(f"{node.kind} JOIN is not available", node)


def _check_star(node: exp.Star, source: QueryText) -> None:
    holder = node.parent
    if isinstance(holder, exp.Column):
        holder = holder.parent
    elif isinstance(holder, exp.Anonymous) and holder.name.lower() == "count" and not node.args.get("except_"):
        return
    if not isinstance(holder, exp.Select):
        raise source.error("* is not available here", node)


def _check_dot(node: exp.Dot, source: QueryText) -> None:
    if not isinstance(node.expression, exp.Identifier):
        raise source.error(f"write {node.expression.name}(...) as a plain call, without a dot", node)


def _check_relation(node: exp.Expr, source: QueryText) -> None:
    named = (exp.Identifier, exp.Anonymous) if isinstance(node, exp.Table) else _RELATIONS
    if not isinstance(node.this, named):
        raise source.error("a table name or a subquery is expected here", node)


def _check_inner_query(node: exp.Expr, source: QueryText) -> None:
    parts = [node.this, node.expression] if isinstance(node, exp.SetOperation) else [node.this]
    if not all(isinstance(part, exp.Query | exp.Values) for part in parts):
        raise source.error("a SELECT is expected here", node)


def _words(name: str) -> str:
    """Return `TableSample` and `with_` as a user would write them."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).strip("_").upper()
