"""absent(), absent_over_time(), and the conversions between vector and scalar."""

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
from lakerunner.series.function import Function, Invocation
from lakerunner.series.values import Scalar, Vector


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
