"""What a name stands for at one place of a query in Spark: the column of a relation, with its type.

Lookup follows lakeql/scope.py, which has refused by then what is unknown or ambiguous. Every relation of the text
for Spark has a name of its own, and so has every column that a SELECT gives: no name can mean two things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lakerunner.lakeql.spark.values import Value


@dataclass(frozen=True)
class Output:
    """A column that a relation gives: `name` is the user's, "" where DuckDB would make one up. A hidden one is not
    shown by a star."""

    name: str
    value: Value
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """`alias` is the user's name for it. The outputs' values are as the SELECT around it writes them."""

    alias: str
    outputs: tuple[Output, ...]

    def find(self, name: str) -> Value | None:
        return next((output.value for output in self.outputs if output.name.lower() == name), None)


@dataclass
class Scope:
    """`shared` are the columns that USING has made one of two; `given` are the names of the SELECT list."""

    outer: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    shared: dict[str, Value] = field(default_factory=dict)
    given: dict[str, Value] = field(default_factory=dict)

    def find(self, column: exp.Column) -> Value | None:
        names = [part.name.lower() for part in column.parts]
        if len(names) > 2:
            return None
        found = self._qualified(*names) if len(names) == 2 else self._named(names[0])
        return found or (self.outer.find(column) if self.outer else None)

    def star(self, alias: str | None) -> Iterator[Output]:
        """What * or alias.* shows."""
        shown = set()
        for relation in self.relations:
            if alias is not None and relation.alias != alias:
                continue
            for output in relation.outputs:
                name = output.name.lower()
                if output.hidden or (alias is None and name in self.shared and name in shown):
                    continue
                shown.add(name)
                merged = self.shared.get(name) if alias is None else None
                yield replace(output, value=merged) if merged else output

    def _qualified(self, alias: str, name: str) -> Value | None:
        return next((relation.find(name) for relation in self.relations if relation.alias == alias), None)

    def _named(self, name: str) -> Value | None:
        if name in self.shared:
            return self.shared[name]
        found = (relation.find(name) for relation in self.relations)
        return next((value for value in found if value), None) or self.given.get(name)
