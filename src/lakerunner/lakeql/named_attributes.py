"""Attributes by their quoted name: `"http.status_code"`, or `l."http.status_code"`.

A quoted name that is no column, and no quoted name that AS gives, stands for the attribute of that key: the record's
own, or the resource's where the record has none (docs/decisions/0008-a-quoted-name-is-an-attribute.md). What looks like
a slip is refused instead, since an attribute that nobody has is no error but NULL.
"""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.scope import Relation, Scope
from lakerunner.lakeql.source import Source
from lakerunner.lakeql.suggest import closest
from lakerunner.lakeql.tables import Kind
from lakerunner.model.signal import ATTRIBUTES, RESOURCE

# Where an attribute is looked for, in this order: the name of the column and the map it must be.
_LOOKED_FOR = {"attributes": ATTRIBUTES.map_column, "resource_attrs": RESOURCE.map_column}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.Like, exp.ILike, exp.In, exp.GT, exp.GTE, exp.LT, exp.LTE)
_CLOSE = 0.8


def attribute_reading(node: exp.Column, scope: Scope, source: Source) -> exp.Expr | None:
    """What the name stands for, its columns not resolved yet; None if it can be no attribute."""
    if not node.this.args.get("quoted") or len(node.parts) > 2:
        return None
    relation = _owner(node, scope, source)
    if relation is None:
        return None
    _refuse_slips(node, relation, source)
    maps = [exp.column(name, table=relation.alias or None) for name in _LOOKED_FOR]
    for column in maps:
        column.this.meta.update(node.this.meta)
    reads = [exp.Bracket(this=column, expressions=[exp.Literal.string(node.name)]) for column in maps]
    return exp.Anonymous(this="coalesce", expressions=reads)


def attribute_hint(node: exp.Column, scope: Scope) -> str:
    """How the attribute would be written that this unquoted name may have meant; "" if there is none here."""
    parts = [part.name for part in node.parts]
    outer = node.parent
    while isinstance(outer, exp.Dot):
        parts.append(outer.expression.name)
        outer = outer.parent
    owned = [relation for relation in scope.relations if _has_attributes(relation)]
    if not owned or any(part.args.get("quoted") for part in node.parts):
        return ""
    if len(parts) == 2 and parts[1].lower() in scope.names():  # a column, of a table that is not here
        return ""
    if len(parts) > 1 and parts[0].lower() in {relation.alias for relation in owned}:
        return f'{parts[0]}."{".".join(parts[1:])}"'
    return f'"{".".join(parts)}"'


def _owner(node: exp.Column, scope: Scope, source: Source) -> Relation | None:
    """The relation that is named, or the only one of the innermost SELECT that has attributes."""
    around: Scope | None = scope
    while around is not None:
        if node.table:
            owned = [relation for relation in around.relations if relation.alias == node.table.lower()]
        else:
            owned = [relation for relation in around.relations if _has_attributes(relation)]
        if len(owned) > 1:
            named = " and ".join(relation.alias for relation in owned)
            meant = f'{owned[0].alias}."{node.name}"'
            raise source.error(f'attribute "{node.name}" is ambiguous between {named}: write {meant}', node)
        if owned:
            may_be = _has_attributes(owned[0]) and node.name.lower() not in owned[0].columns
            return owned[0] if may_be else None
        around = around.outer
    return None


def _has_attributes(relation: Relation) -> bool:
    found = {name: relation.columns.get(name) for name in _LOOKED_FOR}
    return all(
        one is not None
        and one.column is not None
        and one.column.kind is Kind.MAP
        and one.column.scope == _LOOKED_FOR[name]
        for name, one in found.items()
    )


def _refuse_slips(node: exp.Column, relation: Relation, source: Source) -> None:
    """A column's name with a letter amiss, or a text in the wrong quotes, right of a comparison. A key with a dot is
    meant as it stands."""
    name = node.name
    if "." in name:
        return
    asked = f"attributes['{name}']"
    near = closest(name.lower(), relation.columns, _CLOSE)
    if near:
        message = f"{relation.alias} has no column {name}. Did you mean {near}? For the attribute, write {asked}."
        raise source.error(message, node)
    parent = node.parent
    if isinstance(parent, _COMPARISONS) and node is not parent.this:
        raise source.error(f"\"{name}\" is a name: write '{name}' for the text, {asked} for the attribute", node)
