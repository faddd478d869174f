"""What an expression is in Spark: its SQL, the DuckDB type whose values it carries, and casts between these types.

| DuckDB | carried as |
|---|---|
| TIMESTAMP_NS | BIGINT, nanoseconds since the epoch: Spark's own times end at microseconds |
| TIMESTAMP | TIMESTAMP, in a session whose zone is UTC |
| UTINYINT to UINTEGER, UBIGINT | BIGINT, DECIMAL(20, 0) |
| HUGEINT | DECIMAL(38, 0) |
| lists, structs | as they are; a query may hand them on, and do nothing else with them |

DuckDB rounds where Spark would cut, and reads more texts as numbers than Spark does: lakerunner_whole and
lakerunner_double (pipeline/ask/spark_functions.py) read them, and return NULL for text that is not a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp
from sqlglot.expressions.datatypes import DType


class Type(Enum):
    """The types of values; the text of each is what a user knows it by."""

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
    """SQL of Spark, and the DuckDB type of its values."""

    sql: str
    type: Type


NULL = Value("NULL", Type.NULL)


Types = tuple[Type, ...]


@dataclass(frozen=True)
class Literal:
    """An argument that must be a literal: `fits` tests which ones are allowed."""

    types: Types
    fits: Callable[[exp.Expr], bool]


@dataclass(frozen=True)
class Signature:
    """The types that a function takes and its SQL. `gives` None: the type of the first argument. `{distinct}` in the
    `sql` of an aggregate is where DISTINCT may stand; without it, DISTINCT is refused. `windowed`: OVER may follow."""

    takes: tuple[Types | Literal, ...]
    gives: Type | None
    sql: str
    windowed: bool = True

    def fits(self, nodes: list[exp.Expr], values: list[Value]) -> bool:
        return len(values) == len(self.takes) and all(map(_fits, self.takes, nodes, values))

    def value(self, values: list[Value], **parts: str) -> Value:
        return Value(self.sql.format(*(value.sql for value in values), **parts), self.gives or values[0].type)


def _fits(takes: Types | Literal, node: exp.Expr, value: Value) -> bool:
    if isinstance(takes, Literal):
        return value.type in takes.types and takes.fits(node)
    return value.type in takes


def of_one(takes: Types | Literal, gives: Type | None, sql: str) -> tuple[Signature, ...]:
    """Return the only signature of a function of one argument."""
    return (Signature((takes,), gives, sql),)


def common_type(types: list[Type]) -> Type | None:
    """Return the type that values of these types share without a change of meaning, if there is one."""
    known = {type_ for type_ in types if type_ is not Type.NULL}
    if len(known) <= 1:
        return next(iter(known), Type.NULL)
    if known <= set(NUMBERS):
        widest = max(known, key=_NARROW_FIRST.index)
        # An unsigned column beside an integer is a BIGINT or a HUGEINT to DuckDB; both hold all values here.
        return Type.HUGEINT if Type.UNSIGNED in known and widest in (*WHOLE, Type.UNSIGNED) else widest
    return None


def type_named(name: str) -> Type:
    """Return the type of a table's column, by DuckDB's name of it."""
    if name in ("UINTEGER", "UBIGINT"):
        return Type.UNSIGNED
    known = {type_.value: type_ for type_ in Type}
    return known.get(name, Type.OTHER)


def text_literal(value: str) -> str:
    """Return a text literal of Spark, which interprets backslashes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# ---- CAST and TRY_CAST as DuckDB does them

_TARGETS = {
    DType.BOOLEAN: Type.BOOLEAN,
    DType.INT: Type.INTEGER,
    DType.BIGINT: Type.BIGINT,
    DType.INT128: Type.HUGEINT,
    DType.DOUBLE: Type.DOUBLE,
    DType.DECIMAL: Type.DECIMAL,
    DType.TEXT: Type.TEXT,
    DType.VARCHAR: Type.TEXT,
    DType.DATE: Type.DATE,
    DType.TIMESTAMP: Type.TIMESTAMP,
    DType.TIMESTAMPNTZ: Type.TIMESTAMP,
    DType.TIMESTAMP_NS: Type.TIME,
}
_NAMES = {
    Type.BOOLEAN: "BOOLEAN",
    Type.INTEGER: "INT",
    Type.BIGINT: "BIGINT",
    Type.HUGEINT: "DECIMAL(38, 0)",
    Type.DOUBLE: "DOUBLE",
    Type.TEXT: "STRING",
    Type.DATE: "DATE",
    Type.TIMESTAMP: "TIMESTAMP",
    Type.TIME: "BIGINT",
    Type.BYTES: "BINARY",
    Type.UNSIGNED: "DECIMAL(20, 0)",
}
_HAS_TEXT = (Type.BOOLEAN, *WHOLE, Type.UNSIGNED)


