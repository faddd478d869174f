"""Arithmetic on the numbers of a vector and on scalars, trigonometry (radians unless the name says otherwise), the
conversions between vector and scalar, absent() and absent_over_time()."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lakerunner.model.labels import NAME, NO_LABELS, Labels, labels_of
from lakerunner.model.labels.matcher import Matcher, matches_empty
from lakerunner.series.arrays import Bools, Floats
from lakerunner.series.expression import Expression, Range, Selector, bare
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import (
    MATRIX,
    SCALAR,
    VECTOR,
    elementwise,
    float_samples,
    map_numbers,
    scalar_of,
    vector_of,
    windows_of,
)
from lakerunner.series.math import arithmetic
from lakerunner.series.math.arithmetic import exp, log, log2, log10, maximum, minimum
from lakerunner.series.values import Scalar, Vector


def _sgn(values: Floats) -> Floats:
    """Return the sign. Zero keeps its sign and NaN stays NaN."""
    signs: Floats = np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))
    return signs


def _clamp(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), scalar_of(invocation, 1), scalar_of(invocation, 2))


def _clamp_min(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), scalar_of(invocation, 1), np.full(len(invocation.steps), math.inf))


def _clamp_max(invocation: Invocation) -> Vector:
    return _clamp_between(vector_of(invocation), np.full(len(invocation.steps), -math.inf), scalar_of(invocation, 1))


def _clamp_between(vector: Vector, low: Floats, high: Floats) -> Vector:
    """Clamp to [low, high]. Steps where low is above high have no samples."""
    clamped = map_numbers(vector, lambda values: maximum(low, minimum(high, values)))
    return replace(clamped, present=clamped.present & ~(high < low))


def _round(invocation: Invocation) -> Vector:
    """Round; ties go up. Multiplies by the inverse as Prometheus does, since 1/0.1 is exact and 0.1 is not."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / scalar_of(invocation, 1) if len(invocation.arguments) > 1 else np.ones(len(invocation.steps))
    return map_numbers(vector_of(invocation), lambda values: np.floor(values * inverse + 0.5) / inverse)


def _of_two(name: str, choose: Callable[[Floats, Floats], Floats]) -> Function:
    def evaluate(invocation: Invocation) -> Scalar:
        return Scalar(choose(scalar_of(invocation, 0), scalar_of(invocation, 1)))

    return Function(name, (SCALAR, SCALAR), SCALAR, evaluate, per_series=False, experimental=True)


NUMBERS = (
    elementwise("abs", np.abs),
    elementwise("ceil", np.ceil),
    elementwise("floor", np.floor),
    elementwise("sqrt", np.sqrt),
    elementwise("exp", exp),
    elementwise("ln", log),
    elementwise("log2", log2),
    elementwise("log10", log10),
    elementwise("sgn", _sgn),
    Function("clamp", (VECTOR, SCALAR, SCALAR), VECTOR, _clamp),
    Function("clamp_min", (VECTOR, SCALAR), VECTOR, _clamp_min),
    Function("clamp_max", (VECTOR, SCALAR), VECTOR, _clamp_max),
    Function("round", (VECTOR, SCALAR), VECTOR, _round, optional=1),
    _of_two("max_of", maximum),
    _of_two("min_of", minimum),
)


TRIGONOMETRY = (
    elementwise("sin", arithmetic.sin),
    elementwise("cos", arithmetic.cos),
    elementwise("tan", arithmetic.tan),
    elementwise("asin", arithmetic.asin),
    elementwise("acos", arithmetic.acos),
    elementwise("atan", arithmetic.atan),
    elementwise("sinh", arithmetic.sinh),
    elementwise("cosh", arithmetic.cosh),
    elementwise("tanh", arithmetic.tanh),
    elementwise("asinh", arithmetic.asinh),
    elementwise("acosh", arithmetic.acosh),
    elementwise("atanh", arithmetic.atanh),
    elementwise("deg", lambda values: values * 180 / math.pi),
    elementwise("rad", lambda values: values * math.pi / 180),
    Function("pi", (), SCALAR, lambda call: Scalar(np.full(len(call.steps), math.pi)), per_series=False),
)


# ---- presence


def _absent(invocation: Invocation) -> Vector:
    return _ones(invocation, ~np.any(vector_of(invocation).present, axis=0))


def _absent_over_time(invocation: Invocation) -> Vector:
    windows = windows_of(invocation)
    return _ones(invocation, ~np.any(windows.last > windows.first, axis=0))


def _ones(invocation: Invocation, absent: Bools) -> Vector:
    return Vector([absent_labels(invocation.call.arguments[0])], np.ones((1, len(absent))), absent[None, :])


def absent_labels(expression: Expression) -> Labels:
    """Return the labels that a series of the selector would have: those of its `=` matchers, unless another matcher of
    that label follows. The order is that in which Prometheus' index evaluates matchers: those that only exclude series
    come last."""
    expression = bare(expression)
    if isinstance(expression, Range):
        expression = expression.selector
    if not isinstance(expression, Selector):
        return NO_LABELS
    labels: dict[str, str] = {}
    named: set[str] = set()
    for matcher in _in_index_order(expression.matchers):
        if matcher.op == "=" and matcher.name not in named:
            named.add(matcher.name)
            labels[matcher.name] = matcher.value
        else:
            labels.pop(matcher.name, None)
    labels.pop(NAME, None)
    return labels_of(labels)


def _in_index_order(matchers: Sequence[Matcher]) -> list[Matcher]:
    needed = {matcher.name for matcher in matchers if not matches_empty(matcher)}

    def only_excludes(matcher: Matcher) -> bool:
        return matcher.name not in needed or (matcher.op in ("!=", "!~") and matches_empty(matcher))

    return sorted(matchers, key=only_excludes)


def _scalar(invocation: Invocation) -> Scalar:
    """Return the number of the only series that has one, otherwise NaN."""
    vector = vector_of(invocation)
    there = float_samples(vector)
    alone = np.count_nonzero(there, axis=0) == 1
    values: Floats = np.full(len(invocation.steps), np.nan)
    if len(vector):
        only = np.argmax(there, axis=0)
        values[alone] = vector.values[only, np.arange(len(only))][alone]
    return Scalar(values)


def _vector(invocation: Invocation) -> Vector:
    values = scalar_of(invocation, 0)[None, :]
    return Vector([NO_LABELS], values, np.ones(values.shape, bool))


PRESENCE = (
    *(
        Function(name, (kind,), VECTOR, evaluate, keeps_name=True, per_series=False, reads_expression=True)
        for name, kind, evaluate in (("absent", VECTOR, _absent), ("absent_over_time", MATRIX, _absent_over_time))
    ),
    Function("scalar", (VECTOR,), SCALAR, _scalar, per_series=False),
    Function("vector", (SCALAR,), VECTOR, _vector, keeps_name=True, per_series=False),
)
