"""All aggregations there are, and how one is done. To add one: its file, and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.series.aggregations.aggregation import Aggregation, Parameter
from lakerunner.series.aggregations.count_values import COUNT_VALUES
from lakerunner.series.aggregations.counting import COUNT, GROUP
from lakerunner.series.aggregations.extremes import MAX, MIN
from lakerunner.series.aggregations.limits import LIMIT_RATIO, LIMITK
from lakerunner.series.aggregations.split import Split
from lakerunner.series.aggregations.spread import QUANTILE, STDDEV, STDVAR
from lakerunner.series.aggregations.sums import AVG, SUM
from lakerunner.series.aggregations.tops import BOTTOMK, TOPK
from lakerunner.series.expression import Aggregate
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector

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
