"""The functions of a row that mean the same to Spark as to DuckDB, as Spark's text for them.

A call is refused unless a signature fits: the types of its arguments, and literals where Spark's meaning holds for
these only. Names that begin with `lakerunner_` are our own functions (pipeline/ask/functions.py): Java folds case,
matches patterns and reads numbers in other ways than DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from lakerunner.lakeql.constants import integer
from lakerunner.lakeql.spark.values import NUMBERS, Type, Value, text

Types = tuple[Type, ...]
_TEXT: Types = (Type.TEXT, Type.NULL)
_MOMENT: Types = (Type.TIMESTAMP, Type.DATE)
_INT: Types = (Type.INTEGER, Type.BIGINT)


def _text_literal(node: exp.Expr) -> bool:
    return node.is_string


def _filled_literal(node: exp.Expr) -> bool:
    return node.is_string and node.name != ""


def _case_literal(node: exp.Expr) -> bool:
    return node.is_string and node.name in ("", "c", "i")


def _count_literal(node: exp.Expr) -> bool:
    number = integer(node)
    return number is not None and 0 <= number < 1 << 31


def _place_literal(node: exp.Expr) -> bool:
    return _count_literal(node) and integer(node) != 0


@dataclass(frozen=True)
class Literal:
    """An argument that must stand in the text: `fits` says which ones do."""

    types: Types
    fits: Callable[[exp.Expr], bool]


_TEXT_LITERAL = Literal(_TEXT, _text_literal)
_FILLED = Literal(_TEXT, _filled_literal)
_CASE = Literal(_TEXT, _case_literal)
_COUNT = Literal(_INT, _count_literal)
_PLACE = Literal(_INT, _place_literal)


@dataclass(frozen=True)
class Signature:
    """`gives` None: the type of the first argument."""

    takes: tuple[Types | Literal, ...]
    gives: Type | None
    sql: str

    def fits(self, nodes: list[exp.Expr], values: list[Value]) -> bool:
        return len(values) == len(self.takes) and all(map(_fits, self.takes, nodes, values))

    def value(self, values: list[Value]) -> Value:
        return Value(self.sql.format(*(value.sql for value in values)), self.gives or values[0].type)


def _fits(takes: Types | Literal, node: exp.Expr, value: Value) -> bool:
    if isinstance(takes, Literal):
        return value.type in takes.types and takes.fits(node)
    return value.type in takes


# Parts of a time that date_part, EXTRACT and the function of the same name give.
PARTS = {
    "year": "CAST(year({0}) AS BIGINT)",
    "quarter": "CAST(quarter({0}) AS BIGINT)",
    "month": "CAST(month({0}) AS BIGINT)",
    "week": "CAST(weekofyear({0}) AS BIGINT)",
    "day": "CAST(day({0}) AS BIGINT)",
    "hour": "CAST(hour({0}) AS BIGINT)",
    "minute": "CAST(minute({0}) AS BIGINT)",
    "second": "CAST(second({0}) AS BIGINT)",
    "dayofweek": "CAST(dayofweek({0}) - 1 AS BIGINT)",
    "isodow": "CAST(weekday({0}) + 1 AS BIGINT)",
    "dayofyear": "CAST(dayofyear({0}) AS BIGINT)",
}
PART_ALIASES = {
    "dow": "dayofweek",
    "doy": "dayofyear",
    "weekofyear": "week",
    "dayofmonth": "day",
    "weekday": "dayofweek",
}
_OF_DAY = ("hour", "minute", "second")
_MICROSECONDS = "timestamp_micros(({0} - pmod({0}, 1000L)) DIV 1000L)"
_EPOCH = "(CAST(unix_micros({0}) AS DOUBLE) / 1000000D)"


def part_signature(part: str) -> Signature | None:
    """Of a part's function; None if this engine does not have the part."""
    if part == "epoch":
        return Signature(((Type.TIMESTAMP,),), Type.DOUBLE, _EPOCH)
    sql = PARTS.get(PART_ALIASES.get(part, part))
    return Signature((_MOMENT if part not in _OF_DAY else (Type.TIMESTAMP,),), Type.BIGINT, sql) if sql else None


