"""CAST and TRY_CAST as DuckDB does them, in Spark's text.

DuckDB rounds where Spark would cut, and reads more texts as numbers than Spark does: lakerunner_whole and
lakerunner_double (pipeline/ask/functions.py) read them, and give NULL for what is none.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.spark.values import NUMBERS, WHOLE, Type, Value

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


def target(node: exp.Cast) -> Type | None:
    return _TARGETS.get(node.to.this)


def cast(value: Value, node: exp.Cast) -> Value | None:
    """None if this cast is not known to give the same."""
    to = target(node)
    if to is None:
        return None
    name = _decimal(node.to) if to is Type.DECIMAL else _NAMES[to]
    is_try = isinstance(node, exp.TryCast)
    sql = _of_text(value.sql, to, is_try) if value.type is Type.TEXT else _of_other(value, to, name, is_try)
    return Value(sql, to) if sql else None


def as_type(value: Value, to: Type) -> str:
    """The text of a value, made the type that it has in common with others."""
    if value.type is to or to not in _NAMES:
        return value.sql
    return f"CAST({value.sql} AS {_NAMES[to]})"


def nanoseconds(value: Value) -> Value:
    """A TIMESTAMP or DATE as a TIMESTAMP_NS."""
    return Value(f"(unix_micros(CAST({value.sql} AS TIMESTAMP)) * 1000L)", Type.TIME)


def _of_text(sql: str, to: Type, is_try: bool) -> str | None:
    if to is Type.TEXT:
        return sql
    if to not in (Type.INTEGER, Type.BIGINT, Type.DOUBLE):
        return None
    read = f"lakerunner_{'double' if to is Type.DOUBLE else 'whole'}({sql})"
    tried = read if to is not Type.INTEGER else f"try_cast({read} AS INT)"
    if is_try:
        return tried
    said = f"raise_error(concat('Could not convert string to {to.value}: ', {sql}))"
    return f"(CASE WHEN {sql} IS NULL OR {tried} IS NOT NULL THEN {tried} ELSE {said} END)"


def _of_other(value: Value, to: Type, name: str, is_try: bool) -> str | None:
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
            return nanoseconds(value).sql
    return None


def _decimal(to: exp.DataType) -> str:
    """With its width and scale; DuckDB's own where they are not stated."""
    stated = [parameter.name for parameter in to.expressions]
    width, scale = (*stated, "0")[:2] if stated else ("18", "3")
    return f"DECIMAL({width}, {scale})"
