"""What a name means at one place of a query, and which column's values an expression returns.

Lookup follows DuckDB: columns of the relations come before aliases of the SELECT list, and both before the outer query.
Names match without regard to case, quoted or not; but a quoted name, which may be an attribute's, means only those
aliases of the SELECT list that are quoted too.

An expression may return the values of a table's column unchanged: `l.timestamp`, `max(timestamp)`. So the rules for
times, ids and the organization follow a column through functions that only choose among values, through subqueries, and
into the items of `events`, `links` and `exemplars`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.tables import LOGS_TABLE, ColumnKind, Table, TableColumn
from lakerunner.model.condition import Condition
from lakerunner.model.errors import Position
from lakerunner.model.signal import Attribute
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import Scan, TypedAttributes


@dataclass(eq=False)
class Draft:
    """A draft of a scan: one reference to a table, which the query calls `alias`. `start_ns` and `end_ns` bound the
    rows that it needs, half-open. `log_query` is that of a call of logql(...), at `position`; "" for a table."""

    relation: str
    table: Table
    alias: str
    log_query: str = ""
    position: Position | None = None
    columns: set[str] = field(default_factory=set)
    attributes: set[Attribute] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    typed: set[TypedAttributes] = field(default_factory=set)
    conditions: list[Condition] = field(default_factory=list)
    start_ns: int = MIN_NS
    end_ns: int = MAX_NS

    def narrow(self, start_ns: int, end_ns: int) -> None:
        self.start_ns, self.end_ns = max(self.start_ns, start_ns), min(self.end_ns, end_ns)

    def scan(self) -> Scan:
        """Return the scan. If the bounds leave nothing, any instant will do: the query itself filters."""
        start_ns = min(self.start_ns, MAX_NS - 1)
        return Scan(
            relation=self.relation,
            signal=self.table.spec.name,
            time=TimeRange(start_ns, max(self.end_ns, start_ns + 1)),
            columns=tuple(
                column.name for column in (*self.table.columns, *self.table.hidden) if column.name in self.columns
            ),
            attributes=tuple(sorted(self.attributes)),
            ids=tuple(sorted(self.ids)),
            conditions=tuple(dict.fromkeys(self.conditions)),
            typed=tuple(sorted(self.typed)),
        )


@dataclass(frozen=True)
class Origin:
    """What a column reference means. `column` is the table's column whose values it returns unchanged; `draft` is set
    only if the table itself is named in FROM, because then its scan can return more."""

    column: TableColumn | None = None
    draft: Draft | None = None


UNKNOWN = Origin()


@dataclass(frozen=True)
class Relation:
    """`columns` by lower-case name, in order. An open relation may have others, which only DuckDB knows."""

    alias: str
    columns: dict[str, Origin]
    is_open: bool = False


class AmbiguousError(Exception):
    """The name is in two relations."""


@dataclass
class NameScope:
    """`shared` are the columns that USING has joined; `given` are the aliases of the SELECT list, `quoted` those of
    them that are quoted."""

    outer: NameScope | None = None
    relations: list[Relation] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    given: dict[str, Origin] = field(default_factory=dict)
    quoted: set[str] = field(default_factory=set)

    def find(self, names: list[str], *, quoted: bool = False) -> tuple[Origin, int] | None:
        """Return the origin and which part of the name is the column. `names` are the lower-case parts of a dotted
        name; what follows the column is a field inside the value. `quoted`: the name may be an attribute's."""
        qualified = self._qualified(names)
        if qualified:
            return qualified, 1
        found = self._unqualified(names[0], quoted)
        if found:
            return found, 0
        return self.outer.find(names, quoted=quoted) if self.outer else None

    def alias(self, name: str, *, quoted: bool) -> Origin | None:
        """Return what the SELECT list defines under this alias."""
        return self.given.get(name) if not quoted or name in self.quoted else None

    def _qualified(self, names: list[str]) -> Origin | None:
        if len(names) > 1:
            for relation in self.relations:
                if relation.alias == names[0] and (names[1] in relation.columns or relation.is_open):
                    return relation.columns.get(names[1], UNKNOWN)
        return None

    def _unqualified(self, name: str, quoted: bool) -> Origin | None:
        having = [relation for relation in self.relations if name in relation.columns]
        if name in self.shared:
            return Origin(having[0].columns[name].column)
        if len(having) > 1:
            raise AmbiguousError(" and ".join(relation.alias for relation in having))
        if having:
            return having[0].columns[name]
        if alias := self.alias(name, quoted=quoted):
            return alias
        return UNKNOWN if any(relation.is_open for relation in self.relations) else None

    def aliases(self) -> set[str]:
        return {relation.alias for relation in self.relations} | (self.outer.aliases() if self.outer else set())

    def names(self, alias: str | None = None) -> set[str]:
        """Return all names that would be found here: of one relation, or of all."""
        here = {
            name for relation in self.relations if alias is None or relation.alias == alias for name in relation.columns
        }
        return here | (self.outer.names(alias) if self.outer else set())

    def drafts(self) -> list[Draft]:
        """Return the tables that this SELECT itself reads."""
        found = {
            id(column.draft): column.draft
            for relation in self.relations
            for column in relation.columns.values()
            if column.draft
        }
        return list(found.values())


