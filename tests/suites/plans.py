"""What plans of SQL are made of."""

from __future__ import annotations

from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, SqlFinish


def finish_of(plan: Plan) -> SqlFinish:
    assert isinstance(plan.finish, SqlFinish)
    return plan.finish


def leaf_sql(leaf: Leaf) -> str:
    assert isinstance(leaf.operator, SqlRows)
    return leaf.operator.sql
