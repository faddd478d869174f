"""The writing of expressions for Spark: what all kinds of them share.

Comes in: a node of the resolved and rewritten tree, and what names stand for there. Goes out: a Value. Each kind of
node has its writer (lakeql/spark/expressions.py has the table); a node without one is refused, with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.spark.casts import as_type, nanoseconds
from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import ORDERED, Refusals, Type, Value, common
from lakerunner.model.errors import UserError

Subquery = Callable[[exp.Expr, Scope], tuple[str, list[Type]]]
Writers = Mapping[type[exp.Expr], Callable[["Writer", Any, Scope], Value]]

_BOOLEAN = (Type.BOOLEAN, Type.NULL)
_OPERANDS = frozenset({"this", "expression", "expressions"})
_QUERY = frozenset(exp.Select.arg_types)  # lakeql/allowed.py has looked at the clauses
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
    """`subquery` writes a SELECT inside an expression, and says the types of its columns."""

    def __init__(self, writers: Writers, refusals: Refusals, constants: Constants, subquery: Subquery) -> None:
        self._writers = writers
        self.refusals = refusals
        self.constants = constants
        self.subquery = subquery

    def value(self, node: exp.Expr, scope: Scope) -> Value:
        write = self._writers.get(type(node))
        read = _READ.get(type(node), _OPERANDS)
        # What sqlglot notes beside the operands changes the meaning: nothing of it may be overlooked.
        if write is None or any(given and name not in read for name, given in node.args.items()):
            raise self.refused(node)
        return write(self, node, scope)

    def condition(self, node: exp.Expr, scope: Scope) -> str:
        value = self.value(node, scope)
        if value.type not in _BOOLEAN:
            raise self.refusals.not_available(f"{value.type.value} as a condition", node, "compare it")
        return value.sql

    def compared(self, operator: str, one: Value, other: Value, node: exp.Expr) -> str:
        left, right = self.alike([one, other], node)
        return f"({left} {operator} {right})"

    def refused(self, node: exp.Expr, instead: str = "") -> UserError:
        name = _OPERATORS.get(type(node), type(node).__name__.upper())
        return self.refusals.not_available(name, node, instead)

    def mismatched(self, name: str, values: Sequence[Value], node: exp.Expr) -> UserError:
        """Of a call whose arguments no signature fits."""
        types = ", ".join(value.type.value for value in values)
        return self.refusals.not_available(f"{name} of {types} as it stands here", node)

    def alike(self, values: Sequence[Value], node: exp.Expr) -> list[str]:
        """The values as one type, in which they can be compared or stand for each other."""
        given = list(values)
        if any(value.type is Type.TIME for value in given):
            given = [nanoseconds(v) if v.type in (Type.TIMESTAMP, Type.DATE) else v for v in given]
        both = common([value.type for value in given])
        if both is None or both not in ORDERED:
            names = " and ".join(sorted({value.type.value for value in given}))
            raise self.refusals.not_available(f"{names} side by side", node, "cast to one type")
        if both in (Type.DECIMAL, Type.HUGEINT):  # Spark finds the precision that holds them all
            return [value.sql for value in given]
        return [as_type(value, both) for value in given]

    def one_type(self, values: Sequence[Value]) -> Type:
        types = [value.type for value in values]
        if Type.TIME in types:
            return Type.TIME
        return common(types) or Type.NULL
