"""Rules that tests store, and a strategy for many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule

ERRORS = MetricRule(
    "errors", "logs", '{service_name="cart"} |= "refused"', Measure("count"), "log_errors", ("service_name",)
)


def rule(name: str, **changes: Any) -> MetricRule:
    """A rule over logs whose metric is its own."""
    return replace(ERRORS, name=name, **{"metric": f"made_{name}", **changes})


def over_metric(name: str, source: str, metric: str) -> MetricRule:
    return MetricRule(name, "metrics", "{}", Measure("sum", "value"), metric, (), source)


@st.composite
def _rules(draw: st.DrawFn, name: str) -> MetricRule:
    return rule(
        name,
        selector=draw(st.sampled_from(['{a="b"}', '{a="c"}'])),
        dimensions=draw(st.sampled_from([(), ("a",), ("a", "b")])),
        description=draw(st.sampled_from(["", "why"])),
        enabled=draw(st.booleans()),
        max_series=draw(st.integers(1, 3)),
    )


# Some of four rules, each in any form.
RULE_LISTS = st.lists(st.sampled_from("abcd"), unique=True).flatmap(
    lambda names: st.tuples(*(_rules(name) for name in names)).map(list)
)
