"""Aggregations: many series into few, at every step.

Comes in: a vector. Goes out: one series for each group, or some of the group's own. What always holds: series are
taken in their order, which decides the last bits; an aggregation that has a split comes to the same over parts of the
series (split.py).
"""

from lakerunner.series.aggregations.split import NotSplit, Split
from lakerunner.series.aggregations.table import AGGREGATIONS, SPLITS, aggregate

__all__ = ["AGGREGATIONS", "SPLITS", "NotSplit", "Split", "aggregate"]
