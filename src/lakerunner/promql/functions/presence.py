"""Whether there is anything, and the way from vector to scalar and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import NAME, NO_LABELS, Labels, labels_of
from lakerunner.model.labels.matcher import Matcher, matches_empty
from lakerunner.promql.functions.arguments import (
    MATRIX,
    SCALAR,
    VECTOR,
    float_samples,
    scalar_of,
    vector_of,
    windows_of,
)
from lakerunner.series.arrays import Bools, Floats
from lakerunner.series.expression import Expression, Range, Selector, bare
from lakerunner.series.function import Called, Function
from lakerunner.series.values import Scalar, Vector


def _absent(called: Called) -> Vector:
    return _ones(called, ~np.any(vector_of(called).present, axis=0))


def _absent_over_time(called: Called) -> Vector:
    windows = windows_of(called)
    return _ones(called, ~np.any(windows.last > windows.first, axis=0))


def _ones(called: Called, absent: Bools) -> Vector:
    return Vector([absent_labels(called.call.arguments[0])], np.ones((1, len(absent))), absent[None, :])


def absent_labels(expression: Expression) -> Labels:
    """Those that a series would have if the selector found one: what its matchers say by `=`, unless another matcher of
    that label comes after it. They come in the order into which Prometheus' index puts them as it looks for series:
    those last that only take series away."""
    expression = bare(expression)
    if isinstance(expression, Range):
        expression = expression.selector
    if not isinstance(expression, Selector):
        return NO_LABELS
    labels: dict[str, str] = {}
    named: set[str] = set()
    for matcher in _as_looked_for(expression.matchers):
        if matcher.op == "=" and matcher.name not in named:
            named.add(matcher.name)
            labels[matcher.name] = matcher.value
        else:
            labels.pop(matcher.name, None)
    labels.pop(NAME, None)
    return labels_of(labels)


def _as_looked_for(matchers: Sequence[Matcher]) -> list[Matcher]:
    needed = {matcher.name for matcher in matchers if not matches_empty(matcher)}

    def takes_away(matcher: Matcher) -> bool:
        return matcher.name not in needed or (matcher.op in ("!=", "!~") and matches_empty(matcher))

    return sorted(matchers, key=takes_away)


def _scalar(called: Called) -> Scalar:
    """The number of the one series that has one, NaN otherwise."""
    vector = vector_of(called)
    there = float_samples(vector)
    alone = np.count_nonzero(there, axis=0) == 1
    values: Floats = np.full(len(called.steps), np.nan)
    if len(vector):
        only = np.argmax(there, axis=0)
        values[alone] = vector.values[only, np.arange(len(only))][alone]
    return Scalar(values)


def _vector(called: Called) -> Vector:
    values = scalar_of(called, 0)[None, :]
    return Vector([NO_LABELS], values, np.ones(values.shape, bool))


PRESENCE = (
    Function("absent", (VECTOR,), VECTOR, _absent, keeps_name=True, per_series=False, reads_expression=True),
    Function(
        "absent_over_time",
        (MATRIX,),
        VECTOR,
        _absent_over_time,
        keeps_name=True,
        per_series=False,
        reads_expression=True,
    ),
    Function("scalar", (VECTOR,), SCALAR, _scalar, per_series=False),
    Function("vector", (SCALAR,), VECTOR, _vector, keeps_name=True, per_series=False),
)
