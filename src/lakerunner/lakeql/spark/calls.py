"""Casts, and calls of the functions of a row that mean the same to Spark as to DuckDB, in Spark's SQL.

A call is refused unless a signature fits: the types of its arguments, and literals where Spark's meaning holds for
these only. Names that begin with `lakerunner_` are our own functions (pipeline/ask/spark_functions.py): Java folds
case, matches patterns and reads numbers in other ways than DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from lakerunner.lakeql.constants import read_integer
from lakerunner.lakeql.spark.aggregates import AGGREGATES, WINDOW_FUNCTIONS, write_aggregate
from lakerunner.lakeql.spark.values import (
    Literal,
    Signature,
    Type,
    Types,
    Value,
    cast,
    cast_target,
    of_one,
    text_literal,
)
from lakerunner.lakeql.spark.writer import SparkScope, Writer, Writers
from lakerunner.model.time import MAX_NS

_TEXT: Types = (Type.TEXT, Type.NULL)
_MOMENT: Types = (Type.TIMESTAMP, Type.DATE)
_INT: Types = (Type.INTEGER, Type.BIGINT)


def _count_literal(node: exp.Expr) -> bool:
    number = read_integer(node)
    return number is not None and 0 <= number < 1 << 31


_TEXT_LITERAL = Literal(_TEXT, lambda node: node.is_string)
_FILLED = Literal(_TEXT, lambda node: node.is_string and node.name != "")
_CASE = Literal(_TEXT, lambda node: node.is_string and node.name in ("", "c", "i"))
_COUNT = Literal(_INT, _count_literal)
_PLACE = Literal(_INT, lambda node: _count_literal(node) and read_integer(node) != 0)


# Parts of a time that date_part, EXTRACT and the function of the same name return.
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
    """Return the signature of a part's function; None if this engine does not have the part."""
    if part == "epoch":
        return Signature(((Type.TIMESTAMP,),), Type.DOUBLE, _EPOCH)
    sql = PARTS.get(PART_ALIASES.get(part, part))
    return Signature((_MOMENT if part not in _OF_DAY else (Type.TIMESTAMP,),), Type.BIGINT, sql) if sql else None


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
_LENGTH = of_one(_TEXT, Type.BIGINT, "CAST(length({0}) AS BIGINT)")

FUNCTIONS: dict[str, tuple[Signature, ...]] = {
    **{name: (Signature((_TEXT, _TEXT), Type.BOOLEAN, sql),) for name, sql in _BOOLEAN_OF_TEXTS.items()},
    **{name: (found,) for name in (*PARTS, *PART_ALIASES, "epoch") if (found := part_signature(name))},
    **dict.fromkeys(("lower", "lcase"), of_one(_TEXT, Type.TEXT, "lakerunner_lower({0})")),
    **dict.fromkeys(("upper", "ucase"), of_one(_TEXT, Type.TEXT, "lakerunner_upper({0})")),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _LENGTH),
    "strlen": of_one(_TEXT, Type.BIGINT, "CAST(octet_length({0}) AS BIGINT)"),
    **dict.fromkeys(("substring", "substr"), _SUBSTRING),
    "left": (Signature((_TEXT, _COUNT), Type.TEXT, "left({0}, {1})"),),
    "right": (Signature((_TEXT, _COUNT), Type.TEXT, "right({0}, {1})"),),
    "replace": (Signature((_TEXT, _FILLED, _TEXT_LITERAL), Type.TEXT, "replace({0}, {1}, {2})"),),
    **dict.fromkeys(
        ("strpos", "instr"), (Signature((_TEXT, _FILLED), Type.BIGINT, "CAST(instr({0}, {1}) AS BIGINT)"),)
    ),
    "regexp_matches": _MATCHES,
    "regexp_full_match": _FULL_MATCH,
    "md5": of_one(_TEXT, Type.TEXT, "md5(CAST({0} AS BINARY))"),
    "from_hex": (Signature((_TEXT_LITERAL,), Type.BYTES, "unhex({0})"),),
    "abs": of_one((Type.INTEGER, Type.BIGINT, Type.DECIMAL, Type.DOUBLE), None, "abs({0})"),
    "floor": of_one((Type.DOUBLE,), Type.DOUBLE, _FLOOR_OR_CEIL.format("floor")),
    **dict.fromkeys(("ceil", "ceiling"), of_one((Type.DOUBLE,), Type.DOUBLE, _FLOOR_OR_CEIL.format("ceil"))),
    "round": (
        Signature(((Type.DOUBLE,),), Type.DOUBLE, "lakerunner_round({0}, 0)"),
        Signature(((Type.DOUBLE,), _COUNT), Type.DOUBLE, "lakerunner_round({0}, {1})"),
    ),
    "isnan": of_one((Type.DOUBLE,), Type.BOOLEAN, "(CASE WHEN {0} IS NOT NULL THEN isnan({0}) END)"),
    "isinf": of_one((Type.DOUBLE,), Type.BOOLEAN, "(abs({0}) = CAST('Infinity' AS DOUBLE))"),
    "isfinite": of_one((Type.DOUBLE,), Type.BOOLEAN, "(abs({0}) < CAST('Infinity' AS DOUBLE))"),
    "epoch_ns": of_one((Type.TIME,), Type.BIGINT, "{0}"),
    "epoch_us": of_one((Type.TIMESTAMP,), Type.BIGINT, "unix_micros({0})"),
    "epoch_ms": of_one((Type.TIMESTAMP,), Type.BIGINT, "unix_millis({0})"),
    "make_timestamp_ns": of_one(_INT, Type.TIME, "CAST({0} AS BIGINT)"),
    "microseconds": of_one((Type.TIME,), Type.TIMESTAMP, _MICROSECONDS),
    **dict.fromkeys(
        ("map_extract_value", "element_at"),
        (Signature(((Type.MAP,), _TEXT_LITERAL), Type.TEXT, "try_element_at({0}, {1})"),),
    ),
    "map_contains": (Signature(((Type.MAP,), _TEXT), Type.BOOLEAN, "map_contains_key({0}, {1})"),),
    "cardinality": of_one((Type.MAP,), Type.UNSIGNED, "CAST(size({0}) AS BIGINT)"),
}

