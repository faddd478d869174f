"""Parameters of a query ($1, $name, ?) replaced by their values, before anything else looks at the tree.

Comes in: the tree as it was read, and values by name; `?` are named 1, 2, ... in the order of the text. Goes out: the
same tree with literals in their places. What always holds: a value never becomes anything but a literal, whatever it
holds, and means what that literal would mean in its place; each value is used, and each parameter has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from lakerunner.lakeql.source import Source
from lakerunner.model.errors import TooLarge, UserError

MAX_VALUES = 10_000
MAX_CHARACTERS = 65_536
_NAMES = ("alias", "table", "db", "catalog")


def put_values(tree: exp.Query, parameters: Mapping[str, Any], source: Source) -> None:
    """UserError, with the place, where a parameter has no value, or one that cannot stand there."""
    check_size(parameters)
    placeholders = sorted(tree.find_all(exp.Placeholder), key=lambda node: int(node.meta.get("start", 0)))
    names = [str(node.args.get("this") or "") for node in placeholders]
    if "" in names and any(names):
        raise source.error("write all parameters as ?, or all as $1 or $name", placeholders[0])
    named = [(name or str(n), node) for n, (name, node) in enumerate(zip(names, placeholders, strict=True), 1)]
    for name, node in named:
        if name not in parameters:
            raise source.error(f"parameter {_shown(name)} has no value", node)
        _replace(node, name, parameters[name], source)
    unused = sorted(set(parameters) - {name for name, _ in named})
    if unused:
        raise UserError(f"parameter {_shown(unused[0])} is not in the query")


def check_size(parameters: Mapping[str, Any]) -> None:
    """TooLarge beyond what a query's own text could hold."""
    values = [item for value in parameters.values() for item in (value if isinstance(value, list) else [value])]
    if len(values) > MAX_VALUES:
        raise TooLarge(f"the parameters have {len(values)} values, more than the {MAX_VALUES} allowed")
    size = sum(len(value) for value in values if isinstance(value, str))
    if size > MAX_CHARACTERS:
        raise TooLarge(f"the parameters have {size} characters, more than the {MAX_CHARACTERS} allowed")


def _replace(node: exp.Placeholder, name: str, value: Any, source: Source) -> None:
    if node.arg_key in _NAMES:
        raise source.error(f"parameter {_shown(name)} stands for a value, not for a name", node)
    in_list = isinstance(node.parent, exp.In) and node.arg_key in ("field", "expressions")
    if isinstance(value, list | tuple):
        if not in_list:
            raise source.error(f"the list of parameter {_shown(name)} can only be used with IN", node)
        _put_list(node, [_literal(item, name, node, source) for item in value])
    elif node.arg_key == "field":
        raise source.error(f"IN {_shown(name)} needs a list", node)
    else:
        node.replace(_literal(value, name, node, source))


def _put_list(node: exp.Placeholder, literals: list[exp.Expr]) -> None:
    """`x IN $1` and `x IN ($1)` alike. In an empty list there is nothing."""
    membership: Any = node.parent
    others = [other for other in membership.expressions if other is not node]
    at = membership.expressions.index(node) if node.arg_key == "expressions" else 0
    membership.set("field", None)
    listed = [*others[:at], *literals, *others[at:]]
    membership.set("expressions", listed)
    if not listed:
        membership.replace(exp.Anonymous(this="list_contains", expressions=[exp.Array(), membership.this]))


def _literal(value: Any, name: str, node: exp.Placeholder, source: Source) -> exp.Expr:
    match value:
        case None:
            made: exp.Expr = exp.Null()
        case bool():
            made = exp.Boolean(this=value)
        case str() if "\0" not in value and _is_text(value):
            made = exp.Literal.string(value)
        case int() | float() if math.isfinite(value):
            made = exp.Literal.number(value)
        case _:
            kinds = "a text without NUL, a number, true, false, null, or a list of them"
            raise source.error(f"parameter {_shown(name)} has an unsupported value: use {kinds}", node)
    made.meta.update(node.meta)
    return exp.Paren(this=made) if isinstance(made, exp.Neg) else made


def _is_text(value: str) -> bool:
    """Whether it has a UTF-8 form."""
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


def _shown(name: str) -> str:
    return f"${name[:64]}"