def cast_target(node: exp.Cast) -> Type | None:
    return _TARGETS.get(node.to.this)


def cast(value: Value, node: exp.Cast) -> Value | None:
    """Return the cast, or None if Spark's is not known to give the same."""
    to = cast_target(node)
    if to is None:
        return None
    name = _decimal_type(node.to) if to is Type.DECIMAL else _NAMES[to]
    is_try = isinstance(node, exp.TryCast)
    sql = _cast_text(value.sql, to, is_try) if value.type is Type.TEXT else _cast_other(value, to, name, is_try)
    return Value(sql, to) if sql else None


def as_type(value: Value, to: Type) -> str:
    """Return the SQL of a value, converted to the type that it shares with others."""
    if value.type is to or to not in _NAMES:
        return value.sql
    return f"CAST({value.sql} AS {_NAMES[to]})"


def to_nanoseconds(value: Value) -> Value:
    """Convert a TIMESTAMP or DATE to a TIMESTAMP_NS."""
    return Value(f"(unix_micros(CAST({value.sql} AS TIMESTAMP)) * 1000L)", Type.TIME)


def _cast_text(sql: str, to: Type, is_try: bool) -> str | None:
    if to is Type.TEXT:
        return sql
    if to not in (Type.INTEGER, Type.BIGINT, Type.DOUBLE):
        return None
    read = f"lakerunner_{'double' if to is Type.DOUBLE else 'whole'}({sql})"
    tried = read if to is not Type.INTEGER else f"try_cast({read} AS INT)"
    if is_try:
        return tried
    failure = f"raise_error(concat('Could not convert string to {to.value}: ', {sql}))"
    return f"(CASE WHEN {sql} IS NULL OR {tried} IS NOT NULL THEN {tried} ELSE {failure} END)"


def _cast_other(value: Value, to: Type, name: str, is_try: bool) -> str | None:
    call = "try_cast" if is_try else "CAST"
    match value.type, to:
        case Type.NULL, _:
            return f"CAST(NULL AS {name})"
        case one, other if one is other and one is not Type.DECIMAL:
            return value.sql
        case one, Type.TEXT if one in _HAS_TEXT:
            return f"CAST({value.sql} AS STRING)"
        case Type.BOOLEAN, _ if to in WHOLE:
            return f"CAST({value.sql} AS {name})"
        case one, Type.DOUBLE if one in NUMBERS:
            return f"CAST({value.sql} AS DOUBLE)"
        case one, _ if one in (*WHOLE, Type.UNSIGNED) and to in (*WHOLE, Type.DECIMAL):
            return f"{call}({value.sql} AS {name})"
        case Type.DOUBLE, Type.INTEGER | Type.BIGINT:
            return f"{call}(rint({value.sql}) AS {name})"
        case Type.DECIMAL, _ if to in WHOLE:
            return f"{call}(round({value.sql}) AS {name})"
        case (Type.TIMESTAMP, Type.DATE) | (Type.DATE, Type.TIMESTAMP):
            return f"CAST({value.sql} AS {name})"
        case ((Type.TIMESTAMP | Type.DATE), Type.TIME) if not is_try:
            return to_nanoseconds(value).sql
    return None


def _decimal_type(to: exp.DataType) -> str:
    """Return the type with its width and scale; DuckDB's defaults where they are not stated."""
    stated = [parameter.name for parameter in to.expressions]
    width, scale = (*stated, "0")[:2] if stated else ("18", "3")
    return f"DECIMAL({width}, {scale})"
