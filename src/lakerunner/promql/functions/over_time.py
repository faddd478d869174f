"""Functions that compute one value from the samples of a window: avg_over_time and the like.

Sums and means take floats or histograms; a window with both gives a warning and no value. first, last, count and the
like take any samples. The others take floats, and add an info if a window has both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lakerunner.promql.functions.from_buckets import FROM_BUCKETS, ranges_of_samples
from lakerunner.promql.functions.from_buckets import histograms_of as sketched
from lakerunner.promql.functions.range_vectors import (
    RangeVector,
    histograms_of,
    note_ignored_histograms,
    places,
    range_vector,
)
from lakerunner.promql.selection.notes import MIXED_SAMPLES, MIXED_SCHEMAS, note_metric
from lakerunner.series.arrays import Bools, Floats, Ints, Objects, filled
from lakerunner.series.expression import Kind
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import scalar_of
from lakerunner.series.histograms.algebra import AveragedHistogram, CompensatedHistogram, IncompatibleHistograms
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.notes import Misfit
from lakerunner.series.numerals import number_text
from lakerunner.series.values import Vector
from lakerunner.series.window_kernels import Table, extremes, means, median_deviations, quantiles, sums, variances

# ---- sums and means


def _total(
    invocation: Invocation,
    kernel: Callable[[Table, Floats], None],
    gatherer: Callable[[Histogram], CompensatedHistogram | AveragedHistogram],
) -> Vector:
    given = range_vector(invocation)
    values, _ = given.empty()
    kernel(given.table(), values)
    if given.histograms is None:
        return given.vector(values, given.has_floats)
    for name in given.names(given.mixed):
        note_metric(given.notes, MIXED_SAMPLES, name, given.span)
    alone = given.has_histograms & ~given.mixed
    histograms = np.full(values.shape, None, object)
    for row, step in places(alone):
        try:
            histograms[row, step] = _gather_histograms(given, row, step, gatherer)
        except IncompatibleHistograms:
            note_metric(given.notes, MIXED_SCHEMAS, given.name(row), given.span)
    present: Bools = given.has_floats & ~given.mixed | filled(histograms)
    return given.vector(values, present, histograms)


def _gather_histograms(
    given: RangeVector,
    row: int,
    step: int,
    gatherer: Callable[[Histogram], CompensatedHistogram | AveragedHistogram],
) -> Histogram | None:
    if given.histograms is None:
        return None
    first, *others = histograms_of(given.histograms, row, step)
    gathered = gatherer(first)
    facts = [gathered.add(one) for one in others]
    hints = {one.reset_hint for one in (first, *others)}
    if {ResetHint.RESET, ResetHint.NOT_RESET} <= hints:
        given.notes.report(Misfit.RESETS_COLLIDE, given.span, operation="aggregation")
    if any(one.bounds_reconciled for one in facts):
        given.notes.report(Misfit.BOUNDS_RECONCILED, given.span, operation="aggregation")
    return gathered.value()


# ---- of floats alone


def _of_floats(invocation: Invocation, kernel: Callable[[Table, Floats], None]) -> Vector:
    given = range_vector(invocation)
    values, _ = given.empty()
    kernel(given.table(), values)
    return _floats(given, values)


def _floats(given: RangeVector, values: Floats) -> Vector:
    note_ignored_histograms(given)
    return given.vector(values, given.has_floats)


def _extreme(sign: float, *, latest: bool = False, as_time: bool = False) -> Callable[[Invocation], Vector]:
    def kernel(table: Table, values: Floats) -> None:
        extremes(table, sign, latest, as_time, values)
        if as_time:
            np.divide(values, 1000, out=values)

    return partial(_of_floats, kernel=kernel)


def _deviations(table: Table, values: Floats) -> None:
    variances(table, values)
    with np.errstate(invalid="ignore"):
        np.sqrt(values, out=values)


def _quantile(invocation: Invocation) -> Vector:
    given, wanted = range_vector(invocation), scalar_of(invocation, 0)
    values, _ = given.empty()
    quantiles(given.table(), wanted, values)
    outside = given.has_floats.any(axis=0) & ~((wanted >= 0) & (wanted <= 1))
    for number in wanted[outside].tolist():
        given.notes.report(Misfit.QUANTILE_OUTSIDE, given.span, got=number_text(number))
    return _floats(given, values)


def _sketch(invocation: Invocation) -> Vector:
    """Return the numbers of each window, without NaN and infinities, as a native histogram. Prometheus has no such
    function."""
    given = range_vector(invocation)
    table = given.table()
    totals, _ = given.empty()
    sums(table._replace(values=np.where(np.isfinite(table.values), table.values, 0.0)), totals)
    ranges = ranges_of_samples(table.values, (table.first, table.last))
    histograms = sketched(ranges, totals, given.has_floats, invocation.evaluation.bounds)
    note_ignored_histograms(given)
    return given.vector(totals, given.has_floats, histograms)


# ---- of samples as they come


def _pick_sample(invocation: Invocation, pick: Callable[[RangeVector], Ints]) -> Vector:
    """Return one sample of each window, whatever its type."""
    given = range_vector(invocation)
    samples, present = given.whole.samples, given.whole.last > given.whole.first
    if not present.any():
        return given.vector(*given.empty())
    index = np.where(present, pick(given), 0)
    values = np.where(present, samples.values[index], 0.0)
    histograms: Objects | None = None
    if given.histograms is not None and samples.histograms is not None:
        histograms = samples.histograms[index]
        histograms[~present] = None
    return given.vector(values, present, histograms)


def _time_of(invocation: Invocation, pick: Callable[[RangeVector], Ints]) -> Vector:
    given = range_vector(invocation)
    present: Bools = given.whole.last > given.whole.first
    times = np.append(given.whole.samples.times, 0)
    return given.vector(times[np.where(present, pick(given), -1)] / 1000, present)


def _first(given: RangeVector) -> Ints:
    return given.whole.first


def _last(given: RangeVector) -> Ints:
    return given.whole.last - 1


def _count(invocation: Invocation) -> Vector:
    given = range_vector(invocation)
    counts = given.whole.last - given.whole.first
    return given.vector(counts.astype(float), counts > 0)


def _present(invocation: Invocation) -> Vector:
    given = range_vector(invocation)
    present: Bools = given.whole.last > given.whole.first
    return given.vector(np.ones(present.shape), present)


def _function(
    name: str, evaluate: Callable[[Invocation], Vector], arguments: tuple[Kind, ...] = (Kind.MATRIX,), **more: Any
) -> Function:
    return Function(name, arguments, Kind.VECTOR, evaluate, from_buckets=FROM_BUCKETS.get(name), **more)


OVER_TIME: tuple[Function, ...] = (
    _function("avg_over_time", partial(_total, kernel=means, gatherer=AveragedHistogram)),
    _function("sum_over_time", partial(_total, kernel=sums, gatherer=CompensatedHistogram)),
    _function("min_over_time", _extreme(-1.0)),
    _function("max_over_time", _extreme(1.0)),
    _function("count_over_time", _count),
    _function("present_over_time", _present),
    _function("first_over_time", partial(_pick_sample, pick=_first), keeps_name=True),
    _function("last_over_time", partial(_pick_sample, pick=_last), keeps_name=True),
    _function("stddev_over_time", partial(_of_floats, kernel=_deviations)),
    _function("stdvar_over_time", partial(_of_floats, kernel=variances)),
    _function("quantile_over_time", _quantile, arguments=(Kind.SCALAR, Kind.MATRIX)),
    _function("mad_over_time", partial(_of_floats, kernel=median_deviations), experimental=True),
    _function("ts_of_first_over_time", partial(_time_of, pick=_first), experimental=True),
    _function("ts_of_last_over_time", partial(_time_of, pick=_last), experimental=True),
    _function("ts_of_min_over_time", _extreme(-1.0, latest=True, as_time=True), experimental=True),
    _function("ts_of_max_over_time", _extreme(1.0, latest=True, as_time=True), experimental=True),
    _function("sketch_over_time", _sketch, makes_histograms=True),
)
