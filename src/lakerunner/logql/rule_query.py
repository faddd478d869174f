"""The LogQL query that a rule over logs stands for.

Comes in: a rule (model/metric_rules/). Goes out: a range aggregation over one bucket and the grouping of a sum around
it: what ingest evaluates, and what the planner compares queries with. What always holds: a rule's stages leave the line
as it was stored, and its measure adds up, so that the values of its buckets are those of any windows made of them.
"""

from __future__ import annotations

from typing import NamedTuple

from lakerunner.logql.stages.pipeline import check_stage
from lakerunner.logql.text.lexer import position
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import (
    Grouping,
    Json,
    LabelFilter,
    LineFilter,
    Logfmt,
    LogRange,
    Pattern,
    Pipeline,
    RangeAggregation,
    Regexp,
    Unwrap,
)
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import BUCKET_MS, MetricRule
from lakerunner.model.time import MS_NS

_ALLOWED = (LineFilter, Json, Logfmt, Regexp, Pattern, LabelFilter)
# The range aggregation of each measure of lines. A histogram is made of the samples that a sum adds up.
_OPS = {
    "count": "count_over_time",
    "bytes": "bytes_over_time",
    "sum": "sum_over_time",
    "histogram": "sum_over_time",
}


class RuleQuery(NamedTuple):
    """The range aggregation over one bucket, and the grouping of the sum around it."""

    aggregation: RangeAggregation
    dimensions: Grouping


def rule_query(rule: MetricRule) -> RuleQuery:
    """Return the query of a rule over logs. Raise UserError, with its position, for a selector that is not LogQL or has
    a stage that a rule cannot have."""
    pipeline = parse_logql(rule.selector, check_stage)
    if not isinstance(pipeline, Pipeline):
        raise UserError("the selector of a rule is a log query: the measure says what is computed of its lines")
    for stage in pipeline.stages:
        if not isinstance(stage, _ALLOWED):
            name = type(stage).__name__
            raise UserError(
                f"{name} cannot stand in a rule: use line filters, json, logfmt, regexp, pattern and label filters",
                position(rule.selector, stage.span.start),
            )
    measure = rule.measure
    unwrap = Unwrap(measure.field, measure.conversion) if measure.field else None  # type: ignore[arg-type]
    lines = LogRange(pipeline, BUCKET_MS * MS_NS, unwrap=unwrap)
    return RuleQuery(RangeAggregation(_OPS[measure.kind], lines), Grouping(rule.dimensions))
