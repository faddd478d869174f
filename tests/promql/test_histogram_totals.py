"""Which selectors say that totals are enough, and what is left of their samples then."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.promql.selection.selectors import totals_only
from lakerunner.promql.selection.staleness import STALE
from lakerunner.series.expression import Expression, Selector, parts
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint
from lakerunner.series.values import Samples, Steps


def selectors(expression: Expression) -> list[Selector]:
    return [expression] if isinstance(expression, Selector) else [s for p in parts(expression) for s in selectors(p)]


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("h", [False]),
        ("histogram_count(h)", [True]),
        ("histogram_sum(sum by (a) (rate(h[5m]))) / histogram_avg(h)", [True, True]),
        ("histogram_count(rate(h[5m:1m]))", [False]),
        ("max_over_time(histogram_count(h)[5m:1m])", [False]),
        ("histogram_count(h </ 3)", [False]),
        ("histogram_quantile(scalar(histogram_count(h)), g)", [False, False]),
        ("histogram_count((-h) + g) + f", [True, True, False]),
    ],
)
def test_totals_are_enough_unless_something_around_wants_buckets(query: str, marked: list[bool]) -> None:
    resolved = resolve(parse(query), Steps(0, 0), instant=True)
    assert [selector.totals_only for selector in selectors(resolved)] == marked


def test_resets_are_found_before_the_buckets_go() -> None:
    def histogram(sum_: float, *counts: float, hint: ResetHint = ResetHint.UNKNOWN) -> Histogram:
        buckets = BucketCounts(np.arange(len(counts), dtype=np.int32), np.array(counts))
        return Histogram(0, sum(counts), sum_, positive=buckets, reset_hint=hint)

    given = np.empty(6, object)
    given[:] = [
        histogram(1.0, 1, 1),
        histogram(2.0, 0, 3),  # the count goes up, a bucket goes down
        histogram(STALE, 0),
        histogram(3.0, 1, 3),
        histogram(4.0, 9, hint=ResetHint.GAUGE),
        histogram(5.0, 1),  # of another series
    ]
    samples = Samples([(("a", "1"),), (("a", "2"),)], np.array([0, 5, 6]), np.arange(6), np.zeros(6), given)
    found = totals_only(samples).histograms
    assert found is not None
    hints = [
        ResetHint.UNKNOWN,
        ResetHint.RESET,
        ResetHint.UNKNOWN,
        ResetHint.NOT_RESET,
        ResetHint.GAUGE,
        ResetHint.UNKNOWN,
    ]
    assert [one.reset_hint for one in found] == hints
    assert [len(one.positive) for one in found] == [0, 0, 1, 0, 0, 0]
    assert [one.count for one in found] == [2.0, 3.0, 0.0, 4.0, 9.0, 1.0]
