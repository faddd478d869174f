"""A slow evaluator of LogQL, one row and one step after the other, for tests.

Comes in: rows as LogQL sees them (lines.py), and a query. Goes out: all lines that pass, or the vector of each step.
What always holds: nothing of the product runs here except its parser of texts and its templates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fuzz.logql import slow_amounts
from fuzz.logql.lines import SECOND, Row
from fuzz.logql.slow_labels import EVERYTHING, PRESERVE, Needs, SlowLabels, Undefined, with_bases
from fuzz.logql.slow_series import (
    Labels,
    SlowError,
    Vector,
    aggregated,
    operated,
    replaced,
    sum_of,
    variance_of,
    without_empty,
)
from fuzz.logql.slow_stages import meets, names_in_test, names_of, passes_test, run_stages
from lakerunner.logql.text.syntax import (
    Constant,
    Grouping,
    Json,
    LabelReplace,
    LineFilter,
    LineFormat,
    Logfmt,
    Metric,
    Operation,
    Pattern,
    Pipeline,
    RangeAggregation,
    Regexp,
    Stage,
    Unpack,
    Unwrap,
    VectorAggregation,
    VectorLiteral,
)


@dataclass(frozen=True)
class SlowEntry:
    time: int
    line: str
    kinds: tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]
    arrival: int


@dataclass(frozen=True)
class Sample:
    time: int
    value: float
    arrival: int
    stream: Labels


def slow_lines(rows: Sequence[Row], query: Pipeline, start: int, end: int, now: int) -> list[SlowEntry]:
    """Return the lines of [start, end) that pass, oldest first."""
    found = []
    for row in rows:
        if start <= row.time < end and all(meets(one, row.stream.get(one.name, "")) for one in query.matchers):
            labels = SlowLabels(row.stream, row.metadata, EVERYTHING)
            line = run_stages(query.stages, row.time, row.line, labels, now)
            if line is not None:
                found.append(SlowEntry(row.time, line, labels.by_kind(), row.arrival))
    return sorted(found, key=lambda one: (one.time, one.arrival))


class SlowMetrics:
    """Evaluates a metric query. `times` are those of all steps: a line with an error that any window has is fatal."""

    def __init__(self, rows: Sequence[Row], times: Sequence[int], now: int) -> None:
        self._rows = rows
        self._times = times
        self._now = now
        self._samples: dict[int, dict[Labels, list[Sample]]] = {}

    def at(self, node: Metric, time: int, pushed: Grouping | None = None) -> Vector | float:
        match node:
            case Constant(value):
                return float(value)
            case VectorLiteral(value):
                return {frozenset(): float(value)}
            case RangeAggregation():
                return self._range(node, time, pushed)
            case VectorAggregation():
                below = node.inner
                own = (node.grouping or Grouping(())) if node.op == "sum" else None
                inner = self.at(below, time, own if isinstance(below, RangeAggregation) else None)
                assert isinstance(inner, dict)
                return aggregated(node, inner)
            case LabelReplace():
                inner = self.at(node.inner, time)
                assert isinstance(inner, dict)
                return replaced(node, inner)
            case Operation():
                return operated(node, self.at(node.left, time), self.at(node.right, time))
        raise TypeError(node)

    def _range(self, node: RangeAggregation, time: int, pushed: Grouping | None) -> Vector:
        if id(node) not in self._samples:
            self._samples[id(node)] = self._extracted(node, pushed)
        end = time - node.lines.offset
        windows = {
            labels: [one for one in samples if end - node.lines.range < one.time <= end]
            for labels, samples in self._samples[id(node)].items()
        }
        if node.op == "absent_over_time":
            if any(windows.values()):
                return {}
            names = [one.name for one in node.lines.pipeline.matchers]
            stated = {one.name: one.value for one in node.lines.pipeline.matchers if one.op == "="}
            return {without_empty({n: v for n, v in stated.items() if names.count(n) == 1}): 1.0}
        seconds = node.lines.range / SECOND
        found: Vector = {}
        for labels, window in windows.items():
            if window:
                found[labels] = _value(node, window, seconds, end)
        return found

    def _extracted(self, node: RangeAggregation, pushed: Grouping | None) -> dict[Labels, list[Sample]]:
        lines = node.lines
        series: dict[Labels, list[Sample]] = {}
        first = min(self._times) - lines.offset - lines.range
        last = max(self._times) - lines.offset
        for row in sorted(self._rows, key=lambda one: (one.time, one.arrival)):
            if not first < row.time <= last or not self._in_window(node, row.time):
                continue
            if not all(meets(one, row.stream.get(one.name, "")) for one in lines.pipeline.matchers):
                continue
            needs, series_of = _needs(node, pushed)
            labels = SlowLabels(row.stream, row.metadata, needs)
            line = run_stages(_useful(node), row.time, row.line, labels, self._now)
            if line is None:
                continue
            value = _unwrapped(lines.unwrap, labels) if lines.unwrap else 1.0
            if node.op in ("bytes_over_time", "bytes_rate"):
                value = float(len(line.encode()))
            if value is None:
                continue
            if labels.error:
                if labels.get(PRESERVE) != "true":
                    raise SlowError("pipeline")
                raise Undefined("series with the details of errors")
            key = frozenset(series_of(labels).items())
            series.setdefault(key, []).append(Sample(row.time, value, row.arrival, frozenset(row.stream.items())))
        return series  # empty values stay, as in Loki: they tell series apart

    def _in_window(self, node: RangeAggregation, time: int) -> bool:
        """Lines between windows are not looked at: they may have errors."""
        ends = (at - node.lines.offset for at in self._times)
        return any(end - node.lines.range < time <= end for end in ends)


def _useful(node: RangeAggregation) -> Sequence[Stage]:
    """Return the stages without each line_format behind which only labels are read; bytes_* count what it makes."""
    stages: list[Stage] = []
    is_read = node.op.startswith("bytes_")
    for stage in reversed(node.lines.pipeline.stages):
        is_read = is_read or isinstance(stage, LineFilter | Json | Logfmt | Regexp | Pattern | Unpack)
        if is_read or not isinstance(stage, LineFormat):
            stages.insert(0, stage)
    return stages


# ---- samples

_SUMMED = ("bytes_over_time", "bytes_rate", "sum_over_time", "rate", "count_over_time")


def _needs(node: RangeAggregation, pushed: Grouping | None) -> tuple[Needs, Callable[[SlowLabels], Mapping[str, str]]]:
    """Return what parsers must extract, and the function that takes the labels of a series."""
    unwrap = node.lines.unwrap
    names = names_of(_useful(node))
    if unwrap:
        names += [unwrap.label, *(name for one in unwrap.filters for name in names_in_test(one.test))]
    grouping = node.grouping
    if grouping is None and node.op in _SUMMED:
        grouping = pushed
    hidden = {unwrap.label} if unwrap else set()
    if node.op == "absent_over_time" or (grouping and not grouping.labels and not grouping.without):
        return Needs(with_bases(names)), lambda labels: {}
    if grouping and not grouping.without:
        by = grouping.labels

        def of_groups(labels: SlowLabels) -> dict[str, str]:
            values = {name: labels.get(name) for name in by if name not in labels.dropped}
            return {name: value for name, value in values.items() if value is not None}

        return Needs(with_bases([*names, *by])), of_groups
    hidden |= set(grouping.labels) if grouping else set()
    return EVERYTHING, lambda labels: {n: v for n, v in labels.all().items() if n not in hidden}


def _unwrapped(unwrap: Unwrap, labels: SlowLabels) -> float | None:
    text = labels.get(unwrap.label)
    if not text:
        return None
    value = 0.0
    try:
        if unwrap.conversion == "bytes":
            value = float(slow_amounts.size_bytes(text))
        elif unwrap.conversion:
            value = slow_amounts.duration_ns(text) / SECOND
        else:
            value = slow_amounts.number(text)
    except ValueError:
        labels.error, labels.details = "SampleExtractionErr", "?"
    passed = [passes_test(one.test, labels) for one in unwrap.filters]
    return value if all(passed) else None


# ---- windows


def _value(node: RangeAggregation, window: list[Sample], seconds: float, end: int) -> float:
    values = [one.value for one in window]
    match node.op:
        case "count_over_time":
            return float(len(values))
        case "rate" | "bytes_rate":
            return sum_of(values) / seconds
        case "sum_over_time" | "bytes_over_time":
            return sum_of(values)
        case "avg_over_time":
            return sum_of(values) / len(values)
        case "max_over_time":
            return max((v for v in values if not math.isnan(v)), default=math.nan)
        case "min_over_time":
            return min((v for v in values if not math.isnan(v)), default=math.nan)
        case "stddev_over_time":
            return math.sqrt(variance_of(values))
        case "stdvar_over_time":
            return variance_of(values)
        case "first_over_time":
            return _at_end([one for one in window if one.time == window[0].time], 0)
        case "last_over_time":
            return _at_end([one for one in window if one.time == window[-1].time], -1)
        case "quantile_over_time":
            return _quantile(node.parameter or 0.0, values)
        case "rate_counter":
            return _counter_rate(window, seconds, end)
    raise ValueError(node.op)


def _at_end(tied: list[Sample], place: int) -> float:
    """Lines of one stream and time keep their order; that between streams is left open."""
    if len({one.stream for one in tied}) > 1 and len({repr(one.value) for one in tied}) > 1:
        raise Undefined("samples of one time in several streams")
    return tied[place].value


def _quantile(wanted: float, values: list[float]) -> float:
    if any(map(math.isnan, values)):
        raise Undefined("quantile of NaN")
    if wanted < 0 or wanted > 1:
        return -math.inf if wanted < 0 else math.inf
    ordered = sorted(values)
    rank = wanted * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - (rank - low)) + ordered[high] * (rank - low)


def _counter_rate(window: list[Sample], seconds: float, end: int) -> float:
    if len(window) < 2:
        return 0.0
    if len({one.time for one in window}) < len(window) or any(not math.isfinite(one.value) for one in window):
        raise Undefined("a counter with samples of one time")
    increase = window[-1].value - window[0].value
    for before, after in pairwise(window):
        increase += before.value if after.value < before.value else 0.0
    sampled = (window[-1].time - window[0].time) / SECOND
    average = sampled / (len(window) - 1)
    to_start = (window[0].time - (end - round(seconds * SECOND))) / SECOND
    to_end = (end - window[-1].time) / SECOND
    to_start = average / 2 if to_start >= average * 1.1 else to_start
    if increase > 0 and window[0].value >= 0:
        to_start = min(to_start, sampled * window[0].value / increase)
    to_end = average / 2 if to_end >= average * 1.1 else to_end
    return increase * (sampled + to_start + to_end) / sampled / seconds
