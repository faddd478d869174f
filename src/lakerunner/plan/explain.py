"""A plan as text, for people: what the coordinator does, and below it what workers do for each leaf.

Comes in: a plan, and what the caller knows of each leaf beside it. Goes out: lines. The same plan always gives the same
lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakerunner.model.condition import Condition, Contains, Equals, Present
from lakerunner.model.signal import Attribute
from lakerunner.model.time import ALL_TIME, HOUR_NS, MAX_NS, MIN_NS, MINUTE_NS, SECOND_NS, TimeRange, time_text
from lakerunner.plan.scan import Scan
from lakerunner.plan.sql import Leaf, Rounds, SqlPlan

_INDENT = "  "
_UNITS = (("d", 24 * HOUR_NS), ("h", HOUR_NS), ("min", MINUTE_NS), ("s", SECOND_NS), ("ms", 1_000_000), ("us", 1_000))


def plan_lines(plan: SqlPlan, known: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """`known` are further lines on a leaf, by its relation."""
    lines = ["coordinator", *_indented(_coordinator(plan))]
    for leaf in plan.leaves:
        about = (known or {}).get(leaf.scan.relation, ())
        lines += _indented([f"workers, {leaf.scan.relation}", *_indented([*_leaf(leaf), *about])])
    return lines


def time_range_text(time: TimeRange) -> str:
    if time == ALL_TIME:
        return "all time"
    start = time_text(time.start_ns) if time.start_ns > MIN_NS else ""
    end = time_text(time.end_ns) if time.end_ns < MAX_NS else ""
    return f"[{start} .. {end})"


def _coordinator(plan: SqlPlan) -> Iterator[str]:
    yield _rounds(plan.rounds) if plan.rounds else "all at once"
    yield "rows as the workers give them" if plan.passes else f"sql {_one_line(plan.sql)}"


def _rounds(rounds: Rounds) -> str:
    order = "newest first" if rounds.descending else "oldest first"
    text = f"in rounds, {order}"
    if rounds.bucket_ns > 1:
        text += f", by whole buckets of {_duration(rounds.bucket_ns)}"
        if rounds.origin_ns:
            text += f" from {time_text(rounds.origin_ns)}"
    if rounds.limit is not None:
        text += f", limit {rounds.limit}"
    return text + (f", offset {rounds.offset}" if rounds.offset else "")


def _leaf(leaf: Leaf) -> Iterator[str]:
    yield f"sql {_one_line(leaf.sql)}"
    yield f"scan {leaf.scan.signal} {time_range_text(leaf.scan.time)}"
    yield from _indented(_scan(leaf.scan))


def _scan(scan: Scan) -> Iterator[str]:
    yield f"columns {', '.join(scan.columns) or 'none'}"
    if scan.attributes:
        yield f"attributes {', '.join(_name(attribute) for attribute in scan.attributes)}"
    if scan.ids:
        yield f"bytes of {', '.join(scan.ids)}"
    for condition in scan.conditions:
        yield f"where {_condition(condition)}"


def _condition(condition: Condition) -> str:
    match condition:
        case Equals(column, (value,)):
            return f"{_name(column)} is {_quoted(value)}"
        case Equals(column, values):
            return f"{_name(column)} is one of {', '.join(map(_quoted, values))}"
        case Contains(column, literal, ignore_case):
            return f"{_name(column)} contains {_quoted(literal)}" + (" in any case" if ignore_case else "")
        case Present(attributes):
            return " or ".join(map(_name, attributes)) + " is there"


def _name(column: str | Attribute) -> str:
    return column if isinstance(column, str) else f"{column.scope}[{_quoted(column.key)}]"


def _quoted(text: str) -> str:
    return "'" + _one_line(text).replace("'", "''") + "'"


def _one_line(text: str) -> str:
    """What would break a line, as an escape."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _duration(ns: int) -> str:
    for unit, size in _UNITS:
        if ns % size == 0:
            return f"{ns // size} {unit}"
    return f"{ns} ns"


def _indented(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [_INDENT + line for line in lines]