def _one(takes: Types, gives: Type | None, sql: str) -> tuple[Signature, ...]:
    return (Signature((takes,), gives, sql),)


_BOOLEAN_OF_TEXTS = {
    "contains": "contains({0}, {1})",
    "starts_with": "startswith({0}, {1})",
    "prefix": "startswith({0}, {1})",
    "ends_with": "endswith({0}, {1})",
    "suffix": "endswith({0}, {1})",
}
_SUBSTRING = (
    Signature((_TEXT, _PLACE), Type.TEXT, "substring({0}, {1})"),
    Signature((_TEXT, _PLACE, _COUNT), Type.TEXT, "substring({0}, {1}, {2})"),
)
_MATCHES = (
    Signature((_TEXT, _TEXT_LITERAL), Type.BOOLEAN, "lakerunner_matches({0}, {1}, '')"),
    Signature((_TEXT, _TEXT_LITERAL, _CASE), Type.BOOLEAN, "lakerunner_matches({0}, {1}, {2})"),
)
_FULL_MATCH = (
    Signature((_TEXT, _TEXT_LITERAL), Type.BOOLEAN, r"lakerunner_matches({0}, concat('\\A(?:', {1}, ')\\z'), '')"),
)
_FLOOR_OR_CEIL = "(CASE WHEN abs({{0}}) < 4503599627370496D THEN CAST({0}({{0}}) AS DOUBLE) ELSE {{0}} END)"
_EXACT = (Type.INTEGER, Type.BIGINT, Type.DOUBLE)
_LENGTH = _one(_TEXT, Type.BIGINT, "CAST(length({0}) AS BIGINT)")

FUNCTIONS: dict[str, tuple[Signature, ...]] = {
    **{name: (Signature((_TEXT, _TEXT), Type.BOOLEAN, sql),) for name, sql in _BOOLEAN_OF_TEXTS.items()},
    **{name: (found,) for name in (*PARTS, *PART_ALIASES, "epoch") if (found := part_signature(name))},
    **dict.fromkeys(("lower", "lcase"), _one(_TEXT, Type.TEXT, "lakerunner_lower({0})")),
    **dict.fromkeys(("upper", "ucase"), _one(_TEXT, Type.TEXT, "lakerunner_upper({0})")),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _LENGTH),
    "strlen": _one(_TEXT, Type.BIGINT, "CAST(octet_length({0}) AS BIGINT)"),
    **dict.fromkeys(("substring", "substr"), _SUBSTRING),
    "left": (Signature((_TEXT, _COUNT), Type.TEXT, "left({0}, {1})"),),
    "right": (Signature((_TEXT, _COUNT), Type.TEXT, "right({0}, {1})"),),
    "replace": (Signature((_TEXT, _FILLED, _TEXT_LITERAL), Type.TEXT, "replace({0}, {1}, {2})"),),
    **dict.fromkeys(
        ("strpos", "instr"), (Signature((_TEXT, _FILLED), Type.BIGINT, "CAST(instr({0}, {1}) AS BIGINT)"),)
    ),
    "regexp_matches": _MATCHES,
    "regexp_full_match": _FULL_MATCH,
    "md5": _one(_TEXT, Type.TEXT, "md5(CAST({0} AS BINARY))"),
    "from_hex": (Signature((_TEXT_LITERAL,), Type.BYTES, "unhex({0})"),),
    "abs": _one((Type.INTEGER, Type.BIGINT, Type.DECIMAL, Type.DOUBLE), None, "abs({0})"),
    "floor": _one((Type.DOUBLE,), Type.DOUBLE, _FLOOR_OR_CEIL.format("floor")),
    **dict.fromkeys(("ceil", "ceiling"), _one((Type.DOUBLE,), Type.DOUBLE, _FLOOR_OR_CEIL.format("ceil"))),
    "round": (
        Signature(((Type.DOUBLE,),), Type.DOUBLE, "lakerunner_round({0}, 0)"),
        Signature(((Type.DOUBLE,), _COUNT), Type.DOUBLE, "lakerunner_round({0}, {1})"),
    ),
    "isnan": _one((Type.DOUBLE,), Type.BOOLEAN, "(CASE WHEN {0} IS NOT NULL THEN isnan({0}) END)"),
    "isinf": _one((Type.DOUBLE,), Type.BOOLEAN, "(abs({0}) = CAST('Infinity' AS DOUBLE))"),
    "isfinite": _one((Type.DOUBLE,), Type.BOOLEAN, "(abs({0}) < CAST('Infinity' AS DOUBLE))"),
    "epoch_ns": _one((Type.TIME,), Type.BIGINT, "{0}"),
    "epoch_us": _one((Type.TIMESTAMP,), Type.BIGINT, "unix_micros({0})"),
    "epoch_ms": _one((Type.TIMESTAMP,), Type.BIGINT, "unix_millis({0})"),
    "make_timestamp_ns": _one(_INT, Type.TIME, "CAST({0} AS BIGINT)"),
    "microseconds": _one((Type.TIME,), Type.TIMESTAMP, _MICROSECONDS),
    **dict.fromkeys(
        ("map_extract_value", "element_at"),
        (Signature(((Type.MAP,), _TEXT_LITERAL), Type.TEXT, "try_element_at({0}, {1})"),),
    ),
    "map_contains": (Signature(((Type.MAP,), _TEXT), Type.BOOLEAN, "map_contains_key({0}, {1})"),),
    "cardinality": _one((Type.MAP,), Type.UNSIGNED, "CAST(size({0}) AS BIGINT)"),
}

