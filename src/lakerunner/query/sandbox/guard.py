"""Check DuckDB's own parse tree of a query against the lists of what is allowed, before the query runs.

lakeql/ has checked the text as sqlglot parses it. Here DuckDB parses the SQL that will run, and the same lists are
applied to its tree, so that neither a difference between the two parsers nor a unit from elsewhere can reach anything
but the relations of its own scans. A name in FROM must be a relation of the scans or a CTE visible at that place:
DuckDB would look up any other name in its catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from lakerunner.lakeql.functions import (
    BUCKET_START,
    FUNCTIONS,
    MICROSECONDS,
    TABLE_FUNCTIONS,
    TIME_FORMATTED,
    format_problem,
)
from lakerunner.model.errors import UserError
from lakerunner.query.sandbox.instance import KERNELS

# The functions that DuckDB makes of operators and syntax: [1, 2], comprehensions, LIKE ... ESCAPE, count(*), ...
_SYNTAX = """
count_star list_apply like_escape not_like_escape ilike_escape not_ilike_escape array_extract
~~ !~~ ~~* !~~* ~~~ ->> -> || && @> <@ + - * / // % ** ^ & | ~ << >> ^@
"""
# Called by our own rewriting only; lakeql/ refuses them in a user's text.
_OURS = {MICROSECONDS, BUCKET_START, "sum_bin", "sum_part", *(kernel.name for kernel in KERNELS)}
_CALLABLE = FUNCTIONS | {*_SYNTAX.split(), *_OURS}
_CLASSES = """
BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR STAR SUBQUERY TYPE WINDOW
"""
_EXPRESSIONS = frozenset(_CLASSES.split())
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE"})
# DuckDB limits how deep expressions are nested, not subqueries: 40,000 of them parse, 100,000 overflow its stack.
_MAX_PARENTHESES = 20_000
_RELATIONS = frozenset({"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "SUBQUERY", "TABLE_FUNCTION"})


def check_sql(connection: duckdb.DuckDBPyConnection, sql: str, relations: set[str]) -> None:
    """Raise UserError unless the SQL is one SELECT over these relations that calls allowed functions only."""
    if sql.count("(") > _MAX_PARENTHESES:
        raise UserError(f"the query cannot be run: it has more than {_MAX_PARENTHESES} parentheses")
    ((serialized,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        parsed = json.loads(serialized)
    except RecursionError:
        raise UserError("the query cannot be run: it is nested too deeply") from None
    if parsed.get("error") or len(parsed.get("statements", ())) != 1:
        problem = str(parsed.get("error_message", "not one SELECT")).partition("\n")[0]
        raise UserError(f"the query cannot be run: {problem}")
    for node, names in _nodes(parsed, frozenset(relation.lower() for relation in relations)):
        if str(node.get("type")).endswith("_NODE") and node["type"] not in _QUERIES:
            raise _refused(f"{node['type'].removesuffix('_NODE')} query")
        _check_expression(node)
        _check_relation(node, names)


def _check_expression(node: dict[str, Any]) -> None:
    if "class" in node and node["class"] not in _EXPRESSIONS:
        raise _refused(f"{node['class']} expression")
    name = node.get("function_name")
    if name is not None and (name.lower() not in _CALLABLE or node.get("schema") or node.get("catalog")):
        raise _refused(f"function {name}")
    if name is not None and name.lower() in TIME_FORMATTED:
        problem = format_problem(name.lower(), [_literals(argument) for argument in node.get("arguments", ())])
        if problem:
            raise UserError(f"the query cannot be run: {name}: {problem}")


def _literals(argument: dict[str, Any]) -> str | list[str] | None:
    """Return the text of a literal, the texts of a list of literals, or None for anything else."""
    expression = argument["expression"]
    if expression.get("function_name") == "list_value":
        texts = [_literals(item) for item in expression["arguments"]]
        found = [text for text in texts if isinstance(text, str)]
        return found if len(found) == len(texts) else None
    literal = expression.get("literal") if expression["class"] == "CONSTANT" else None
    return str(literal["text"]) if literal and literal.get("kind") == "STRING" else None


def _check_relation(node: dict[str, Any], named: frozenset[str]) -> None:
    """Check a node that is a relation in FROM, which is the only kind of node with a `sample`."""
    if "sample" not in node or "select_list" in node:
        return
    kind = node["type"]
    if kind not in _RELATIONS or node["sample"]:
        raise _refused(f"{kind} in FROM")
    if kind == "BASE_TABLE" and (
        node["table_name"].lower() not in named
        or node.get("schema_name")
        or node.get("catalog_name")
        or node.get("at_clause")
    ):
        raise _refused(f"table {node['table_name']}")
    if kind == "TABLE_FUNCTION" and node["function"]["function_name"].lower() not in TABLE_FUNCTIONS:
        raise _refused(f"table function {node['function']['function_name']}")


def _refused(what: str) -> UserError:
    return UserError(f"the query cannot be run: {what} is not available")


def _nodes(value: Any, names: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Walk the tree; yield each node with the relations that are visible there, in lower case.

    A CTE is visible in the query that defines it and below, and in CTEs that are defined after it, but not in itself.
    """
    pending = [(value, names)]
    while pending:
        value, names = pending.pop()
        if isinstance(value, list):
            pending.extend((item, names) for item in value)
        if not isinstance(value, dict):
            continue
        cte_map = value.get("cte_map")
        for entry in cte_map["map"] if isinstance(cte_map, dict) else ():
            pending.append((entry["value"], names))
            names |= {entry["key"].lower()}
        yield value, names
        pending.extend((item, names) for key, item in value.items() if key != "cte_map")