_TRUNCATED = frozenset({*(set(PARTS) - {"dayofweek", "isodow", "dayofyear"}), "millisecond", "microsecond"})


_BUCKET_ORIGIN_US = 946_857_600_000_000  # 2000-01-03, a Monday: where DuckDB's buckets of days and less begin


# ---- calls


def _cast(w: Writer, node: exp.Cast, scope: SparkScope) -> Value:
    if node.this.is_string and cast_target(node) in (Type.TIME, Type.TIMESTAMP, Type.DATE):
        return _constant_time(w, node)
    value = w.value(node.this, scope)
    made = cast(value, node)
    if made is None:
        what = f"a cast from {value.type.value} to {node.to.sql('duckdb')}"
        raise w.not_available(what, node)
    return made


def _constant_time(w: Writer, node: exp.Cast) -> Value:
    to, written = cast_target(node), node.this.name
    if to is Type.TIME and written in ("infinity", "-infinity"):
        return Value(f"{'-' if written[0] == '-' else ''}{MAX_NS}L", Type.TIME)
    time = w.constants.time(node)
    if time is None or isinstance(node, exp.TryCast):
        raise w.not_available("a cast of this text to a time", node)
    if to is Type.TIME:
        return Value(f"{time.ns}L", Type.TIME)
    micros = Value(f"timestamp_micros({time.ns // 1000}L)", Type.TIMESTAMP)
    return micros if to is Type.TIMESTAMP else Value(f"CAST({micros.sql} AS DATE)", Type.DATE)


def _bracket(w: Writer, node: exp.Bracket, scope: SparkScope) -> Value:
    value = w.value(node.this, scope)
    if value.type is not Type.MAP or len(node.expressions) != 1 or not node.expressions[0].is_string:
        raise w.not_available("[...]", node)
    return Value(f"try_element_at({value.sql}, {text_literal(node.expressions[0].name)})", Type.TEXT)


