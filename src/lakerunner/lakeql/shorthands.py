"""LakeQL's own shorthands, expanded into SQL: `search('connection refused')`, `has_token(message, 'refused')` and
`"http.status_code"`.

`search` finds messages of logs, in SQL that the text index serves. Its text is words, separated by blanks, and
"phrases"; a message matches if it contains them all, in any order, ignoring case. Every other character stands for
itself. A word may be part of a longer one.

A quoted name that is neither a column nor a quoted alias stands for the attribute of that key: the record's own, or the
resource's where the record has none (docs/decisions/0008-a-quoted-name-is-an-attribute.md). What looks like a typo is
refused instead, since reading an attribute that no row has is not an error but returns NULL.
"""

from __future__ import annotations

import re

from sqlglot import exp

from lakerunner.lakeql.scope import NameScope, Relation
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.suggest import closest_name
from lakerunner.lakeql.tables import LOGS_TABLE, ColumnKind
from lakerunner.model.condition import word_pattern
from lakerunner.model.signal import ATTRIBUTES, RESOURCE

# ---- search

SEARCH = "search"
MAX_TERMS = 20
_MESSAGE = LOGS_TABLE.named()["message"]
_TERM = re.compile(r'\s*(?:"([^"]*)"|([^\s"]+))')


def expand_search(call: exp.Anonymous, scope: NameScope, source: QueryText) -> exp.Expr:
    """Return the condition that the call stands for. Its columns are not resolved yet."""
    *table, text = call.expressions or [None]
    if text is None or len(table) > 1:
        raise source.error("search takes a text, or a table and a text: search('words'), search(l, 'words')", call)
    if not text.is_string:
        raise source.error("search: the words to search for must be a text literal or a parameter", call)
    relation = _searched_relation(call, table[0] if table else None, scope, source)
    conditions = [_contains_term(relation, term) for term in _terms(text.name, call, source)]
    return exp.paren(exp.and_(*conditions, copy=False), copy=False)


def _searched_relation(call: exp.Anonymous, table: exp.Expr | None, scope: NameScope, source: QueryText) -> Relation:
    if table is not None:
        alias = table.name.lower() if isinstance(table, exp.Column) and not table.table else None
        relation = next((r for r in scope.relations if r.alias == alias), None)
        if relation is None or not _has_messages(relation):
            raise source.error(f"search: {table.sql()} is not a table of logs in this query", call)
        return relation
    searched = [relation for relation in scope.relations if _has_messages(relation)]
    if not searched:
        raise source.error("search needs the table logs in FROM", call)
    if len(searched) > 1:
        named = " and ".join(relation.alias for relation in searched)
        raise source.error(f"search is ambiguous between {named}: write search({searched[0].alias}, '...')", call)
    return searched[0]


def _has_messages(relation: Relation) -> bool:
    found = relation.columns.get("message")
    return found is not None and found.column == _MESSAGE


def _terms(text: str, call: exp.Anonymous, source: QueryText) -> list[str]:
    terms, at = [], 0
    while found := _TERM.match(text, at):
        terms.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    if text[at:].strip():
        raise source.error("search: a phrase is not closed", call)
    wanted = list(dict.fromkeys(term for term in terms if term))
    if not wanted:
        raise source.error("search: there is nothing to search for", call)
    if len(wanted) > MAX_TERMS:
        raise source.error(f"search: {len(wanted)} words and phrases are more than the {MAX_TERMS} allowed", call)
    return wanted


def _contains_term(relation: Relation, term: str) -> exp.Expr:
    """Compare both sides in DuckDB's lower case, so that they agree on every letter."""
    message = exp.column("message", table=relation.alias or None)
    lower = [exp.Anonymous(this="lower", expressions=[side]) for side in (message, exp.Literal.string(term))]
    return exp.Anonymous(this="contains", expressions=lower)


# ---- whole words

HAS_TOKEN = "has_token"  # noqa: S105 - a name of LakeQL
_FOLDS = frozenset({"lower", "upper"})


