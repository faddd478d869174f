"""What a name can mean at one place of a query: the relations of the SELECT around it, then those further out.

Lookup follows DuckDB: columns of the relations come before names given in the SELECT list, and both before the outer
query. Names are matched without regard to case, quoted or not; but a quoted name, which may be an attribute's, means
only those names of the SELECT list that are quoted too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakerunner.lakeql.tables import Table, TableColumn
from lakerunner.model.condition import Condition
from lakerunner.model.signal import Attribute
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange
from lakerunner.plan.scan import Scan, Typed


@dataclass(eq=False)
class Draft:
    """A scan in the making: one reference to a table, which the query calls `alias`. `start_ns` and `end_ns` bound the
    rows it needs, half-open."""

    relation: str
    table: Table
    alias: str
    columns: set[str] = field(default_factory=set)
    attributes: set[Attribute] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    typed: set[Typed] = field(default_factory=set)
    conditions: list[Condition] = field(default_factory=list)
    start_ns: int = MIN_NS
    end_ns: int = MAX_NS

    def narrow(self, start_ns: int, end_ns: int) -> None:
        self.start_ns, self.end_ns = max(self.start_ns, start_ns), min(self.end_ns, end_ns)

    def scan(self) -> Scan:
        """Where the bounds leave nothing, any instant will do: the query itself filters."""
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
class Found:
    """`column` says whose values these are, where they are a table's unchanged; `draft` is there only when the
    table itself is named in FROM, so that the scan can be told what to give."""

    column: TableColumn | None = None
    draft: Draft | None = None


UNKNOWN = Found()


@dataclass(frozen=True)
class Relation:
    """`columns` by lower-case name, in order. An open relation may have others, which DuckDB will know."""

    alias: str
    columns: dict[str, Found]
    is_open: bool = False


class AmbiguousError(Exception):
    """The name is in two relations."""


@dataclass
class Scope:
    """`shared` are the columns that USING has made one of two; `given` are the names of the SELECT list, `quoted` those
    of them that stand in quotes."""

    outer: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    given: dict[str, Found] = field(default_factory=dict)
    quoted: set[str] = field(default_factory=set)

    def find(self, names: list[str], *, quoted: bool = False) -> tuple[Found, int] | None:
        """`names` are the lower-case parts of a dotted name. The number says which of them is the column; what
        follows it is a field inside the value. `quoted`: the name may be an attribute's."""
        qualified = self._qualified(names)
        if qualified:
            return qualified, 1
        found = self._unqualified(names[0], quoted)
        if found:
            return found, 0
        return self.outer.find(names, quoted=quoted) if self.outer else None

    def alias(self, name: str, *, quoted: bool) -> Found | None:
        """What the SELECT list calls so."""
        return self.given.get(name) if not quoted or name in self.quoted else None

    def _qualified(self, names: list[str]) -> Found | None:
        if len(names) > 1:
            for relation in self.relations:
                if relation.alias == names[0] and (names[1] in relation.columns or relation.is_open):
                    return relation.columns.get(names[1], UNKNOWN)
        return None

    def _unqualified(self, name: str, quoted: bool) -> Found | None:
        having = [relation for relation in self.relations if name in relation.columns]
        if name in self.shared:
            return Found(having[0].columns[name].column)
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
        """All names that would be found here: of one relation, or of all."""
        here = {
            name for relation in self.relations if alias is None or relation.alias == alias for name in relation.columns
        }
        return here | (self.outer.names(alias) if self.outer else set())

    def drafts(self) -> list[Draft]:
        """The tables that this SELECT itself reads."""
        found = {
            id(column.draft): column.draft
            for relation in self.relations
            for column in relation.columns.values()
            if column.draft
        }
        return list(found.values())
