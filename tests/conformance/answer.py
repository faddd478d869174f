"""Answers in the one form that is compared, and the comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.notation import Point
from conformance.script import Eval, Expected
from lakerunner.model.labels import Labels, labels_text
from lakerunner.promql.selection.staleness import STALE_BITS
from lakerunner.series.histograms.histogram import BucketCounts, Histogram

EPSILON = 1e-6
_LEAST_NORMAL = 2.0**-1022

# A histogram of the engine, or as HTTP shows it.
Shown = Histogram | object


@dataclass(frozen=True)
class LogEntry:
    """A line of a stream and its labels by kind; `time` in ns."""

    time: int
    text: str
    stream: Labels
    metadata: Labels = ()
    parsed: Labels = ()


@dataclass(frozen=True)
class Answer:
    """`series`: the points of each, (time in ticks, number or histogram). A vector has one point in each series. `kind`
    is scalar, vector, matrix, string or streams; `scalar` holds a scalar, `entries` the lines of streams. `error`: the
    message of a query that failed."""

    kind: str = "vector"
    series: Sequence[tuple[Labels, Sequence[tuple[int, float | Shown]]]] = ()
    scalar: float = math.nan
    string: str = ""
    warnings: Sequence[str] = ()
    infos: Sequence[str] = ()
    error: str | None = None
    entries: Sequence[LogEntry] = ()


SameHistogram = Callable[[Point, object], bool]


def almost_equal(one: float, other: float) -> bool:
    """Compare within a relative 1e-6. All NaN are equal, except the one that marks the end of a series."""
    stale = [np.float64(value).view(np.uint64) == STALE_BITS for value in (one, other)]
    if any(stale):
        return all(stale)
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    total, difference = abs(one) + abs(other), abs(one - other)
    if one == 0 or other == 0 or total < _LEAST_NORMAL:
        return difference < EPSILON * _LEAST_NORMAL
    return difference / min(total, 1.7976931348623157e308) < EPSILON


def same_histogram(expected: Point, got: object) -> bool:
    """Compare histograms. Buckets of count zero are ignored; the reset hint is compared if the script names it."""
    one = expected.value
    return (
        isinstance(one, Histogram)
        and isinstance(got, Histogram)
        and (one.schema, one.zero_threshold) == (got.schema, got.zero_threshold)
        and (not one.is_custom or one.custom_values == got.custom_values)
        and almost_equal(one.count, got.count)
        and almost_equal(one.sum, got.sum)
        and almost_equal(one.zero_count, got.zero_count)
        and _same_buckets(one.positive, got.positive)
        and _same_buckets(one.negative, got.negative)
        and (not expected.hint_given or one.reset_hint == got.reset_hint)
    )


def _same_buckets(one: BucketCounts, other: BucketCounts) -> bool:
    left, right = one.counts != 0, other.counts != 0
    if not np.array_equal(one.indexes[left], other.indexes[right]):
        return False
    pairs = zip(one.counts[left].tolist(), other.counts[right].tolist(), strict=True)
    return all(almost_equal(a, b) for a, b in pairs)


def problem_of(case: Eval, answer: Answer, same: SameHistogram = same_histogram) -> str | None:
    """Return what is wrong with the answer; None if nothing is."""
    if answer.error is not None:
        if not case.fail:
            return f"failed: {answer.error}"
        return None if case.fail[0].meets(answer.error) else f"failed otherwise than expected: {answer.error}"
    if case.fail:
        return f"did not fail ({case.fail[0].text or 'in any way'}), got {shown(answer)}"
    return problem_of_notes(case, answer) or problem_of_value(case, answer, same)


def problem_of_notes(case: Eval, answer: Answer) -> str | None:
    if case.no_warn and answer.warnings:
        return f"unexpected warnings: {list(answer.warnings)}"
    if case.no_info and answer.infos:
        return f"unexpected infos: {list(answer.infos)}"
    return _problem_of_level("warning", case.warn, answer.warnings) or _problem_of_level(
        "info", case.info, answer.infos
    )


def _problem_of_level(level: str, expected: Sequence[Expected], got: Sequence[str]) -> str | None:
    for one in expected:
        if not any(one.meets(message) for message in got):
            return f"no {level} {one.text!r}, but {list(got)}"
    for message in got if expected else ():
        if not any(one.meets(message) for one in expected):
            return f"unexpected {level}: {message}"
    return None


def problem_of_value(case: Eval, answer: Answer, same: SameHistogram) -> str | None:
    if answer.kind == "string":
        return None if answer.string == (case.string or "") else f"expected {case.string!r}, got {answer.string!r}"
    if answer.kind == "scalar":
        if case.scalar is None:
            return f"expected series, got the scalar {answer.scalar}"
        return None if almost_equal(case.scalar, answer.scalar) else f"expected {case.scalar}, got {answer.scalar}"
    if case.scalar is not None:
        return f"expected the scalar {case.scalar}, got {shown(answer)}"
    if answer.kind == "matrix" and case.ordered:
        return "an order is expected of a matrix, which has one of its own"
    labels = [one for one, _ in answer.series]
    if len(set(labels)) != len(labels):
        return f"a series is there twice: {shown(answer)}"
    if answer.kind == "matrix" and labels != sorted(labels):
        return f"not sorted by labels: {shown(answer)}"
    if case.ordered and labels != list(case.series):
        return f"expected the order {_texts(case.series)}, got {shown(answer)}"
    return _problem_of_series(case, answer, same)


def _problem_of_series(case: Eval, answer: Answer, same: SameHistogram) -> str | None:
    got = dict(answer.series)
    missing = [labels for labels in case.series if labels not in got]
    unexpected = [labels for labels in got if labels not in case.series]
    if missing or unexpected:
        return f"missing: {_texts(missing)}, unexpected: {_texts(unexpected)}, got {shown(answer)}"
    assert case.points is not None
    times = case.points.times.tolist()
    for labels, points in case.series.items():
        if len(points) > len(times):
            return f"{labels_text(labels)}: {len(points)} values are expected of {len(times)} steps"
        expected = {time: point for time, point in zip(times, points, strict=False) if point.value is not None}
        if answer.kind == "vector":
            expected = {time: points[0] for time, _ in got[labels]}
        if expected.keys() != {time for time, _ in got[labels]}:
            return f"{labels_text(labels)}: expected at {list(expected)}, got {shown(answer)}"
        for time, value in got[labels]:
            if not _same(expected[time], value, same):
                return f"{labels_text(labels)} at {time}: expected {expected[time].value}, got {value}"
    return None


def _same(expected: Point, got: float | Shown, same: SameHistogram) -> bool:
    if isinstance(expected.value, float) and isinstance(got, float):
        return almost_equal(expected.value, got)
    return isinstance(expected.value, Histogram) and not isinstance(got, float) and same(expected, got)


def middle_of(ranged: Answer, at: int, kind: str) -> Answer:
    """Return what the answer to a range says about one of its steps, as the kind that an instant there has."""
    series = [(labels, [point for point in points if point[0] == at]) for labels, points in ranged.series]
    there = [(labels, points) for labels, points in series if points]
    if kind != "scalar":
        return Answer("vector", there)
    value = there[0][1][0][1] if there else None
    return Answer("scalar", scalar=value) if isinstance(value, float) else Answer("vector", there)


def shown(answer: Answer) -> str:
    if answer.kind in ("scalar", "string"):
        return f"{answer.kind} {answer.scalar if answer.kind == 'scalar' else answer.string!r}"
    series = [f"{labels_text(labels)} {[value for _, value in points]}" for labels, points in answer.series]
    return f"{answer.kind} of {len(series)}: " + "; ".join(series[:10])


def _texts(labels: Any) -> list[str]:
    return [labels_text(one) for one in labels]