def _call(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    name = node.name.lower()
    if name in AGGREGATES or name in WINDOW_FUNCTIONS:
        return write_aggregate(w, node, scope, "")
    if name in _SPECIAL:
        write, fewest, most = _SPECIAL[name]
        if not fewest <= len(node.expressions) <= most:
            raise w.not_available(f"{name} of {len(node.expressions)} arguments", node)
        return write(w, node, scope)
    return _call_by_signature(w, name, node.expressions, node, scope)


def _call_by_signature(w: Writer, name: str, arguments: list[exp.Expr], node: exp.Expr, scope: SparkScope) -> Value:
    """Write a call by the signature that fits its arguments."""
    if name not in FUNCTIONS:
        raise w.not_available(f"function {name}", node)
    values = [w.value(argument, scope) for argument in arguments]
    for signature in FUNCTIONS[name]:
        if signature.fits(arguments, values):
            return signature.value(values)
    raise w.mismatched(name, values, node)


def _match_pattern(w: Writer, node: exp.Binary, scope: SparkScope) -> Value:
    """Write x ~ 'pattern', which matches the whole of x."""
    sides = [node.this, node.expression]
    return _call_by_signature(w, "regexp_full_match", sides, node, scope)


def _substring(w: Writer, node: exp.Substring, scope: SparkScope) -> Value:
    arguments = [part for part in (node.this, node.args.get("start"), node.args.get("length")) if part]
    return _call_by_signature(w, "substring", arguments, node, scope)


def _choose(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    """Write coalesce, greatest or least, which return one of the arguments."""
    values = [w.value(argument, scope) for argument in node.expressions]
    name = {"ifnull": "coalesce"}.get(node.name.lower(), node.name.lower())
    alike = w.alike(values, node)
    return Value(f"{name}({', '.join(alike)})" if len(alike) > 1 else alike[0], w.one_type(values))


def _nullif(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    one, other = (w.value(argument, scope) for argument in node.expressions)
    return Value(f"(CASE WHEN {w.compared('=', one, other, node)} THEN NULL ELSE {one.sql} END)", one.type)


def _if(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    test, *results = node.expressions
    values = [w.value(result, scope) for result in results]
    yes, no = w.alike(values, node)
    return Value(f"(CASE WHEN {w.condition(test, scope)} THEN {yes} ELSE {no} END)", w.one_type(values))


def _concat(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    """Write concat, which leaves NULLs out. Refuse an argument whose text differs between both engines."""
    values = [w.value(argument, scope) for argument in node.expressions]
    if not all(value.type in (*_TEXT, *_INT, Type.BOOLEAN) for value in values):
        raise w.mismatched("concat", values, node)
    parts = ", ".join(f"coalesce(CAST({value.sql} AS STRING), '')" for value in values)
    return Value(f"concat({parts})", Type.TEXT)


def _date_part(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    part, of = node.expressions
    signature = part_signature(part.name.lower()) if part.is_string else None
    value = w.value(of, scope)
    if signature is None or not signature.fits([of], [value]):
        raise w.not_available(f"date_part {part.sql()} of {value.type.value}", node)
    return signature.value([value])


def _date_trunc(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    unit, of = node.expressions
    value = w.value(of, scope)
    if not unit.is_string or unit.name.lower() not in _TRUNCATED or value.type not in _MOMENT:
        raise w.not_available(f"date_trunc {unit.sql()} of {value.type.value}", node)
    return Value(f"date_trunc({text_literal(unit.name.lower())}, CAST({value.sql} AS TIMESTAMP))", Type.TIMESTAMP)


def _time_bucket(w: Writer, node: exp.Anonymous, scope: SparkScope) -> Value:
    width = w.constants.interval(node.expressions[0])
    value = w.value(node.expressions[1], scope)
    if not width or width.months or value.type is not Type.TIMESTAMP:
        raise w.not_available("time_bucket as it stands here", node, "use a width of days or less, and a TIMESTAMP")
    size = width.days * 86_400_000_000 + width.ns // 1000
    if size <= 0:
        raise w.not_available("time_bucket with a width of 0 or less", node)
    micros = f"unix_micros({value.sql})"
    return Value(f"timestamp_micros({micros} - pmod({micros} - {_BUCKET_ORIGIN_US}L, {size}L))", Type.TIMESTAMP)


# Each with its smallest and largest number of arguments.
_SPECIAL: dict[str, tuple[Callable[[Writer, exp.Anonymous, SparkScope], Value], int, int]] = {
    **dict.fromkeys(("coalesce", "greatest", "least"), (_choose, 1, 1000)),
    "ifnull": (_choose, 2, 2),
    "nullif": (_nullif, 2, 2),
    "if": (_if, 3, 3),
    "concat": (_concat, 1, 1000),
    **dict.fromkeys(("date_part", "datepart"), (_date_part, 2, 2)),
    **dict.fromkeys(("date_trunc", "datetrunc"), (_date_trunc, 2, 2)),
    "time_bucket": (_time_bucket, 2, 2),
}
CALLS: Writers = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Bracket: _bracket,
    exp.Anonymous: _call,
    exp.RegexpLike: _match_pattern,
    exp.Substring: _substring,
}