def expand_has_token(call: exp.Anonymous, source: QueryText) -> exp.Expr:
    """Return the condition that the call stands for: the text has this whole word, as the text index cuts words. The
    plain test comes first because most texts fail it, in less time."""
    if len(call.expressions) != 2:
        raise source.error("has_token takes a text and a word: has_token(message, 'refused')", call)
    text, word = call.expressions
    inner = text.expressions[0] if isinstance(text, exp.Anonymous) and text.name.lower() in _FOLDS else text
    if not isinstance(inner.this if isinstance(inner, exp.Bracket) else inner, exp.Column):
        # It stands twice in the condition: calls inside each other would double each time.
        raise source.error("has_token: the text must be a column or an attribute, or lower or upper of one", call)
    if not word.is_string:
        raise source.error("has_token: the word must be a text literal or a parameter", call)
    pattern = word_pattern(word.name)
    if pattern is None:
        needed = "a word is letters, digits and _. Write has_token for each word, or contains for a phrase"
        raise source.error(f"has_token: {word.name!r} is not one word: {needed}", call)
    tests = (("contains", word), ("regexp_matches", exp.Literal.string(pattern)))
    conditions = [exp.Anonymous(this=name, expressions=[text.copy(), other]) for name, other in tests]
    return exp.paren(exp.and_(*conditions, copy=False), copy=False)


# ---- attributes by their quoted name

# Where an attribute is looked up, in this order: the name of the column and its map.
_LOOKED_FOR = {"attributes": ATTRIBUTES.map_column, "resource_attrs": RESOURCE.map_column}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.Like, exp.ILike, exp.In, exp.GT, exp.GTE, exp.LT, exp.LTE)
_CLOSE = 0.8


def expand_attribute(node: exp.Column, scope: NameScope, source: QueryText) -> exp.Expr | None:
    """Return what the name stands for, its columns not resolved yet; None if it cannot be an attribute."""
    if not node.this.args.get("quoted") or len(node.parts) > 2:
        return None
    relation = _owner(node, scope, source)
    if relation is None:
        return None
    _refuse_typos(node, relation, source)
    maps = [exp.column(name, table=relation.alias or None) for name in _LOOKED_FOR]
    for column in maps:
        column.this.meta.update(node.this.meta)
    reads = [exp.Bracket(this=column, expressions=[exp.Literal.string(node.name)]) for column in maps]
    return exp.Anonymous(this="coalesce", expressions=reads)


def attribute_hint(node: exp.Column, scope: NameScope) -> str:
    """Return how to write the attribute that this unquoted name may mean; "" if there is none here."""
    parts = [part.name for part in node.parts]
    outer = node.parent
    while isinstance(outer, exp.Dot):
        parts.append(outer.expression.name)
        outer = outer.parent
    owned = [relation for relation in scope.relations if _has_attributes(relation)]
    if not owned or any(part.args.get("quoted") for part in node.parts):
        return ""
    if len(parts) == 2 and parts[1].lower() in scope.names():  # a column of a table that is not in this query
        return ""
    if len(parts) > 1 and parts[0].lower() in {relation.alias for relation in owned}:
        return f'{parts[0]}."{".".join(parts[1:])}"'
    return f'"{".".join(parts)}"'


def _owner(node: exp.Column, scope: NameScope, source: QueryText) -> Relation | None:
    """Return the relation that is named, or the only one of the innermost SELECT that has attributes."""
    around: NameScope | None = scope
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
        and one.column.kind is ColumnKind.MAP
        and one.column.scope == _LOOKED_FOR[name]
        for name, one in found.items()
    )


def _refuse_typos(node: exp.Column, relation: Relation, source: QueryText) -> None:
    """Refuse a column's name with a typo, and a text in the wrong quotes right of a comparison. A key with a dot is
    meant as it is written."""
    name = node.name
    if "." in name:
        return
    written = f"attributes['{name}']"
    near = closest_name(name.lower(), relation.columns, _CLOSE)
    if near:
        message = f"{relation.alias} has no column {name}. Did you mean {near}? For the attribute, write {written}."
        raise source.error(message, node)
    parent = node.parent
    if isinstance(parent, _COMPARISONS) and node is not parent.this:
        raise source.error(f"\"{name}\" is a name: write '{name}' for the text, {written} for the attribute", node)