# ---- whose values an expression returns

Lookup = Callable[[exp.Column], Origin]

_FIRST = """
any_value arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin first first_value lag last last_value lead
max max_by median min min_by mode nth_value nullif quantile_disc
"""
_CHOOSE_FIRST = frozenset(_FIRST.split())
_CHOOSE_ANY = frozenset({"coalesce", "greatest", "if", "ifnull", "least"})
_CHOOSE_ITEM = frozenset(["array_extract", "list_element", "list_extract", "list_first", "list_last", "unnest"])
_CHOOSE_ITEMS = frozenset(["array_filter", "array_slice", "list_filter", "list_slice"])
# How a value that is compared without regard to case is stored.
STORED_CASE: dict[ColumnKind, Callable[[str], str]] = {
    ColumnKind.ID: str.lower,
    ColumnKind.HEX: str.lower,
    ColumnKind.SEVERITY: str.upper,
}
_WRAPPERS = (exp.Paren, exp.Alias, exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_A_TIME = LOGS_TABLE.columns[0]


def value_column(node: exp.Expr, lookup: Lookup) -> TableColumn | None:
    """Return the column whose values the expression returns unchanged, or None."""
    match node:
        case exp.Column():
            return lookup(node).column or item_field(_variable(node, node.table, lookup), node.name)
        case exp.Anonymous():
            return _chosen_column(node.name.lower(), node.expressions, lookup)
        case exp.Case():
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return _common_column([*results, *filter(None, [node.args.get("default")])], lookup)
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
    """Whether this is a TIMESTAMP_NS, as far as can be known."""
    column = value_column(node, lookup)
    return column is not None and column.kind is ColumnKind.TIME


def same_case(one: TableColumn, other: TableColumn) -> bool:
    """Whether the values of both are stored in the same case."""
    return one.kind in STORED_CASE and STORED_CASE[one.kind] is STORED_CASE.get(other.kind)


def item_of(column: TableColumn | None) -> TableColumn | None:
    """Return one item of the list that this column holds; None if it does not hold a list of items."""
    return replace(column, kind=ColumnKind.ITEM) if column and column.kind is ColumnKind.ITEMS else None


def item_field(column: TableColumn | None, name: str) -> TableColumn | None:
    if column is None or column.kind is not ColumnKind.ITEM:
        return None
    return next((field for field in column.fields if field.name == name.lower()), None)


def _variable(node: exp.Expr, name: str, lookup: Lookup) -> TableColumn | None:
    """Return the item that this name stands for in an enclosing lambda or list comprehension."""
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


def _chosen_column(name: str, arguments: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    if name == "make_timestamp_ns":
        return _A_TIME
    if name in _CHOOSE_ANY:
        return _common_column(arguments[1:] if name == "if" else arguments, lookup)
    inner = arguments[0] if arguments else None
    if inner is None or name not in _CHOOSE_FIRST | _CHOOSE_ITEM | _CHOOSE_ITEMS:
        return None
    column = value_column(inner.this if isinstance(inner, exp.Order) else inner, lookup)
    if name in _CHOOSE_ITEM:
        return item_of(column)
    return column if name in _CHOOSE_FIRST or item_of(column) else None


def _common_column(nodes: list[exp.Expr], lookup: Lookup) -> TableColumn | None:
    """Return the column of a choice. One TIMESTAMP_NS among the choices makes the value a TIMESTAMP_NS. It is an id or
    a severity only if all choices are, apart from literals in its case."""
    columns = [value_column(node, lookup) for node in nodes]
    if any(column and column.kind is ColumnKind.TIME for column in columns):
        return _A_TIME
    first = next(filter(None, columns), None)
    if first is None or any(not same_case(first, column) for column in columns if column):
        return None
    case = STORED_CASE[first.kind]
    others = [node for node, column in zip(nodes, columns, strict=True) if column is None]
    plain = (isinstance(node, exp.Null) or (node.is_string and node.name == case(node.name)) for node in others)
    return first if all(plain) else None
