"""The functions of histograms: classic ones (series that differ in `le`) and native ones, both in one vector.

What always holds: where a step has a classic and a native histogram of the same name and labels neither counts, and a
warning says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from lakerunner.model.labels import NAME, Labels, labels_of, value_of
from lakerunner.series.arrays import Bools, Floats
from lakerunner.series.expression import Kind, Span, bare
from lakerunner.series.function import Called, Function
from lakerunner.series.histograms.classic import (
    BOUND,
    ClassicHistograms,
    Quantiles,
    classic_histograms,
    fractions,
    quantiles,
)
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.histograms.quantile import NanFact, fraction, quantile, quotient, variance
from lakerunner.series.notes import Note, Notes, Raised
from lakerunner.series.numerals import number_text
from lakerunner.series.united import united
from lakerunner.series.values import Scalar, Steps, String, Vector

_NAN_NOTES = {
    NanFact.RESULT: "input to histogram_quantile has NaN observations, result is NaN",
    NanFact.SKEW: "input to histogram_quantile has NaN observations, result is skewed higher",
    NanFact.EXCLUDED: "input to histogram_fraction has NaN observations, which are excluded from all fractions",
}
_RAISED = (
    "input to histogram_quantile needed to be fixed for monotonicity "
    "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
)


@dataclass(frozen=True)
class _Told:
    """Where the notes about the histograms of a call go. `names`: they name metrics, as Prometheus' do where names are
    there until the evaluation ends."""

    notes: Notes
    span: Span
    steps: Steps
    names: bool

    def nan(self, fact: NanFact, labels: Labels) -> None:
        if fact is not NanFact.NONE:
            self.notes.inform(self.of_metric(_NAN_NOTES[fact], labels), self.span)

    def of_metric(self, message: str, labels: Labels) -> str:
        name = value_of(labels, NAME) if self.names else ""
        return f"{message} for metric name {json.dumps(name, ensure_ascii=False)}" if name else message

    def raised(self, classic: ClassicHistograms, found: Quantiles) -> None:
        """One note for each name, of all that was raised."""
        by_name: dict[str, list[int]] = {}
        for n in np.flatnonzero((found.fall > 0).any(axis=1)).tolist():
            by_name.setdefault(self.of_metric(_RAISED, classic.labels[n]), []).append(n)
        for message, rows in by_name.items():
            where = found.fall[rows] > 0
            times = self.steps.times[where.any(axis=0)]
            lowest, highest = found.lowest[rows][where].min(), found.highest[rows][where].max()
            fall, samples = float(found.fall[rows].max()), int(where.sum())
            raised = Raised(float(lowest), float(highest), fall, samples, int(times[0]), int(times[-1]))
            self.notes.add([Note("info", message, self.span.start, self.span.end, raised)])


@dataclass(frozen=True)
class _Both:
    """The histograms of a vector: the classic ones, and where its samples are native ones."""

    vector: Vector
    classic: ClassicHistograms
    has_classic: Bools  # [classic, steps]
    native: Bools  # [series, steps]


def _are_native(vector: Vector) -> Bools:
    return (
        np.zeros_like(vector.present) if vector.histograms is None else vector.present & vector.histograms.astype(bool)
    )


def _histograms(vector: Vector, told: _Told) -> _Both:
    native = _are_native(vector)
    classic, without_bound = classic_histograms(vector, vector.present & ~native)
    for row in without_bound:
        labels = vector.labels[row]
        bound = json.dumps(value_of(labels, BOUND), ensure_ascii=False)
        message = f'bucket label "{BOUND}" is missing or has a malformed value of {bound}'
        told.notes.warn(told.of_metric(message, labels), told.span)
    has_classic = classic.occupied()
    places = {labels: n for n, labels in enumerate(classic.labels)}
    for row in np.flatnonzero(native.any(axis=1)).tolist():
        labels = vector.labels[row]
        both = native[row] & has_classic[places[labels]] if labels in places else np.zeros(0, bool)
        if both.any():
            told.notes.warn(told.of_metric("vector contains a mix of classic and native histograms", labels), told.span)
            native[row] &= ~both
            has_classic[places[labels]] &= ~both
    return _Both(vector, classic, has_classic, native)


def _answer(called: Called, rows: list[tuple[Labels, Floats, Bools]]) -> Vector:
    """Rows of the same labels are one series. No step may have two of them, which a label of histogram_quantiles that
    took the place of another could bring about."""
    values = np.array([numbers for _, numbers, _ in rows], np.float64).reshape(-1, len(called.steps))
    present = np.array([there for _, _, there in rows], bool).reshape(-1, len(called.steps))
    vector = Vector([labels for labels, _, _ in rows], values, present)
    return united(vector, called.steps, partial(called.evaluation.is_steady, called.call))


def _of_natives(vector: Vector, native: Bools, number: Callable[[Histogram, int, Labels], float]) -> Floats:
    """[series, steps]: what `number` says of each native histogram at its step."""
    numbers = np.zeros(native.shape)
    for row, step in np.argwhere(native).tolist():
        histogram = cast("Histogram", cast("object", vector.histograms[row, step]))  # type: ignore[index]
        numbers[row, step] = number(histogram, step, vector.labels[row])
    return numbers


def _simple(name: str, number: Callable[[Histogram], float]) -> Function:
    """Of native histograms alone; other samples are left out."""

    def evaluate(called: Called) -> Vector:
        vector = cast("Vector", called.arguments[0])
        native = _are_native(vector)
        numbers = _of_natives(vector, native, lambda histogram, _step, _labels: number(histogram))
        return Vector(vector.labels, numbers, native, drop_name=vector.drop_name)

    return Function(name, (Kind.VECTOR,), Kind.VECTOR, evaluate)


def _check_quantile(called: Called, argument: int) -> Floats:
    q = cast("Scalar", called.arguments[argument]).values
    for value in dict.fromkeys(q[~((q >= 0) & (q <= 1))].tolist()):
        message = f"quantile value should be between 0 and 1, got {number_text(value)}"
        called.notes.warn(message, bare(called.call.arguments[argument]).span)
    return q


def _told(called: Called, argument: int) -> _Told:
    span = bare(called.call.arguments[argument]).span
    return _Told(called.notes, span, called.steps, called.evaluation.delayed_names)


def _quantile_rows(both: _Both, q: Floats, told: _Told) -> tuple[list[tuple[Labels, Floats, Bools]], Quantiles]:
    """And what was done to classic histograms for it."""

    def of_native(histogram: Histogram, step: int, labels: Labels) -> float:
        value, fact = quantile(histogram, float(q[step]))
        told.nan(fact, labels)
        return value

    numbers = _of_natives(both.vector, both.native, of_native)
    found = quantiles(both.classic, q)
    found.fall[~both.has_classic] = 0.0
    rows = [
        *zip(both.vector.labels, numbers, both.native, strict=True),
        *zip(both.classic.labels, found.values, both.has_classic, strict=True),
    ]
    return rows, found


def _histogram_quantile(called: Called) -> Vector:
    q, told = _check_quantile(called, 0), _told(called, 1)
    both = _histograms(cast("Vector", called.arguments[1]), told)
    rows, found = _quantile_rows(both, q, told)
    told.raised(both.classic, found)
    return _answer(called, rows)


def _histogram_quantiles(called: Called) -> Vector:
    """A series for each quantile, which the label says; as a quantile may change from step to step so may it."""
    told, label = _told(called, 0), cast("String", called.arguments[1]).value
    wanted = [_check_quantile(called, n) for n in range(2, len(called.arguments))]
    both = _histograms(cast("Vector", called.arguments[0]), told)
    rows, raised = [], False
    for q in wanted:
        found, classic = _quantile_rows(both, q, told)
        if not raised:  # they are raised once, for all quantiles
            told.raised(both.classic, classic)
            raised = bool((classic.fall > 0).any())
        for text in dict.fromkeys(_quantile_text(value) for value in q.tolist()):
            here = np.array([_quantile_text(value) == text for value in q.tolist()])
            rows += [(labels_of({**dict(labels), label: text}), values, at & here) for labels, values, at in found]
    return _answer(called, rows)


def _quantile_text(q: float) -> str:
    """As OpenMetrics writes a float: never like an integer."""
    text = number_text(q) if q else "0"
    return text if not math.isfinite(q) or set("e.") & set(text) else f"{text}.0"


def _histogram_fraction(called: Called) -> Vector:
    lower, upper = (cast("Scalar", argument).values for argument in called.arguments[:2])
    told = _told(called, 2)
    both = _histograms(cast("Vector", called.arguments[2]), told)

    def of_native(histogram: Histogram, step: int, labels: Labels) -> float:
        value, fact = fraction(histogram, float(lower[step]), float(upper[step]))
        told.nan(fact, labels)
        return value

    numbers = _of_natives(both.vector, both.native, of_native)
    rows = [
        *zip(both.vector.labels, numbers, both.native, strict=True),
        *zip(both.classic.labels, fractions(both.classic, lower, upper), both.has_classic, strict=True),
    ]
    return _answer(called, rows)


def _deviation(histogram: Histogram) -> float:
    found = variance(histogram)
    return math.sqrt(found) if found >= 0 else math.nan


HISTOGRAMS: tuple[Function, ...] = (
    _simple("histogram_avg", lambda histogram: quotient(histogram.sum, histogram.count)),
    _simple("histogram_count", lambda histogram: histogram.count),
    _simple("histogram_sum", lambda histogram: histogram.sum),
    _simple("histogram_stddev", _deviation),
    _simple("histogram_stdvar", variance),
    Function(
        "histogram_fraction",
        (Kind.SCALAR, Kind.SCALAR, Kind.VECTOR),
        Kind.VECTOR,
        _histogram_fraction,
        per_series=False,
    ),
    Function("histogram_quantile", (Kind.SCALAR, Kind.VECTOR), Kind.VECTOR, _histogram_quantile, per_series=False),
    Function(
        "histogram_quantiles",
        (Kind.VECTOR, Kind.STRING, *[Kind.SCALAR] * 10),
        Kind.VECTOR,
        _histogram_quantiles,
        optional=9,
        per_series=False,
        experimental=True,
    ),
)
