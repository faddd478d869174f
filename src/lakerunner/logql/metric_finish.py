"""Metric queries: the leaves that give samples, and the finish that makes series of them.

Comes in: the tree of a metric query and its steps. Goes out: a plan with a leaf of samples for each range aggregation,
whose finish aggregates them over their ranges and evaluates the rest of the expression. What always holds: windows are
(t - range, t] in ns, each shifted back by its offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lakerunner.logql.columns.partial_sums import Buckets, Windows
from lakerunner.logql.line_conditions import scan_conditions
from lakerunner.logql.log_limits import LogLimits
from lakerunner.logql.log_samples import LogSamples
from lakerunner.logql.metric_expression import MetricExpression, RangeLeaf, metric_expression
from lakerunner.logql.range_aggregations import ABSENT, absent_range, aggregate_range
from lakerunner.logql.rule_choice import with_points
from lakerunner.logql.rule_guard import Wanted
from lakerunner.logql.text.printer import exact_text, query_text
from lakerunner.logql.text.syntax import Metric, RangeAggregation
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import interval_text, time_text
from lakerunner.plan.plan import Leaf, Plan
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import Evaluator, finish
from lakerunner.series.evaluation.series_finish import AnswerValue, LeafValues, Select, SeriesFinish
from lakerunner.series.expression import Kind
from lakerunner.series.function import Source, kind_of
from lakerunner.series.functions.label_functions import LABEL_FUNCTIONS
from lakerunner.series.functions.sorting import SORTING
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.values import NO_SAMPLES, Samples, Scalar, Steps, String, Vector, sort_by_labels

Detail = Literal["sums", "samples", "rows"]
_FUNCTIONS = frozenset({"label_replace", "sort", "sort_desc"})
# A tick is a nanosecond, and every sample counts.
LOGQL = Language({one.name: one for one in (*LABEL_FUNCTIONS, *SORTING) if one.name in _FUNCTIONS})


@dataclass(frozen=True)
class MetricQuery:
    """A metric query at these steps. `detail` is what workers give: sums of samples where that is possible, samples,
    or samples that were computed row by row. Points of `versions` may stand for rows where sums may."""

    query: Metric
    steps: Steps
    instant: bool
    rules: StreamRules
    now_ns: int
    limits: LogLimits
    detail: Detail = "sums"
    versions: tuple[RuleVersion, ...] = ()

    def plan(self) -> Plan:
        found = metric_expression(self.query)
        leaves = dict.fromkeys(self.leaf(one) for one in found.leaves)
        return Plan(tuple(leaves), LogqlFinish(self))

    def leaf(self, one: RangeLeaf) -> Leaf:
        lines = one.aggregation.lines
        start = self.steps.start - lines.offset - lines.range
        end = self.steps.last - lines.offset
        operator = self.operator(one)
        conditions = scan_conditions(lines.pipeline.matchers, lines.pipeline.stages, self.rules)
        leaf = Leaf(replace(operator.scan(start + 1, end + 1), conditions=conditions), operator)
        if not self.versions or self.detail != "sums":
            return leaf
        return with_points(leaf, operator, Wanted(one, self.steps, self.rules), self.versions)

    def operator(self, one: RangeLeaf) -> LogSamples:
        lines = one.aggregation.lines
        step = 0 if self.steps.start == self.steps.last else self.steps.step
        first = self.steps.start - lines.offset
        return LogSamples(
            exact_text(one.aggregation),
            one.pushed,
            self.rules,
            self.now_ns,
            self.limits,
            by_rows=self.detail == "rows",
            buckets=Buckets.of(first, step, lines.range) if self.detail == "sums" else None,
            windows=Windows(first - lines.range, step, lines.range) if step > lines.range else None,
        )


@dataclass(frozen=True)
class LogqlFinish(SeriesFinish):
    """Aggregate the samples of the leaves over their ranges, and evaluate the rest of the expression."""

    query: MetricQuery

    @property
    def language(self) -> Language:
        return LOGQL

    @property
    def kind(self) -> Kind:
        return kind_of(self._parts.expression, LOGQL.functions)

    @property
    def steps(self) -> Steps:
        return self.query.steps

    @property
    def max_samples(self) -> int:
        return self.query.limits.max_samples

    @property
    def _parts(self) -> MetricExpression:
        return metric_expression(self.query.query)

    def within(self, steps: Steps) -> Plan:
        return replace(self.query, steps=steps).plan()

    def unfolded(self) -> Plan:
        return replace(self.query, detail="samples" if self.query.detail == "sums" else "rows").plan()

    def check(self, bounds: Bounds) -> None:
        bounds.hold(1, len(self.steps))

    def run(self, values: LeafValues, select: Select, bounds: Bounds, notes: Notes) -> AnswerValue:  # noqa: ARG002
        parts = self._parts
        given = []
        for one in parts.given:
            if isinstance(one, RangeLeaf):
                found = values.get(self.query.operator(one))
                given.append(
                    self._aggregate(one.aggregation, found if isinstance(found, Samples) else NO_SAMPLES, bounds)
                )
            else:
                given.append(Vector([()], np.array([[one.value]]), np.ones((1, 1), bool)))
        evaluator = Evaluator(_NoSource(), LOGQL, given=given, bounds=bounds)
        value = finish(evaluator.evaluate(parts.expression, self.steps))
        notes.add(evaluator.notes.all())
        if isinstance(value, Vector):
            ordered = value if self.query.instant else sort_by_labels(value)
            if self.query.limits.cut_answer:
                return first_series(ordered, self.query.limits.max_series + 1)
            self.query.limits.check_series(len(value))
            return ordered
        if not isinstance(value, Scalar | String):
            raise TypeError(f"a metric query gave a {type(value).__name__}")
        return value

    def _aggregate(self, aggregation: RangeAggregation, samples: Samples, bounds: Bounds) -> Vector:
        lines = aggregation.lines
        ends = self.steps.times - lines.offset
        bounds.hold(len(samples), len(ends))
        if aggregation.op == ABSENT:
            return absent_range(lines.pipeline.matchers, samples, ends, lines.range)
        return aggregate_range(aggregation.op, samples, ends, lines.range, aggregation.parameter)

    def lines(self) -> Iterator[str]:
        steps = self.steps
        if self.query.instant:
            yield f"at {time_text(steps.start)}"
        else:
            yield f"from {time_text(steps.start)} to {time_text(steps.end)}, every {interval_text(steps.step)}"
        yield f"evaluate {query_text(self.query.query)}"


def first_series(vector: Vector, count: int) -> Vector:
    """Return the first series; LogQL's have no histograms."""
    return Vector(vector.labels[:count], vector.values[:count], vector.present[:count])


class _NoSource(Source):
    """LogQL's expressions hold no selectors: their samples are given."""

    def select(self, matchers: Matchers, start: int, end: int) -> Samples:  # noqa: ARG002
        raise TypeError("LogQL has no selectors of samples")
