"""Resolve every name of a query: tables become scans, columns get their origin, or the query is refused.

Comes in: a tree of allowed nodes. A table's name becomes its scan's relation, under its alias in the query; quoted
names of attributes and calls of search become the SQL that they stand for. Goes out: drafts of the scans, and what each
column reference and each star means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from sqlglot import exp

from lakerunner.lakeql.log_table import LOG_LINES, LOGQL, read_log_query
from lakerunner.lakeql.scope import (
    UNKNOWN,
    AmbiguousError,
    Draft,
    NameScope,
    Origin,
    Relation,
    item_field,
    item_of,
    same_case,
    value_column,
)
from lakerunner.lakeql.shorthands import (
    HAS_TOKEN,
    SEARCH,
    attribute_hint,
    expand_attribute,
    expand_has_token,
    expand_search,
)
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.suggest import unknown_column_message
from lakerunner.lakeql.tables import TABLES, ColumnKind, TableColumn

_CLAUSES = ("where", "group", "having", "qualify", "distinct")
_HALF_JOINS = ("SEMI", "ANTI")


@dataclass(frozen=True)
class Outputs:
    """The columns that a query returns, in order. If `is_open`, there are others whose names only DuckDB makes."""

    columns: list[tuple[str, Origin]]
    is_open: bool = False

    def relation(self, alias: exp.Expr | None, name: str = "") -> Relation:
        """Return the relation under the alias, with the column names that follow the alias, if there are any."""
        given = [column.name for column in alias.args.get("columns") or ()] if alias else []
        known = {old.lower(): found for old, found in self.columns}
        if given:
            rest = self.columns[len(given) :]
            renamed = [(new, found) for new, (_, found) in zip(given, self.columns, strict=False)]
            known = {new.lower(): UNKNOWN for new in given}
            known |= {new.lower(): found for new, found in [*renamed, *rest]}
        alias_name = alias.name if alias and alias.name else name
        return Relation(alias_name.lower(), known, self.is_open)


@dataclass
class Resolution:
    """`selects` are all SELECTs with the tables that they read themselves; `stars` the tables that a star shows."""

    drafts: list[Draft] = field(default_factory=list)
    selects: list[tuple[exp.Select, list[Draft]]] = field(default_factory=list)
    stars: list[tuple[exp.Star, list[Draft]]] = field(default_factory=list)
    _origins: dict[int, tuple[exp.Column, Origin]] = field(default_factory=dict)

    def origin(self, column: exp.Column) -> Origin:
        """Return what the column reference means."""
        return self._origins.get(id(column), (column, UNKNOWN))[1]

    def note(self, column: exp.Column, found: Origin) -> None:
        """Record what the column reference means. The node is kept, because its id must not be used again."""
        self._origins[id(column)] = (column, found)


def resolve(tree: exp.Query, source: QueryText) -> Resolution:
    resolver = _Resolver(source, {name.name.lower() for name in tree.find_all(exp.Identifier)})
    resolver.query(tree, None, {})
    return resolver.resolution


class _Resolver:
    def __init__(self, source: QueryText, taken: set[str]) -> None:
        self.resolution = Resolution()
        self._source = source
        names = (f"scan_{n}" for n in count(1))
        # The names of a scan's further columns begin with its own name, so no name of the user may begin with it.
        self._fresh = (name for name in names if not any(other.startswith(name) for other in taken))

    def query(self, node: exp.Expr, outer: NameScope | None, ctes: Mapping[str, Outputs]) -> Outputs:
        """Resolve a query. `outer` is what it may refer to outside itself; `ctes` are the names that WITH has given so
        far."""
        ctes = self._with(node, outer, ctes)
        match node:
            case exp.Select():
                return self._select(node, outer, ctes)
            case exp.SetOperation():
                sides = [self.query(side, outer, ctes) for side in (node.this, node.expression)]
                outputs = _combine_outputs(*sides, by_name=bool(node.args.get("by_name")))
            case exp.Values():
                self._expressions(node.expressions, NameScope(outer), ctes)
                width = len(node.expressions[0].expressions)
                outputs = Outputs([(f"col{n}", UNKNOWN) for n in range(width)])
            case _:
                outputs = self.query(node.this, outer, ctes)
        above = NameScope(outer, [outputs.relation(None)])
        self._expressions([node.args.get(clause) for clause in ("order", "limit", "offset")], above, ctes)
        return outputs

    def _with(self, node: exp.Expr, outer: NameScope | None, ctes: Mapping[str, Outputs]) -> Mapping[str, Outputs]:
        clause = node.args.get("with_")
        named = dict(ctes)
        for cte in clause.expressions if clause else ():
            outputs = self.query(cte.this, outer, named)
            relation = outputs.relation(cte.args["alias"])
            named[relation.alias] = Outputs(list(relation.columns.items()), relation.is_open)
        return named

    def _select(self, node: exp.Select, outer: NameScope | None, ctes: Mapping[str, Outputs]) -> Outputs:
        scope = NameScope(outer)
        if from_ := node.args.get("from_"):
            self._relation(from_.this, scope, ctes)
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)
        outputs = self._projections(node, scope, ctes)
        self._expressions([node.args.get(clause) for clause in _CLAUSES], scope, ctes)
        self._expressions(node.args.get("windows") or [], scope, ctes)
        self._order(node, scope, ctes)
        self._expressions([node.args.get("limit"), node.args.get("offset")], NameScope(), ctes)
        self.resolution.selects.append((node, scope.drafts()))
        return outputs

    def _order(self, node: exp.Select, scope: NameScope, ctes: Mapping[str, Outputs]) -> None:
        """Resolve ORDER BY. A bare name is an alias of the SELECT list first; inside an expression it is a column
        first."""
        order = node.args.get("order")
        for ordered in order.expressions if order else ():
            key = ordered.this
            bare = isinstance(key, exp.Column) and not key.table
            if bare and (alias := scope.alias(key.name.lower(), quoted=_is_quoted(key))):
                self.resolution.note(key, alias)
            else:
                self._expression(ordered, scope, ctes)

    # FROM

    def _relation(self, node: exp.Expr, scope: NameScope, ctes: Mapping[str, Outputs]) -> None:
        alias = node.args.get("alias")
        match node:
            case exp.Table() if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == LOGQL:
                query = read_log_query(node.this, self._source)
                draft = Draft("", LOG_LINES, LOGQL, log_query=query, position=self._source.where(node.this))
                node.set("this", exp.to_identifier(LOGQL))
                relation = self._read(draft, node)
            case exp.Table() if isinstance(node.this, exp.Anonymous):
                self._expressions(node.this.expressions, scope, ctes)
                relation = Outputs([], is_open=True).relation(alias, node.this.name)
            case exp.Table():
                relation = self._table(node, ctes)
            case exp.Unnest():
                self._expressions(node.expressions, scope, ctes)
                items = [Origin(item_of(value_column(one, self.resolution.origin))) for one in node.expressions]
                relation = Outputs([("unnest", item) for item in items[:1]], is_open=True).relation(alias, "unnest")
            case exp.Lateral():
                relation = self.query(node.this, scope, ctes).relation(alias)
            case _:
                relation = self.query(node, scope, ctes).relation(alias)
        if any(relation.alias == other.alias != "" for other in scope.relations):
            raise self._source.error(f"table name {relation.alias} is used twice: give one of them an alias", node)
        scope.relations.append(relation)

    def _table(self, node: exp.Table, ctes: Mapping[str, Outputs]) -> Relation:
        name, alias = node.name, node.args.get("alias")
        if name.lower() in ctes:
            return ctes[name.lower()].relation(alias, name)
        table = TABLES.get(name.lower())
        if table is None:
            raise self._source.error(f"unknown table {node.name}: the tables are {', '.join(TABLES)}", node)
        return self._read(Draft("", table, name), node)

    def _read(self, draft: Draft, node: exp.Table) -> Relation:
        """Add the draft under a fresh name of its relation. Its alias is that of the node, or the one it has."""
        alias = node.args.get("alias")
        if alias and alias.args.get("columns"):
            raise self._source.error(f"columns of {draft.alias} are renamed with AS in the SELECT list", alias)
        draft.relation, draft.alias = next(self._fresh), alias.name if alias else draft.alias
        self.resolution.drafts.append(draft)
        node.this.set("this", draft.relation)
        node.set("alias", alias or exp.TableAlias(this=exp.to_identifier(draft.alias)))
        columns = {known: Origin(column, draft) for known, column in draft.table.named().items()}
        return Relation(draft.alias.lower(), columns)

    def _join(self, join: exp.Join, scope: NameScope, ctes: Mapping[str, Outputs]) -> None:
        self._relation(join.this, scope, ctes)
        shared = {name.name.lower() for name in join.args.get("using") or () if self._using(name, scope)}
        self._expressions([join.args.get("on")], scope, ctes)
        if join.kind in _HALF_JOINS:
            scope.relations.pop()
        else:
            scope.shared |= shared

    def _using(self, name: exp.Identifier, scope: NameScope) -> bool:
        """Whether the column is known here; DuckDB finds one of an open relation."""
        known = name.name.lower()
        having = [relation.columns[known] for relation in scope.relations if known in relation.columns]
        if not having:
            if not any(relation.is_open for relation in scope.relations):
                raise self._unknown(name, [known], scope)
            return False
        for found in having:
            if found.draft and found.column:
                found.draft.columns.add(found.column.name)
                name.set("this", found.column.name)
        return True

    # SELECT list

    def _projections(self, node: exp.Select, scope: NameScope, ctes: Mapping[str, Outputs]) -> Outputs:
        columns: list[tuple[str, Origin]] = []
        is_open = False
        for projection in node.expressions:
            star = projection.this if isinstance(projection, exp.Column) else projection
            if isinstance(star, exp.Star):
                shown = self._star(star, projection, scope, ctes)
                is_open = is_open or any(relation.is_open for relation in shown)
                columns += _star_columns(star, shown)
                continue
            self._expression(projection, scope, ctes)
            found = Origin(value_column(projection, self.resolution.origin))
            if projection.alias:
                scope.given[projection.alias.lower()] = found
                if isinstance(projection, exp.Alias) and projection.args["alias"].args.get("quoted"):
                    scope.quoted.add(projection.alias.lower())
            name = projection.alias or (projection.name if isinstance(projection, exp.Column) else "")
            if name:
                columns.append((name, found))
            is_open = is_open or not name
        return Outputs(columns, is_open)

    def _star(
        self, star: exp.Star, projection: exp.Expr, scope: NameScope, ctes: Mapping[str, Outputs]
    ) -> list[Relation]:
        alias = projection.args.get("table")
        shown = [r for r in scope.relations if alias is None or r.alias == alias.name.lower()]
        if not shown:
            where = f"table or alias {alias.name}" if alias else "table to take * from"
            raise self._source.error(f"there is no {where}", projection)
        drafts = [found.draft for relation in shown for found in relation.columns.values() if found.draft]
        for draft in drafts:
            draft.columns.update(column.name for column in draft.table.columns)
        self.resolution.stars.append((star, list(dict.fromkeys(drafts))))
        for excluded in star.args.get("except_") or ():
            self._excluded(excluded, NameScope(None, shown))
        self._expressions(star.args.get("replace") or [], scope, ctes)
        return shown

    def _excluded(self, node: exp.Expr, scope: NameScope) -> None:
        known = {name: relation.columns[name] for relation in scope.relations for name in relation.columns}
        found = known.get(node.name.lower())
        if found and _is_hidden(found):
            raise self._source.error(f"* does not show {node.name}: there is no need to exclude it", node)
        if found is None:
            if not any(relation.is_open for relation in scope.relations):
                raise self._unknown(node, [node.name.lower()], scope)
        elif found.draft and found.column:
            node.replace(exp.to_identifier(found.column.name))

    # Expressions

    def _expressions(self, nodes: list[exp.Expr | None], scope: NameScope, ctes: Mapping[str, Outputs]) -> None:
        for node in nodes:
            if node is not None:
                self._expression(node, scope, ctes)

    def _expression(
        self,
        node: exp.Expr,
        scope: NameScope,
        ctes: Mapping[str, Outputs],
        variables: frozenset[str] = frozenset(),
    ) -> None:
        """Resolve an expression. `variables` are the names that enclosing lambdas have bound."""
        match node:
            case exp.Query():
                self.query(node, scope, ctes)
                return
            case exp.Column():
                self._column(node, scope, variables)
                return
            case exp.Anonymous() if node.name.lower() == SEARCH:
                self._replace_with(node, expand_search(node, scope, self._source), scope)
                return
            case exp.Anonymous() if node.name.lower() == HAS_TOKEN:
                self._replace_with(node, expand_has_token(node, self._source), scope)
                return
            case exp.Lambda():
                variables |= {name.name.lower() for name in node.expressions}
            case exp.Comprehension():
                self._expression(node.args["iterator"], scope, ctes, variables)
                variables |= {node.expression.name.lower()}
        for child in node.iter_expressions():
            if not (isinstance(node, exp.Comprehension) and child is node.args["iterator"]):
                self._expression(child, scope, ctes, variables)

    def _column(self, node: exp.Column, scope: NameScope, variables: frozenset[str]) -> None:
        names = [part.name.lower() for part in node.parts]
        if names[0] in variables:
            return
        try:
            found = scope.find(names, quoted=_is_quoted(node))
        except AmbiguousError as both:
            first = str(both).partition(" ")[0]
            message = f"column {node.name} is ambiguous between {both}: write {first}.{node.name}"
            raise self._source.error(message, node) from None
        if found is None or (found[0] is UNKNOWN and node.table):
            reading = expand_attribute(node, scope, self._source)
            if reading:
                self._replace_with(node, reading, scope)
                return
        found = found or scope.find(names)
        if found is None:
            raise self._unknown(node, names, scope)
        value, at = found
        if value.draft and value.column and names[at] in value.draft.table.aliases:
            node.parts[at].set("this", value.column.name)
        if at == len(names) - 1:
            self.resolution.note(node, value)
        elif value.draft and value.column:  # a field inside the column's value: not the column itself
            value.draft.columns.add(value.column.name)
        elif at == len(names) - 2 and (field := item_field(value.column, names[-1])):
            self.resolution.note(node, Origin(field))

    def _replace_with(self, node: exp.Expr, meant: exp.Expr, scope: NameScope) -> None:
        """Put the expansion of a shorthand in its place."""
        node.replace(meant)
        for column in list(meant.find_all(exp.Column)):
            self._column(column, scope, frozenset())

    def _unknown(self, node: exp.Expr, names: list[str], scope: NameScope) -> Exception:
        qualified = len(names) > 1
        attribute = attribute_hint(node, scope) if isinstance(node, exp.Column) else ""
        if qualified and names[0] not in scope.aliases():
            hint = f": did you mean {attribute}?" if attribute else ""
            return self._source.error(f"unknown table or alias {names[0]}{hint}", node)
        if not qualified and names[0] in scope.aliases():
            return self._source.error(f"{names[0]} is a table here, not a column", node)
        owners = [names[0]] if qualified else [relation.alias for relation in scope.relations if relation.alias]
        columns = scope.names(names[0] if qualified else None)
        return self._source.error(unknown_column_message(names[int(qualified)], owners, columns, attribute), node)


def _star_columns(star: exp.Star, relations: list[Relation]) -> list[tuple[str, Origin]]:
    """Return what a star shows. A column is not shown again under its further names."""
    hidden = {column.name.lower() for column in star.args.get("except_") or ()}
    replaced = {alias.alias.lower() for alias in star.args.get("replace") or ()}
    return [
        (name, UNKNOWN if name in replaced else Origin(found.column))
        for relation in relations
        for name, found in relation.columns.items()
        if name not in hidden and not (found.draft and found.column and found.column.name != name)
        if not _is_hidden(found)
    ]


def _is_quoted(node: exp.Column) -> bool:
    return bool(node.this.args.get("quoted")) and not node.table


def _is_hidden(found: Origin) -> bool:
    return bool(found.draft and found.column in found.draft.table.hidden)


def _alike(one: TableColumn, other: TableColumn) -> bool:
    return one == other or one.kind is other.kind is ColumnKind.TIME or same_case(one, other)


def _combine_outputs(left: Outputs, right: Outputs, *, by_name: bool) -> Outputs:
    """Return the columns of a set operation: the names of its left side; a column keeps its origin if it is the same, a
    time, or an id on both sides."""
    if by_name:
        return Outputs([(name, UNKNOWN) for name, _ in [*left.columns, *right.columns]], is_open=True)
    others = [found.column for _, found in right.columns] + [None] * len(left.columns)
    same = [
        (name, found if found.column and other and _alike(found.column, other) else UNKNOWN)
        for (name, found), other in zip(left.columns, others, strict=False)
    ]
    return Outputs(same, left.is_open or right.is_open)
