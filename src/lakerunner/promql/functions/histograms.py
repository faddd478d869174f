"""Functions of histograms: classic ones (series that differ in `le`) and native ones, both in one vector.

What always holds: if a step has a classic and a native histogram of the same name and labels, neither counts, and a
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
from lakerunner.series.expression import Span, bare
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import SCALAR, STRING, VECTOR, scalar_of, string_of, vector_of
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
from lakerunner.series.notes import Misfit, Note, Notes, RaisedBuckets
from lakerunner.series.numerals import number_text
from lakerunner.series.values import Steps, Vector, merge_in_ranges

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
class _NoteSink:
    """Collects the notes about the histograms of a call. `names`: notes name metrics, as Prometheus' do if names are
    kept until the evaluation ends."""

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
        """Add one note for each name, about all buckets that were raised."""
        by_name: dict[str, list[int]] = {}
        for n in np.flatnonzero((found.fall > 0).any(axis=1)).tolist():
            by_name.setdefault(self.of_metric(_RAISED, classic.labels[n]), []).append(n)
        for message, rows in by_name.items():
            where = found.fall[rows] > 0
            times = self.steps.times[where.any(axis=0)]
            lowest, highest = found.lowest[rows][where].min(), found.highest[rows][where].max()
            fall, samples = float(found.fall[rows].max()), int(where.sum())
            raised = RaisedBuckets(float(lowest), float(highest), fall, samples, int(times[0]), int(times[-1]))
            self.notes.add([Note("info", message, self.span.start, self.span.end, raised)])


@dataclass(frozen=True)
class _VectorHistograms:
    """The histograms of a vector: the classic ones, and where its samples are native ones."""

    vector: Vector
    classic: ClassicHistograms
    has_classic: Bools  # [classic, steps]
    native: Bools  # [series, steps]


def _are_native(vector: Vector) -> Bools:
    return (
        np.zeros_like(vector.present) if vector.histograms is None else vector.present & vector.histograms.astype(bool)
    )


def _histograms(vector: Vector, sink: _NoteSink) -> _VectorHistograms:
    native = _are_native(vector)
    classic, without_bound = classic_histograms(vector, vector.present & ~native)
    for row in without_bound:
        labels = vector.labels[row]
        bound = json.dumps(value_of(labels, BOUND), ensure_ascii=False)
        message = f'bucket label "{BOUND}" is missing or has a malformed value of {bound}'
        sink.notes.warn(sink.of_metric(message, labels), sink.span)
    has_classic = classic.occupied()
    places = {labels: n for n, labels in enumerate(classic.labels)}
    for row in np.flatnonzero(native.any(axis=1)).tolist():
        labels = vector.labels[row]
        both = native[row] & has_classic[places[labels]] if labels in places else np.zeros(0, bool)
        if both.any():
            sink.notes.warn(sink.of_metric("vector contains a mix of classic and native histograms", labels), sink.span)
            native[row] &= ~both
            has_classic[places[labels]] &= ~both
    return _VectorHistograms(vector, classic, has_classic, native)


def _answer(invocation: Invocation, rows: list[tuple[Labels, Floats, Bools]]) -> Vector:
    """Merge rows of the same labels. No step may have two of them; the label of histogram_quantiles, if it replaces
    another, could cause that."""
    values = np.array([numbers for _, numbers, _ in rows], np.float64).reshape(-1, len(invocation.steps))
    present = np.array([there for _, _, there in rows], bool).reshape(-1, len(invocation.steps))
    vector = Vector([labels for labels, _, _ in rows], values, present)
    return merge_in_ranges(vector, invocation.steps, partial(invocation.evaluation.is_steady, invocation.call))


def _of_natives(vector: Vector, native: Bools, number: Callable[[Histogram, int, Labels], float]) -> Floats:
    """Apply `number` to each native histogram at its step, [series, steps]."""
    numbers = np.zeros(native.shape)
    for row, step in np.argwhere(native).tolist():
        histogram = cast("Histogram", cast("object", vector.histograms[row, step]))  # type: ignore[index]
        numbers[row, step] = number(histogram, step, vector.labels[row])
    return numbers


def _simple(name: str, number: Callable[[Histogram], float]) -> Function:
    """Build a function of native histograms; other samples are dropped."""

    def evaluate(invocation: Invocation) -> Vector:
        vector = vector_of(invocation)
        native = _are_native(vector)
        numbers = _of_natives(vector, native, lambda histogram, _step, _labels: number(histogram))
        return Vector(vector.labels, numbers, native, drop_name=vector.drop_name)

    return Function(name, (VECTOR,), VECTOR, evaluate)


def _check_quantile(invocation: Invocation, argument: int) -> Floats:
    q = scalar_of(invocation, argument)
    for value in dict.fromkeys(q[~((q >= 0) & (q <= 1))].tolist()):
        span = bare(invocation.call.arguments[argument]).span
        invocation.notes.report(Misfit.QUANTILE_OUTSIDE, span, got=number_text(value))
    return q


def _note_sink(invocation: Invocation, argument: int) -> _NoteSink:
    span = bare(invocation.call.arguments[argument]).span
    return _NoteSink(invocation.notes, span, invocation.steps, invocation.evaluation.delayed_names)


def _quantile_rows(
    both: _VectorHistograms, q: Floats, sink: _NoteSink
) -> tuple[list[tuple[Labels, Floats, Bools]], Quantiles]:
    """Return the quantiles, and what had to be done to classic histograms."""

    def of_native(histogram: Histogram, step: int, labels: Labels) -> float:
        value, fact = quantile(histogram, float(q[step]))
        sink.nan(fact, labels)
        return value

    numbers = _of_natives(both.vector, both.native, of_native)
    found = quantiles(both.classic, q)
    found.fall[~both.has_classic] = 0.0
    rows = [
        *zip(both.vector.labels, numbers, both.native, strict=True),
        *zip(both.classic.labels, found.values, both.has_classic, strict=True),
    ]
    return rows, found


def _histogram_quantile(invocation: Invocation) -> Vector:
    q, sink = _check_quantile(invocation, 0), _note_sink(invocation, 1)
    both = _histograms(vector_of(invocation, 1), sink)
    rows, found = _quantile_rows(both, q, sink)
    sink.raised(both.classic, found)
    return _answer(invocation, rows)


def _histogram_quantiles(invocation: Invocation) -> Vector:
    """Return a series for each quantile, named in the label. A quantile may change from step to step, and the label
    with it."""
    sink, label = _note_sink(invocation, 0), string_of(invocation, 1)
    wanted = [_check_quantile(invocation, n) for n in range(2, len(invocation.arguments))]
    both = _histograms(vector_of(invocation), sink)
    rows, raised = [], False
    for q in wanted:
        found, classic = _quantile_rows(both, q, sink)
        if not raised:  # buckets are raised once, for all quantiles
            sink.raised(both.classic, classic)
            raised = bool((classic.fall > 0).any())
        for text in dict.fromkeys(_quantile_text(value) for value in q.tolist()):
            here = np.array([_quantile_text(value) == text for value in q.tolist()])
            rows += [(labels_of({**dict(labels), label: text}), values, at & here) for labels, values, at in found]
    return _answer(invocation, rows)


def _quantile_text(q: float) -> str:
    """Write a quantile as OpenMetrics writes floats: never like an integer."""
    text = number_text(q) if q else "0"
    return text if not math.isfinite(q) or set("e.") & set(text) else f"{text}.0"


def _histogram_fraction(invocation: Invocation) -> Vector:
    lower, upper = (scalar_of(invocation, number) for number in (0, 1))
    sink = _note_sink(invocation, 2)
    both = _histograms(vector_of(invocation, 2), sink)

    def of_native(histogram: Histogram, step: int, labels: Labels) -> float:
        value, fact = fraction(histogram, float(lower[step]), float(upper[step]))
        sink.nan(fact, labels)
        return value

    numbers = _of_natives(both.vector, both.native, of_native)
    rows = [
        *zip(both.vector.labels, numbers, both.native, strict=True),
        *zip(both.classic.labels, fractions(both.classic, lower, upper), both.has_classic, strict=True),
    ]
    return _answer(invocation, rows)


def _deviation(histogram: Histogram) -> float:
    found = variance(histogram)
    return math.sqrt(found) if found >= 0 else math.nan


_of_histograms = partial(Function, returns=VECTOR, per_series=False)
HISTOGRAMS: tuple[Function, ...] = (
    _simple("histogram_avg", lambda histogram: quotient(histogram.sum, histogram.count)),
    _simple("histogram_count", lambda histogram: histogram.count),
    _simple("histogram_sum", lambda histogram: histogram.sum),
    _simple("histogram_stddev", _deviation),
    _simple("histogram_stdvar", variance),
    _of_histograms("histogram_fraction", (SCALAR, SCALAR, VECTOR), evaluate=_histogram_fraction),
    _of_histograms("histogram_quantile", (SCALAR, VECTOR), evaluate=_histogram_quantile),
    _of_histograms(
        "histogram_quantiles",
        (VECTOR, STRING, *[SCALAR] * 10),
        evaluate=_histogram_quantiles,
        optional=9,
        experimental=True,
    ),
)