_TRUNCATED = frozenset({*(set(PARTS) - {"dayofweek", "isodow", "dayofyear"}), "millisecond", "microsecond"})


def truncated(unit: str, value: Value) -> Value | None:
    """date_trunc; None if there is no such unit, or no such time."""
    if unit not in _TRUNCATED or value.type not in _MOMENT:
        return None
    return Value(f"date_trunc({text(unit)}, CAST({value.sql} AS TIMESTAMP))", Type.TIMESTAMP)


_BUCKET_ORIGIN_US = 946_857_600_000_000  # 2000-01-03, a Monday: where DuckDB's buckets of days and less begin


def bucketed(width_us: int, value: Value) -> Value:
    """time_bucket of a TIMESTAMP, by a width without months."""
    micros = f"unix_micros({value.sql})"
    return Value(f"timestamp_micros({micros} - pmod({micros} - {_BUCKET_ORIGIN_US}L, {width_us}L))", Type.TIMESTAMP)


def concatenated(values: list[Value]) -> Value | None:
    """concat, which leaves NULLs out. None if an argument's text is not the same in both."""
    if not all(value.type in (*_TEXT, *_INT, Type.BOOLEAN) for value in values):
        return None
    parts = ", ".join(f"coalesce(CAST({value.sql} AS STRING), '')" for value in values)
    return Value(f"concat({parts})", Type.TEXT)


def divided(left: Value, right: Value) -> Value:
    """/ gives a double, by zero too: there Spark would fail, and the power of a zero knows its sign."""
    one, other = f"CAST({left.sql} AS DOUBLE)", f"CAST({right.sql} AS DOUBLE)"
    sql = f"(CASE WHEN {other} = 0D THEN {one} * power({other}, -1D) ELSE {one} / {other} END)"
    return Value(sql, Type.DOUBLE)


def is_number(value: Value) -> bool:
    """That can be reckoned with: of unsigned numbers Spark would not see where DuckDB's overflow."""
    return value.type in NUMBERS and value.type is not Type.UNSIGNED
