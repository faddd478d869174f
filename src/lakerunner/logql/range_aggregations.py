"""Range aggregations: the value of each series' samples in (t - range, t], at every step.

Comes in: the samples that lines gave, as series; the times of the steps. Goes out: a vector. What always holds: several
samples of one time all count, in the order of their arrival; a series without a sample in a window has no value there.
To add one, add a row to the table; parse.py knows which of them need `unwrap`, and which allow a grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import Labels, labels_of
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.time import SECOND_NS
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.extrapolation import extrapolate
from lakerunner.series.values import Samples, Vector, window_bounds
from lakerunner.series.window_kernels import NO_STARTS, Table, extremes, means, quantiles, sums, variances


@dataclass(frozen=True)
class RangeWindows:
    """`ends` are the times at which the windows end, `range` is their length, both in ns."""

    samples: Samples
    ends: Ints  # [steps]
    range: int
    first: Ints  # [series, steps]
    last: Ints  # [series, steps]

    @property
    def seconds(self) -> float:
        return self.range / SECOND_NS

    @property
    def present(self) -> Bools:
        found: Bools = self.last > self.first
        return found

    @property
    def table(self) -> Table:
        return Table(self.samples.times, self.samples.values, NO_STARTS, self.first, self.last, self.ends)

    def by(self, kernel: Callable[[Table, Floats], None]) -> Floats:
        values = np.zeros(self.first.shape)
        kernel(self.table, values)
        return values


Evaluate = Callable[[RangeWindows, float], Floats]


def _sum(windows: RangeWindows, _parameter: float) -> Floats:
    return windows.by(sums)


def _per_second(evaluate: Evaluate) -> Evaluate:
    return lambda windows, parameter: evaluate(windows, parameter) / windows.seconds


def _mean(windows: RangeWindows, _parameter: float) -> Floats:
    return windows.by(means)


def _extreme(sign: float) -> Evaluate:
    return lambda windows, _parameter: windows.by(lambda table, values: extremes(table, sign, False, False, values))


def _variance(windows: RangeWindows, _parameter: float) -> Floats:
    return windows.by(variances)


def _deviation(windows: RangeWindows, _parameter: float) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.sqrt(windows.by(variances))


def _quantile(windows: RangeWindows, parameter: float) -> Floats:
    wanted = np.full(len(windows.ends), parameter)
    return windows.by(lambda table, values: quantiles(table, wanted, values))


def _first(windows: RangeWindows, _parameter: float) -> Floats:
    return _sample_at(windows, windows.first)


def _last(windows: RangeWindows, _parameter: float) -> Floats:
    return _sample_at(windows, windows.last - 1)


def _sample_at(windows: RangeWindows, places: Ints) -> Floats:
    values = np.append(windows.samples.values, 0.0)  # what windows without samples point at
    return values[np.where(windows.present, places, -1)]


def _counter_rate(windows: RangeWindows, _parameter: float) -> Floats:
    """Return the rate of a counter as Prometheus extrapolates it; 0 for a window with one sample."""
    samples = windows.samples
    values, present = np.zeros(windows.first.shape), np.zeros(windows.first.shape, bool)
    rows = samples.offsets, samples.times, samples.values, NO_STARTS, windows.ends, windows.range
    extrapolate(rows, True, windows.seconds, values, present, np.zeros((0, 0), bool))
    return values


# For ranges of lines a sample is 1, the bytes of the line, or a sum of such (columns/partial_sums.py); with `unwrap` it
# is the label's value. So one function serves both forms of rate.
_EVALUATE: Mapping[str, Evaluate] = {
    "count_over_time": _sum,
    "rate": _per_second(_sum),
    "bytes_over_time": _sum,
    "bytes_rate": _per_second(_sum),
    "rate_counter": _counter_rate,
    "sum_over_time": _sum,
    "avg_over_time": _mean,
    "max_over_time": _extreme(1.0),
    "min_over_time": _extreme(-1.0),
    "first_over_time": _first,
    "last_over_time": _last,
    "stddev_over_time": _deviation,
    "stdvar_over_time": _variance,
    "quantile_over_time": _quantile,
}
ABSENT = "absent_over_time"


def aggregate_range(op: str, samples: Samples, ends: Ints, range_ns: int, parameter: float | None) -> Vector:
    """Return the value of each series at each step."""
    first, last = window_bounds(samples.offsets, samples.times, ends, range_ns)
    windows = RangeWindows(samples, ends, range_ns, first, last)
    values = _EVALUATE[op](windows, np.nan if parameter is None else parameter)
    return Vector(samples.labels, values, windows.present)


def absent_range(matchers: Matchers, samples: Samples, ends: Ints, range_ns: int) -> Vector:
    """Return 1 where no series has a sample, with the labels that the matchers determine."""
    first, last = window_bounds(samples.offsets, samples.times, ends, range_ns)
    absent: Bools = ~np.any(last > first, axis=0, keepdims=True)
    return Vector([absent_labels(matchers)], np.ones(absent.shape), absent)


def absent_labels(matchers: Matchers) -> Labels:
    """Return the labels of `=` matchers; a name that several matchers test determines nothing."""
    names = [one.name for one in matchers]
    return labels_of({one.name: one.value for one in matchers if one.op == "=" and names.count(one.name) == 1})
