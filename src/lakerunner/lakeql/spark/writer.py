"""Write expressions for Spark: what all kinds of expressions share, and what a name stands for.

Comes in: a node of the resolved and rewritten tree, and the relations around it. Goes out: a Value. Each kind of node
has its writer (WRITERS in lakeql/spark/translate.py); a node without one is refused, with its place.

Lookup of names follows lakeql/scope.py, which has refused by then what is unknown or ambiguous. Every relation of the
SQL for Spark has a name of its own, and so has every column that a SELECT returns: no name can mean two things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.spark.values import ORDERED, Type, Value, as_type, common_type, to_nanoseconds
from lakerunner.model.errors import UserError


@dataclass(frozen=True)
class OutputColumn:
    """A column that a relation returns: `name` is the user's, "" where DuckDB would make one up. A star does not show a
    hidden one."""

    name: str
    value: Value
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """`alias` is the user's name for it. The values of the outputs are qualified for the enclosing SELECT."""

    alias: str
    outputs: tuple[OutputColumn, ...]

    def find(self, name: str) -> Value | None:
        return next((output.value for output in self.outputs if output.name.lower() == name), None)


@dataclass
class SparkScope:
    """`shared` are the columns that USING has joined; `given` are the aliases of the SELECT list."""

    outer: SparkScope | None = None
    relations: list[Relation] = field(default_factory=list)
    shared: dict[str, Value] = field(default_factory=dict)
    given: dict[str, Value] = field(default_factory=dict)

    def find(self, column: exp.Column) -> Value | None:
        names = [part.name.lower() for part in column.parts]
        if len(names) > 2:
            return None
        found = self._qualified(*names) if len(names) == 2 else self._named(names[0])
        return found or (self.outer.find(column) if self.outer else None)

    def star(self, alias: str | None) -> Iterator[OutputColumn]:
        """Yield what * or alias.* shows."""
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


# ---- expressions

Subquery = Callable[[exp.Expr, SparkScope], tuple[str, list[Type]]]
Writers = Mapping[type[exp.Expr], Callable[["Writer", Any, SparkScope], Value]]

_BOOLEAN = (Type.BOOLEAN, Type.NULL)
_OPERANDS = frozenset({"this", "expression", "expressions"})
_QUERY = frozenset(exp.Select.arg_types)  # lakeql/allowed.py has checked the clauses
_READ: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Is: _OPERANDS | {"negate"},
    exp.Like: _OPERANDS | {"negate"},
    exp.ILike: _OPERANDS | {"negate"},
    exp.Between: frozenset({"this", "low", "high", "symmetric"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.DPipe: _OPERANDS | {"safe"},
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "alias", "over"}),
    exp.Select: _QUERY,
    exp.Subquery: _QUERY | {"this", "alias"},
}
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Mod: "%",
    exp.Pow: "**",
    exp.Glob: "GLOB",
    exp.SimilarTo: "SIMILAR TO",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.Array: "[...]",
    exp.Struct: "{...}",
    exp.IntDiv: "//",
}


class Writer:
    """`subquery` writes a SELECT inside an expression, and returns the types of its columns."""

    def __init__(self, writers: Writers, source: QueryText, constants: Constants, subquery: Subquery) -> None:
        self._writers = writers
        self._source = source
        self.constants = constants
        self.subquery = subquery

    def value(self, node: exp.Expr, scope: SparkScope) -> Value:
        write = self._writers.get(type(node))
        read = _READ.get(type(node), _OPERANDS)
        # Other arguments of a node change its meaning: one that is not read here must be refused.
        if write is None or any(given and name not in read for name, given in node.args.items()):
            raise self.refused(node)
        return write(self, node, scope)

    def condition(self, node: exp.Expr, scope: SparkScope) -> str:
        value = self.value(node, scope)
        if value.type not in _BOOLEAN:
            raise self.not_available(f"{value.type.value} as a condition", node, "compare it")
        return value.sql

    def compared(self, operator: str, one: Value, other: Value, node: exp.Expr) -> str:
        left, right = self.alike([one, other], node)
        return f"({left} {operator} {right})"

    def not_available(self, what: str, node: exp.Expr, instead: str = "") -> UserError:
        """Return the error about what this engine does not have."""
        advice = f": {instead}" if instead else ""
        return self._source.error(f"{what} is not available with engine=spark{advice}", node)

    def refused(self, node: exp.Expr, instead: str = "") -> UserError:
        name = _OPERATORS.get(type(node), type(node).__name__.upper())
        return self.not_available(name, node, instead)

    def mismatched(self, name: str, values: Sequence[Value], node: exp.Expr) -> UserError:
        """Return the refusal of a call whose arguments fit no signature."""
        types = ", ".join(value.type.value for value in values)
        return self.not_available(f"{name} of {types} as it stands here", node)

    def alike(self, values: Sequence[Value], node: exp.Expr) -> list[str]:
        """Return the values converted to one type, in which they can be compared or replace each other."""
        given = list(values)
        if any(value.type is Type.TIME for value in given):
            given = [to_nanoseconds(v) if v.type in (Type.TIMESTAMP, Type.DATE) else v for v in given]
        both = common_type([value.type for value in given])
        if both is None or both not in ORDERED:
            names = " and ".join(sorted({value.type.value for value in given}))
            raise self.not_available(f"{names} side by side", node, "cast to one type")
        if both in (Type.DECIMAL, Type.HUGEINT):  # Spark finds the precision that holds them all
            return [value.sql for value in given]
        return [as_type(value, both) for value in given]

    def one_type(self, values: Sequence[Value]) -> Type:
        types = [value.type for value in values]
        if Type.TIME in types:
            return Type.TIME
        return common_type(types) or Type.NULL
