"""Choose the rule whose points stand for a range aggregation over lines.

Comes in: a leaf of samples, what it is asked for, and the rules of the organization. Goes out: the leaf with what may
replace it, and why other rules may not. What always holds: of several rules the most specific one is chosen, which has
the fewest points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakerunner.logql.log_samples import LogSamples
from lakerunner.logql.part_samples import PartSamples, RowsAreOnce, filters_text
from lakerunner.logql.rule_guard import Wanted, difference, refusal, whole_buckets, window
from lakerunner.logql.rule_query import RuleQuery, rule_query
from lakerunner.logql.text.printer import exact_text
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.time import TimeRange
from lakerunner.plan.plan import Leaf, Points

_LOGS = "logs"


def with_points(leaf: Leaf, operator: LogSamples, wanted: Wanted, versions: Sequence[RuleVersion]) -> Leaf:
    """Return the leaf with the points that may replace its rows, if a rule allows it."""
    refused: list[tuple[RuleVersion, str]] = []
    found: list[tuple[RuleVersion, RuleQuery]] = []
    for version in versions:
        if version.rule.signal != _LOGS or not version.is_active:
            continue
        try:
            query = rule_query(version.rule)
        except UserError as error:  # one that an older release took
            refused.append((version, error.message))
            continue
        if reason := refusal(wanted, query):
            refused.append((version, reason))
        else:
            found.append((version, query))
    found.sort(key=_order)
    points = _points(leaf, operator, wanted, *found[0]) if found else None
    refused += [(version, "another has fewer points") for version, _ in found[1:]]
    return replace(leaf, points=points, refused=tuple(_not_used(*one) for one in refused))


def _not_used(version: RuleVersion, reason: str) -> str:
    return f"rule {version.rule.name} version {version.version} is not used, {reason}"


def _order(one: tuple[RuleVersion, RuleQuery]) -> tuple[int, int, int]:
    version, query = one
    pipeline = query.aggregation.lines.pipeline
    return -len(pipeline.matchers) - len(pipeline.stages), len(query.dimensions.labels), version.id


def _points(leaf: Leaf, operator: LogSamples, wanted: Wanted, version: RuleVersion, rule: RuleQuery) -> Points:
    start, end = window(wanted)
    first, last = whole_buckets(start, end)
    more = difference(wanted, rule)
    grouping = wanted.leaf.aggregation.grouping or wanted.leaf.pushed
    by = grouping.labels if grouping else ()
    samples = PartSamples(
        version.rule.metric,
        by,
        rule.dimensions.labels,
        more.matchers,
        filters_text(more.stages),
        operator.buckets,
        operator.limits,
    )
    selector = exact_text(Pipeline(wanted.matchers))
    rows = _of_time(leaf, first, last)
    edges = tuple(_of_time(leaf, *edge) for edge in ((start, first), (last, end)) if edge[0] < edge[1])
    return Points(
        version.id,
        f"{version.rule.name} version {version.version}",
        version.collector,
        Leaf(samples.scan(first, last), samples),
        rows,
        replace(rows, operator=RowsAreOnce(selector, wanted.rules)),
        edges,
    )


def _of_time(leaf: Leaf, start: int, end: int) -> Leaf:
    """Return the leaf for the rows of (start, end]."""
    return replace(leaf, scan=replace(leaf.scan, time=TimeRange(start + 1, end + 1)))
