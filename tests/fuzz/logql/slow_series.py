"""Vectors of the slow evaluator: aggregations, operators and label_replace at one step, on plain dictionaries."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from fuzz.logql.slow_labels import Undefined
from lakerunner.logql.text.syntax import Grouping, LabelReplace, Operation, VectorAggregation

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]


class SlowError(Exception):
    """The query fails. The first argument is the kind of failure."""


def without_empty(labels: Mapping[str, str]) -> Labels:
    return frozenset((name, value) for name, value in labels.items() if value)


def aggregated(node: VectorAggregation, inner: Vector) -> Vector:
    if node.op in ("sort", "sort_desc"):
        return inner
    grouping = node.grouping or Grouping(())
    groups: dict[Labels, list[tuple[Labels, float]]] = {}
    for labels, value in inner.items():
        kept = frozenset((name, text) for name, text in labels if (name in grouping.labels) != grouping.without)
        groups.setdefault(kept, []).append((labels, value))
    if node.op in ("topk", "bottomk", "approx_topk"):
        found: Vector = {}
        for members in groups.values():
            found.update(_best(members, node.parameter or 0, largest=node.op != "bottomk"))
        return found
    return {labels: _AGGREGATE[node.op]([value for _, value in members]) for labels, members in groups.items()}


def _best(members: list[tuple[Labels, float]], count: int, *, largest: bool) -> Vector:
    if count < 1:
        return {}
    if len(members) <= count:
        return dict(members)
    values = [value for _, value in members]
    if any(map(math.isnan, values)):
        raise Undefined("NaN among the best")
    ordered = sorted(members, key=lambda one: one[1], reverse=largest)
    if _close(ordered[count - 1][1], ordered[count][1]):
        raise Undefined("equal values at the cut")
    return dict(ordered[:count])


def _close(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=1e-9)


def variance_of(values: Sequence[float]) -> float:
    if any(not math.isfinite(value) for value in values):
        return math.nan
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def sum_of(values: Sequence[float]) -> float:
    if any(map(math.isnan, values)) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return sum(values) if any(map(math.isinf, values)) else math.fsum(values)


def _largest(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _smallest(values: Sequence[float]) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)


_AGGREGATE: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum_of,
    "avg": lambda values: sum_of(values) / len(values),
    "count": lambda values: float(len(values)),
    "max": _largest,
    "min": _smallest,
    "stddev": lambda values: math.sqrt(variance_of(values)),
    "stdvar": variance_of,
}


# ---- operators


def _divided(one: float, other: float) -> float:
    if other == 0:
        return math.nan
    return one / other


def _rest(one: float, other: float) -> float:
    return math.nan if other == 0 or math.isinf(one) or math.isnan(one) else math.fmod(one, other)


def _power(one: float, other: float) -> float:
    try:
        return math.pow(one, other)
    except ValueError:  # of a negative number, or 0 to a negative power
        return math.nan if one else math.inf
    except OverflowError:
        return -math.inf if one < 0 and other % 2 == 1 else math.inf


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _rest,
    "^": _power,
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def operated(node: Operation, left: Vector | float, right: Vector | float) -> Vector | float:
    if isinstance(left, float) and isinstance(right, float):
        found = _one_value(node, left, right, left)
        return math.nan if found is None else found
    if isinstance(left, float):
        assert isinstance(right, dict)
        pairs = {labels: _one_value(node, left, value, value) for labels, value in right.items()}
        return {labels: value for labels, value in pairs.items() if value is not None}
    if isinstance(right, float):
        pairs = {labels: _one_value(node, value, right, value) for labels, value in left.items()}
        return {labels: value for labels, value in pairs.items() if value is not None}
    return _sets(node, left, right) if node.op in ("and", "or", "unless") else _matched(node, left, right)


def _one_value(node: Operation, one: float, other: float, kept: float) -> float | None:
    if node.op in _ARITHMETIC:
        return _ARITHMETIC[node.op](one, other)
    if one != other and _close(one, other):
        raise Undefined("a comparison of numbers that are almost equal")
    met = _COMPARE[node.op](one, other)
    if node.return_bool:
        return float(met)
    return kept if met else None


def _key(node: Operation, labels: Labels) -> Labels:
    matching = node.matching
    if matching is None:
        return labels
    return frozenset((name, value) for name, value in labels if (name in matching.labels) == matching.on)


def _sets(node: Operation, left: Vector, right: Vector) -> Vector:
    rights = {_key(node, labels) for labels in right}
    if node.op == "and":
        return {labels: value for labels, value in left.items() if _key(node, labels) in rights}
    if node.op == "unless":
        return {labels: value for labels, value in left.items() if _key(node, labels) not in rights}
    lefts = {_key(node, labels) for labels in left}
    return {**left, **{labels: value for labels, value in right.items() if _key(node, labels) not in lefts}}


def _matched(node: Operation, left: Vector, right: Vector) -> Vector:
    matching = node.matching
    card = matching.card if matching else "one-to-one"
    many, one = (right, left) if card == "one-to-many" else (left, right)
    if not many or not one:
        return {}  # Loki fails where the other side has two series of one group (docs/formats/logql.md)
    by_key: dict[Labels, Labels] = {}
    for labels in one:
        if by_key.setdefault(_key(node, labels), labels) != labels:
            raise SlowError("matching")
    found: Vector = {}
    used: set[object] = set()
    for labels, value in many.items():
        key = _key(node, labels)
        if key not in by_key:
            continue
        other = one[by_key[key]]
        operands = (other, value) if card == "one-to-many" else (value, other)
        result = _one_value(node, *operands, operands[0])
        named = dict(labels)
        if matching and card == "one-to-one":
            named = {n: v for n, v in named.items() if (n in matching.labels) == matching.on}
        for name in matching.include if matching else ():
            named[name] = dict(by_key[key]).get(name, "")
        made = without_empty(named)
        match = key if card == "one-to-one" else (key, made)
        if match in used:  # also if the comparison drops one of both
            raise SlowError("matching")
        used.add(match)
        if result is not None:
            found[made] = result
    return found


def replaced(node: LabelReplace, inner: Vector) -> Vector:
    found: Vector = {}
    for labels, value in inner.items():
        named = dict(labels)
        match = re.fullmatch(node.pattern, named.get(node.source, ""), re.ASCII | re.DOTALL)
        made = labels
        if match:
            named[node.target] = match.expand(re.sub(r"\$(\d)", r"\\\1", node.replacement))
            made = without_empty(named)  # a series that is changed loses all of its empty labels
        if made in found:
            raise SlowError("same labels")
        found[made] = value
    return found
