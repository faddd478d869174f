"""Bound the size of a query, and of functions that can make a long value out of a short one.

DuckDB's memory limit does not see what one call builds for one batch of rows, and a call cannot be interrupted in the
middle, so a size must be in the query's text: a literal, and small. No such call may stand inside another one, where
sizes would multiply. Formats of times are literals too, for the reason that lakeql/functions.py gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.functions import TIME_FORMATTED, format_problem
from lakerunner.lakeql.source import QueryText
from lakerunner.model.errors import TooLarge

MAX_PADDED = 1_000
MAX_REPLACEMENT = 100
MAX_LIST = 1_000
MAX_TABLE = 1_000_000
MAX_RELATIONS = 100
# DuckDB returns its parse tree as JSON, about four levels per operator; Python's JSON parser stops at about 1,400.
MAX_DEPTH = 250
_WIDE_FORMAT = re.compile(r"\d{4}|\*|\{[^}]*\{")


def check_depth(tree: exp.Query, source: QueryText) -> None:
    """Raise UserError for a tree that is too deep for later stages. A chain of AND or OR is one level, as in DuckDB."""
    pending: list[tuple[exp.Expr, int]] = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise source.error(f"more than {MAX_DEPTH} expressions inside each other: name inner parts with WITH", node)
        chained = type(node) if isinstance(node, exp.And | exp.Or) else None
        pending += [(child, depth if type(child) is chained else depth + 1) for child in node.iter_expressions()]


def check_bounds(tree: exp.Query, constants: Constants, source: QueryText) -> None:
    _check_relations(tree)
    for node in tree.find_all(exp.Anonymous, exp.Lambda, exp.Comprehension):
        if isinstance(node, exp.Anonymous):
            _check_call(node, constants, source)
        elif node.parent and node.parent.find_ancestor(exp.Lambda, exp.Comprehension):
            raise source.error("a lambda inside a lambda is not available", node)


def _check_relations(tree: exp.Query) -> None:
    """Refuse a query over more relations than a planner can order in acceptable time, which no timeout interrupts.

    A NOT MATERIALIZED name is planned again wherever it is used, so it counts as all that its query reads: twenty
    names, each of which reads the one before it twice, are a million relations.
    """
    weights: dict[str, int] = {}
    for with_ in reversed(list(tree.find_all(exp.With))):  # inner ones first
        for cte in with_.expressions:
            inlined = cte.args.get("materialized") is False
            weights[cte.alias.lower()] = max(1, _relations(cte.this, weights)) if inlined else 1
    found = _relations(tree, weights)
    if found > MAX_RELATIONS:
        raise TooLarge(f"the query reads {found} relations, more than the {MAX_RELATIONS} allowed")


def _relations(query: exp.Expr, weights: dict[str, int]) -> int:
    return sum(weights.get(table.name.lower(), 1) for table in query.find_all(exp.Table))


def _check_call(call: exp.Anonymous, constants: Constants, source: QueryText) -> None:
    name = call.name.lower()
    if name in ("range", "generate_series"):
        _check_series(call, constants, source)
        return
    if name in TIME_FORMATTED and (problem := format_problem(name, [_literals(node) for node in call.expressions])):
        raise source.error(f"{name}: {problem}", call)
    if name not in _CHECKS:
        return
    place, fits, wanted = _CHECKS[name]
    if not fits(call.expressions[place] if place < len(call.expressions) else None):
        raise source.error(f"{name}: {wanted}", call)
    outer = call.find_ancestor(exp.Anonymous) if _grows(call) else None
    while outer is not None:
        if _grows(outer):
            raise source.error(f"{name} is not available inside {outer.name.lower()}: it would grow twice", call)
        outer = outer.find_ancestor(exp.Anonymous)


def _check_series(call: exp.Anonymous, constants: Constants, source: QueryText) -> None:
    in_from = isinstance(call.parent, exp.Table)
    most = MAX_TABLE if in_from else MAX_LIST
    with_stop = call.name.lower() == "generate_series"
    length = constants.series_length(call.expressions, with_stop=with_stop)
    if length is None:
        raise source.error(f"{call.name.lower()}: start, stop and step must be constants", call)
    if length > most:
        raise source.error(f"{call.name.lower()} makes {length} values, more than the {most} allowed here", call)
    if call.find_ancestor(exp.Lambda, exp.Comprehension):
        raise source.error(f"{call.name.lower()} is not available in a lambda", call)


def _literals(node: exp.Expr) -> str | list[str] | None:
    """Return the text of a literal, the texts of a list of literals, or None for anything else."""
    if isinstance(node, exp.Array) and all(item.is_string for item in node.expressions):
        return [item.name for item in node.expressions]
    return node.name if node.is_string else None


def _is_length(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and node.is_int and int(node.name) <= MAX_PADDED


def _is_short(node: exp.Expr | None) -> bool:
    return node is not None and node.is_string and len(node.name) <= MAX_REPLACEMENT


def _is_narrow(node: exp.Expr | None) -> bool:
    return node is not None and node.is_string and not _WIDE_FORMAT.search(node.name)


def _grows(call: exp.Anonymous) -> bool:
    """Whether its value can be a multiple of its first argument's length."""
    name, arguments = call.name.lower(), call.expressions
    if name in ("lpad", "rpad") or name not in _CHECKS:
        return False
    if name == "replace":
        return not (arguments[1].is_string and len(arguments[2].name) <= len(arguments[1].name))
    return not (name == "regexp_replace" and len(arguments[2].name) <= 1)


# The argument that bounds the function's value, its test, and what it must be.
_Check = tuple[int, Callable[[exp.Expr | None], bool], str]
_SHORT = f"must be a literal of up to {MAX_REPLACEMENT} characters"
_NARROW: _Check = 0, _is_narrow, "the format must be a literal without widths over 999"
_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(("lpad", "rpad"), (1, _is_length, f"the length must be a number up to {MAX_PADDED}")),
    **dict.fromkeys(("replace", "regexp_replace"), (2, _is_short, f"the replacement {_SHORT}")),
    "array_to_string": (1, lambda by: by is None or _is_short(by), f"the separator {_SHORT}"),
    **dict.fromkeys(("format", "printf"), _NARROW),
    **dict.fromkeys(("hex", "to_hex", "base64", "to_base64", "url_encode", "regexp_escape"), (0, lambda _: True, "")),
}
