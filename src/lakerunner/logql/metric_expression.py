"""Turn a metric query into an expression over series, and the range aggregations that it is made of.

Comes in: the tree of a metric query. Goes out: an expression whose `Given` nodes are the values of `leaves` by number.
What always holds: equal range aggregations are one leaf; a leaf keeps only the labels that the query can see, where
Loki's parsers would extract only those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakerunner.logql.stages.sample import OF_BYTES
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
    RangeAggregation,
    Regexp,
    Unpack,
    VectorAggregation,
    VectorLiteral,
)
from lakerunner.series.expression import Aggregate, Binary, Call, Expression, Given, Matching, Number, Paren, Text

SORTS = ("sort", "sort_desc")
# approx_topk is answered exactly.
_AGGREGATIONS = {"approx_topk": "topk"}
# A division by zero has no value in LogQL (series/binary/elementwise.py).
_OPERATORS = {"/": "div", "%": "mod"}
_SET_OPERATORS = ("and", "or", "unless")


@dataclass(frozen=True)
class RangeLeaf:
    """A range aggregation that lines are read for. `pushed` is the grouping of a sum around it: Loki extracts only the
    labels that it names."""

    aggregation: RangeAggregation
    pushed: Grouping | None = None


Given_ = RangeLeaf | VectorLiteral
_READ_LINES = (LineFilter, Json, Logfmt, Regexp, Pattern, Unpack)


@dataclass(frozen=True)
class MetricExpression:
    expression: Expression
    given: tuple[Given_, ...]

    @property
    def leaves(self) -> tuple[RangeLeaf, ...]:
        return tuple(one for one in self.given if isinstance(one, RangeLeaf))


def metric_expression(query: Metric) -> MetricExpression:
    found = _Builder()
    expression = found.build(query)
    return MetricExpression(expression, tuple(found.given))


def without_idle_formats(aggregation: RangeAggregation) -> RangeAggregation:
    """Drop each line_format whose line neither a later parser or line filter nor the aggregation reads. Loki does not
    run them either, so that their templates raise no errors."""
    pipeline = aggregation.lines.pipeline
    if aggregation.op in OF_BYTES:
        return aggregation
    kept = tuple(
        stage
        for number, stage in enumerate(pipeline.stages)
        if not isinstance(stage, LineFormat) or any(isinstance(one, _READ_LINES) for one in pipeline.stages[number:])
    )
    if len(kept) == len(pipeline.stages):
        return aggregation
    return replace(aggregation, lines=replace(aggregation.lines, pipeline=replace(pipeline, stages=kept)))


@dataclass
class _Builder:
    given: dict[Given_, int] = field(default_factory=dict)

    def build(self, node: Metric) -> Expression:
        match node:
            case Constant(value):
                return Number(value, span=node.span)
            case VectorLiteral():
                return self._give(node)
            case RangeAggregation():
                return self._give(RangeLeaf(without_idle_formats(node)))
            case VectorAggregation():
                return self._aggregate(node)
            case LabelReplace():
                texts = (node.target, node.replacement, node.source, node.pattern)
                return Call("label_replace", (self.build(node.inner), *map(Text, texts)), node.span)
            case Operation():
                return self._operation(node)
        raise TypeError(f"{type(node).__name__} is not a metric query")

    def _give(self, given: Given_) -> Given:
        return Given(self.given.setdefault(given, len(self.given)))

    def _aggregate(self, node: VectorAggregation) -> Expression:
        inner = node.inner
        if node.op in SORTS:
            return Call(node.op, (self.build(inner),), node.span)
        grouping = node.grouping or Grouping(())
        if node.op == "sum" and isinstance(inner, RangeAggregation):
            below: Expression = self._give(RangeLeaf(without_idle_formats(inner), grouping))
        else:
            below = self.build(inner)
        parameter = None if node.parameter is None else Number(float(node.parameter))
        op = _AGGREGATIONS.get(node.op, node.op)
        return Aggregate(op, below, parameter, grouping.labels, grouping.without, node.span)

    def _operation(self, node: Operation) -> Expression:
        matching = node.matching
        if matching is None:
            matching = Matching("many-to-many") if node.op in _SET_OPERATORS else Matching()
        left, right = self.build(node.left), self.build(node.right)
        op = _OPERATORS.get(node.op, node.op)
        return Paren(Binary(op, left, right, matching, node.return_bool, node.span))
