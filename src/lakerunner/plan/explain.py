"""Describe a plan as text: what the coordinator does, and below it what workers do for each leaf.

Comes in: a plan, and further lines about its leaves. Goes out: lines. The same plan always gives the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Labelled, NotNull, Present, Stored
from lakerunner.model.display import sql_quoted
from lakerunner.model.signal import Attribute
from lakerunner.model.tier import RAW, tier_text
from lakerunner.model.time import time_range_text
from lakerunner.plan.plan import Cut, Leaf, Plan, Rollup
from lakerunner.plan.scan import Scan

_INDENT = "  "


class Explain(Enum):
    """What a query returns: its answer, its plan without running it, or its plan and what running it took."""

    NO = "no"
    PLAN = "plan"
    ANALYZE = "analyze"


def plan_lines(plan: Plan, known: Mapping[Leaf, Sequence[str]] | None = None) -> list[str]:
    """Describe the plan. `known` has further lines about leaves."""
    lines = ["coordinator", *_indented(plan.finish.lines())]
    for leaf in plan.leaves:
        about = (known or {}).get(leaf, ())
        lines += _indented([f"workers, {leaf.scan.relation}", *_indented([*_leaf(leaf), *about])])
    return lines


def _leaf(leaf: Leaf) -> Iterator[str]:
    yield from leaf.operator.lines()
    if leaf.cut is not Cut.SEGMENTS:
        yield f"cut by {leaf.cut}"
    if leaf.rollup:
        yield _rollup(leaf.rollup)
    if leaf.points:
        yield f"from points of rule {leaf.points.name}, {time_range_text(leaf.points.made.scan.time)}"
        yield from _indented(leaf.points.made.operator.lines())
    yield from leaf.refused
    yield f"scan {leaf.scan.signal} {time_range_text(leaf.scan.time)}"
    yield from _indented(_scan(leaf.scan, by_columns=leaf.operator.input == "rows"))


def _rollup(rollup: Rollup) -> str:
    widest = "raw points" if rollup.tier == RAW else f"{tier_text(rollup.tier)} or finer"
    return f"read {widest}" + (f": {rollup.reason}" if rollup.reason else "")


def _scan(scan: Scan, *, by_columns: bool) -> Iterator[str]:
    if by_columns:
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
            return f"{_name(column)} is {sql_quoted(value)}"
        case Equals(column, values):
            return f"{_name(column)} is one of {', '.join(map(sql_quoted, values))}"
        case Contains(column, literal, ignore_case, is_word):
            text = f"{'word ' if is_word else ''}{sql_quoted(literal)}{' in any case' if ignore_case else ''}"
            return f"{_name(column)} contains {text}"
        case Present(attributes):
            return " or ".join(map(_name, attributes)) + " is there"
        case Labelled(scope, name, None):
            return f"{scope} has label {name}"
        case Labelled(scope, name, values):
            return f"{scope} has label {name} of {', '.join(map(sql_quoted, values or ()))}"
        case NotNull(column):
            return f"{column} is not null"
        case Stored(column, values):
            return f"stored {column} is one of {', '.join(map(sql_quoted, values))}"
        case AnyOf(conditions):
            return " or ".join(map(_part, conditions))
        case AllOf(conditions):
            return " and ".join(map(_part, conditions))


def _part(condition: Condition) -> str:
    return f"({_condition(condition)})" if isinstance(condition, AnyOf | AllOf) else _condition(condition)


def _name(column: str | Attribute) -> str:
    return column if isinstance(column, str) else f"{column.scope}[{sql_quoted(column.key)}]"


def _indented(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [_INDENT + line for line in lines]
