"""Queries that can be answered time after time: what one stretch of time gives, no other changes.

That is so for the rows of one table in order of `timestamp` or in no order, and for groups of which one key is the
start of a bucket of `timestamp`, in order of that key or in no order. Then the first rows are there long before the
last are read, and a LIMIT ends the reading.
"""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.grouped import Reading, is_plain, keys_of, projected
from lakerunner.plan.sql import Rounds

_SECOND_NS = 1_000_000_000
_UNITS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": _SECOND_NS,
    "minute": 60 * _SECOND_NS,
    "hour": 3_600 * _SECOND_NS,
    "day": 86_400 * _SECOND_NS,
    "week": 7 * 86_400 * _SECOND_NS,
}
_MONDAY_NS = 10_959 * 86_400 * _SECOND_NS  # 2000-01-03: where buckets of time_bucket begin, and a week of date_trunc


def rounds_of(select: exp.Select, reading: Reading) -> Rounds | None:
    """How the answer to this SELECT, the whole query, can be worked out in rounds; None: all at once."""
    limits = limits_of(select)
    if (
        not is_plain(select)
        or limits is None
        or (select.args.get("distinct") and select.args["distinct"].args.get("on"))
    ):
        return None
    order = select.args.get("order")
    first = order.expressions[0] if order else None
    leading = projected(select, first.this, reading) if first is not None else None
    descending = bool(first is not None and first.args.get("desc"))
    limit, offset = limits
    keys = keys_of(select, reading)
    if keys is None:
        if _groups(select) or (leading is not None and not _is_timestamp(leading, reading)):
            return None
        return Rounds(descending, limit=limit, offset=offset)
    for key in keys:
        bucket = _bucket(key, reading)
        if bucket and (leading is None or reading.bare(leading) == reading.bare(key)):
            return Rounds(descending, *bucket, limit=limit, offset=offset)
    return None


def limits_of(select: exp.Select) -> tuple[int | None, int] | None:
    """(limit, offset) where they are plain numbers or absent; None otherwise."""
    values = []
    for clause in ("limit", "offset"):
        node = select.args.get(clause)
        number = node.expression if node is not None else None
        if node is not None and not (
            isinstance(node, exp.Limit | exp.Offset) and isinstance(number, exp.Literal) and number.is_int
        ):
            return None
        values.append(int(number.name) if number is not None else None)
    return values[0], values[1] or 0


def _groups(select: exp.Select) -> bool:
    """Whether it puts rows together in a way that keys_of does not understand."""
    return bool(select.args.get("group") or select.args.get("having") or select.args.get("distinct"))


def _is_timestamp(node: exp.Expr, reading: Reading) -> bool:
    return isinstance(node, exp.Column) and reading.is_row(node) and reading.bare(node) == '"timestamp"'


def _bucket(key: exp.Expr, reading: Reading) -> tuple[int, int] | None:
    """(width, origin) in ns of the buckets whose start the key is."""
    if _is_timestamp(key, reading):
        return 1, 0
    if not isinstance(key, exp.Anonymous) or len(key.expressions) != 2:
        return None
    width, time = key.expressions
    if not (
        isinstance(time, exp.Anonymous) and time.name == "microseconds" and _is_timestamp(time.expressions[0], reading)
    ):
        return None
    match key.name.lower():
        case "date_trunc" | "datetrunc" if width.is_string and width.name.lower() in _UNITS:
            unit = _UNITS[width.name.lower()]
            return unit, _MONDAY_NS % unit
        case "time_bucket":
            ns = _interval_ns(width)
            return (ns, _MONDAY_NS % ns) if ns else None
    return None


def _interval_ns(node: exp.Expr) -> int | None:
    """Of INTERVAL '5 minutes', INTERVAL 5 MINUTE; None where months or anything else is in it."""
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    words = [*node.this.name.split(), *([node.args["unit"].name] if node.args.get("unit") else [])]
    if len(words) != 2 or not words[0].isdigit():
        return None
    unit = _UNITS.get(words[1].lower().removesuffix("s"))
    return int(words[0]) * unit or None if unit else None
