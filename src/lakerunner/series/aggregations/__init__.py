"""Aggregations: fold many series into few, at every step. To add one: its code in a file here, and its line below.

Comes in: a vector. Goes out: one series for each group, or some of the group's own. What always holds: series are taken
in their order, which decides the last bits; an aggregation with a split gives the same over any parts of the series
(aggregation.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.series.aggregations.aggregation import Aggregation, NotSplit, Parameter, Split
from lakerunner.series.aggregations.distribution import (
    COUNT,
    COUNT_VALUES,
    GROUP,
    MAX,
    MIN,
    QUANTILE,
    STDDEV,
    STDVAR,
)
from lakerunner.series.aggregations.subsets import BOTTOMK, LIMIT_RATIO, LIMITK, TOPK
from lakerunner.series.aggregations.sums import AVG, SUM
from lakerunner.series.expression import Aggregate
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector

__all__ = ["AGGREGATIONS", "SPLITS", "NotSplit", "Split", "aggregate"]

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
    """Aggregate a vector. Groups come in the order of their first series, topk and bottomk of an instant by value."""
    return AGGREGATIONS[node.op].evaluate(node, vector, parameter, notes)
