"""Trends: deriv, predict_linear, double_exponential_smoothing. Of windows with two float samples or more; histograms
are left out, which is said where a window has both."""

from __future__ import annotations

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.promql.functions.arguments import never_steady, scalar_of
from lakerunner.promql.functions.range_vectors import RangeVector, range_vector
from lakerunner.promql.functions.regression_kernels import lines, smoothed_twice
from lakerunner.promql.selection.sample_notes import histograms_ignored
from lakerunner.series.arrays import Bools, Floats
from lakerunner.series.expression import Kind
from lakerunner.series.function import Called, Function
from lakerunner.series.values import Vector


def _deriv(called: Called) -> Vector:
    given = range_vector(called)
    slopes, _ = given.empty()
    lines(given.table(), np.zeros(0, np.int64), slopes, np.zeros_like(slopes))
    return _vector(given, slopes)


def _predict_linear(called: Called) -> Vector:
    """From the step's own time on, whatever offset the range has."""
    given, ahead = range_vector(called), scalar_of(called, 1)
    slopes, _ = given.empty()
    heights = np.zeros_like(slopes)
    lines(given.table(), called.steps.times, slopes, heights)
    with np.errstate(all="ignore"):
        return _vector(given, slopes * ahead + heights)


def _double_exponential_smoothing(called: Called) -> Vector:
    given, smoothing, trend = range_vector(called), scalar_of(called, 1), scalar_of(called, 2)
    wrong = {name: (factors <= 0) | (factors >= 1) for name, factors in (("smoothing", smoothing), ("trend", trend))}
    asked = (given.whole.last > given.whole.first) & (wrong["smoothing"] | wrong["trend"])
    if asked.any():  # that of the first series is told, at the first step at which it has samples
        at = int(np.argmax(asked)) % asked.shape[1]
        name, short, got = ("smoothing", "sf", smoothing) if wrong["smoothing"][at] else ("trend", "tf", trend)
        raise UserError(f"invalid {name} factor. Expected: 0 < {short} < 1, got: {_fixed(got[at])}")
    values, _ = given.empty()
    smoothed_twice(given.table(), smoothing, trend, values)
    return _vector(given, values)


def _fixed(number: float) -> str:
    return f"{number:.6f}" if np.isfinite(number) else f"{number:+f}".replace("inf", "Inf")


def _vector(given: RangeVector, values: Floats) -> Vector:
    for name in given.names(given.mixed) if given.histograms is not None else ():
        histograms_ignored(given.notes, name, given.span)
    present: Bools = given.floats.last - given.floats.first >= 2
    return given.vector(values, present)


REGRESSIONS: tuple[Function, ...] = (
    Function("deriv", (Kind.MATRIX,), Kind.VECTOR, _deriv),
    Function("predict_linear", (Kind.MATRIX, Kind.SCALAR), Kind.VECTOR, _predict_linear, steady=never_steady),
    Function(
        "double_exponential_smoothing",
        (Kind.MATRIX, Kind.SCALAR, Kind.SCALAR),
        Kind.VECTOR,
        _double_exponential_smoothing,
        experimental=True,
    ),
)
