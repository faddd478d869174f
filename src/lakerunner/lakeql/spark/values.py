"""What an expression is in Spark: its text, and the DuckDB type whose values it carries.

| DuckDB | carried as |
|---|---|
| TIMESTAMP_NS | BIGINT, nanoseconds since the epoch: Spark's own times end at microseconds |
| TIMESTAMP | TIMESTAMP, in a session whose zone is UTC |
| UTINYINT to UINTEGER, UBIGINT | BIGINT, DECIMAL(20, 0) |
| HUGEINT | DECIMAL(38, 0) |
| lists, structs | as they are; a query may hand them on, and do nothing else with them |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from lakerunner.lakeql.source import Source
from lakerunner.model.errors import UserError


class Type(Enum):
    """The name is what a user knows it by."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    UNSIGNED = "an unsigned integer"
    HUGEINT = "HUGEINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    TEXT = "VARCHAR"
    BYTES = "BLOB"
    TIME = "TIMESTAMP_NS"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    MAP = "MAP(VARCHAR, VARCHAR)"
    OTHER = "a list or struct"


WHOLE = (Type.INTEGER, Type.BIGINT, Type.HUGEINT)
NUMBERS = (*WHOLE, Type.UNSIGNED, Type.DECIMAL, Type.DOUBLE)
ORDERED = (*NUMBERS, Type.BOOLEAN, Type.TEXT, Type.BYTES, Type.TIME, Type.TIMESTAMP, Type.DATE, Type.NULL)
_NARROW_FIRST = (Type.INTEGER, Type.BIGINT, Type.UNSIGNED, Type.HUGEINT, Type.DECIMAL, Type.DOUBLE)


@dataclass(frozen=True)
class Value:
    sql: str
    type: Type


NULL = Value("NULL", Type.NULL)


class Refusals:
    """How a query is told what this engine does not have."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def not_available(self, what: str, node: exp.Expr, instead: str = "") -> UserError:
        advice = f": {instead}" if instead else ""
        return self._source.error(f"{what} is not available with engine=spark{advice}", node)


def common(types: list[Type]) -> Type | None:
    """The type that values of these types have in common without a change of meaning, if there is one."""
    known = {type_ for type_ in types if type_ is not Type.NULL}
    if len(known) <= 1:
        return next(iter(known), Type.NULL)
    if known <= set(NUMBERS):
        widest = max(known, key=_NARROW_FIRST.index)
        # An unsigned column beside an integer is a BIGINT or a HUGEINT to DuckDB; both hold all values here.
        return Type.HUGEINT if Type.UNSIGNED in known and widest in (*WHOLE, Type.UNSIGNED) else widest
    return None


def typed(name: str) -> Type:
    """Of a table's column, by DuckDB's name of its type."""
    if name in ("UINTEGER", "UBIGINT"):
        return Type.UNSIGNED
    known = {type_.value: type_ for type_ in Type}
    return known.get(name, Type.OTHER)


def text(value: str) -> str:
    """A literal of Spark, which reads backslashes in one."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
