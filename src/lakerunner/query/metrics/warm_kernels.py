"""Compiles the kernels of PromQL's usual functions by evaluating them once over a few samples.

numba compiles a kernel when it is first called, which takes a second or two, and caches it on disk, so that no query
waits for it. Functions that are missing here are compiled by their first query.
"""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels.matcher import Matcher
from lakerunner.promql.language import PROMQL
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.expression import NOWHERE
from lakerunner.series.notes import Notes
from lakerunner.series.rollups import COUNT, SKETCH, WHOLE_NUMBERS, RollupRange, RollupSeries, sketch_numbers
from lakerunner.series.values import Samples, Steps

_USUAL = (
    "sum by (job) (rate(m[5m]))",
    "avg(increase(m[5m])) / count(irate(m[5m]))",
    "min(delta(m[5m])) + max(m)",
    "topk(1, m) or bottomk(1, m)",
    "quantile(0.9, m) > 0",
    "stddev(m)",
    "sum_over_time(m[5m]) + avg_over_time(m[5m]) + count_over_time(m[5m]) + last_over_time(m[5m])",
    "max_over_time(m[5m]) - min_over_time(m[5m])",
    "quantile_over_time(0.5, m[5m]) + stddev_over_time(m[5m])",
    "deriv(m[5m]) + predict_linear(m[5m], 60)",
    "changes(m[5m]) + resets(m[5m])",
    "histogram_quantile(0.9, sum by (le) (rate(m[5m])))",
    "histogram_quantile(0.9, sketch_over_time(m[5m]))",
    "round(m ^ 2, 0.1) * on (job, le) group_left () m",
)


def warm() -> None:
    steps = Steps(60_000, 600_000, 60_000)
    for text in _USUAL:
        evaluate(resolve(parse(text), steps, False), steps, _FewSamples(), PROMQL)
    for function in PROMQL.functions.values():
        if function.from_buckets is not None:
            function.from_buckets.evaluate(_few_windows(function.from_buckets.facts, steps))


def _few_windows(facts: tuple[str, ...], steps: Steps) -> RollupRange:
    ends = np.arange(60_000, 660_000, 60_000, dtype=np.int64)
    numbers = {fact: ends.copy() if fact in WHOLE_NUMBERS else ends * 1.0 for fact in facts}
    numbers |= {COUNT: np.ones_like(ends), SKETCH: np.arange(len(ends))}
    windows = RollupSeries(
        [(("job", "a"),)], np.array([0, len(ends)]), ends, numbers, sketch_numbers(ends.astype(float))
    )
    return RollupRange(windows, steps.times, 120_000, NOWHERE, Notes(PROMQL.words))


class _FewSamples:
    """Two series, whatever is selected."""

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:  # noqa: ARG002
        labels = [(("job", "a"), ("le", bound)) for bound in ("+Inf", "1")]
        times = np.arange(20_000, 620_000, 30_000, dtype=np.int64)
        count = len(times)
        values = np.concatenate([np.arange(count) % 15, np.arange(count) * 1.5])
        return Samples(labels, np.array([0, count, 2 * count]), np.concatenate([times, times]), values)
