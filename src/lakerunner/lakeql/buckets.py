"""Buckets of time: expressions that give the start of the bucket in which a row's `timestamp` lies.

Comes in: an expression as lakeql/rewrite.py leaves it. Goes out: which buckets these are; and an SQL expression of the
same values that takes half the time: of a time in nanoseconds one division, where DuckDB's own functions take a time in
microseconds, which is another division before theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from lakerunner.lakeql.dialect import written
from lakerunner.lakeql.functions import BUCKET_START, MICROSECONDS

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
_WIDEST_NS = 1 << 62  # as one number of DuckDB


@dataclass(frozen=True)
class Bucket:
    """Buckets of so many ns that begin at whole multiples of that since the epoch, plus `origin_ns`, which is less."""

    width_ns: int
    origin_ns: int
    time: exp.Expr

    def start_sql(self) -> str | None:
        """None: there is no faster way."""
        if self.origin_ns or self.width_ns > _WIDEST_NS:
            return None
        return f"{BUCKET_START}({written(self.time)}, {self.width_ns})"


def bucket_of(key: exp.Expr, is_timestamp: Callable[[exp.Expr], bool]) -> Bucket | None:
    """The buckets of `timestamp` whose start a call of date_trunc or time_bucket gives."""
    if not isinstance(key, exp.Anonymous) or len(key.expressions) != 2:
        return None
    width, cut = key.expressions
    if not (isinstance(cut, exp.Anonymous) and cut.name == MICROSECONDS and is_timestamp(cut.expressions[0])):
        return None
    match key.name.lower():
        case "date_trunc" | "datetrunc" if width.is_string:
            ns = _UNITS.get(width.name.lower())
        case "time_bucket":
            ns = _interval_ns(width)
        case _:
            return None
    return Bucket(ns, _MONDAY_NS % ns, cut.expressions[0]) if ns else None


def _interval_ns(node: exp.Expr) -> int | None:
    """Of INTERVAL '5 minutes', INTERVAL 5 MINUTE; None where months or anything else is in it."""
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    words = [*node.this.name.split(), *([node.args["unit"].name] if node.args.get("unit") else [])]
    if len(words) != 2 or not words[0].isdigit():
        return None
    unit = _UNITS.get(words[1].lower().removesuffix("s"))
    return int(words[0]) * unit or None if unit else None
