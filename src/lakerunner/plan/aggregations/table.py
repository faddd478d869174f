"""All aggregations there are, and how one is done. To add one: its file, and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.plan.aggregations.aggregation import Aggregation, Parameter
from lakerunner.plan.aggregations.count_values import COUNT_VALUES
from lakerunner.plan.aggregations.counting import COUNT, GROUP
from lakerunner.plan.aggregations.extremes import MAX, MIN
from lakerunner.plan.aggregations.limits import LIMIT_RATIO, LIMITK
from lakerunner.plan.aggregations.split import Split
from lakerunner.plan.aggregations.spread import QUANTILE, STDDEV, STDVAR
from lakerunner.plan.aggregations.sums import AVG, SUM
from lakerunner.plan.aggregations.tops import BOTTOMK, TOPK
from lakerunner.plan.vectors.expression import Aggregate
from lakerunner.plan.vectors.notes import Notes
from lakerunner.plan.vectors.values import Vector

AGGREGATIONS: Mapping[str, Aggregation] = {
    one.name: one
    for one in (
        SUM,
        AVG,
        COUNT,
        GROUP,
        MIN,
        MAX,
        STDDEV,
        STDVAR,
        QUANTILE,
        TOPK,
        BOTTOMK,
        LIMITK,
        LIMIT_RATIO,
        COUNT_VALUES,
    )
}

SPLITS: Mapping[str, Split] = {name: one.split for name, one in AGGREGATIONS.items() if one.split is not None}


def aggregate(node: Aggregate, vector: Vector, parameter: Parameter, notes: Notes) -> Vector:
    """Groups in the order of their first series, topk and bottomk of an instant by value."""
    return AGGREGATIONS[node.op].evaluate(node, vector, parameter, notes)
