from __future__ import annotations

from uuid import uuid4

import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.organization import checked_name, is_of_rule

RULE = {"name": "errors", "signal": "logs", "selector": '{a="b"}', "measure": "count", "metric": "log_errors"}


def test_a_rule_is_read_as_it_was_written() -> None:
    rule = MetricRule.from_json(RULE | {"dimensions": ["b", "a", "b"], "max_series": 5, "enabled": False})
    assert rule.dimensions == ("a", "b")
    assert MetricRule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize("text", ["count", "bytes", "errors", "sum(a)", "sum(bytes(size))", "histogram(duration(a.b))"])
def test_measures(text: str) -> None:
    assert str(Measure.parse(text)) == text


@pytest.mark.parametrize("text", ["", "sum", "sum()", "count(a)", "sum(bytes(a)", "sum(log(a))", "a b"])
def test_what_is_no_measure(text: str) -> None:
    with pytest.raises(UserError, match="unknown measure"):
        Measure.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a b"}, "rule name"),
        ({"name": "a" * 65}, "too long"),
        ({"measure": "errors"}, "logs have no measure errors"),
        ({"metric": "a-b"}, "metric name"),
        ({"metric": 5}, "metric of a rule is a text"),
        ({"source_metric": "x"}, "source_metric"),
        ({"dimensions": ["a.b"]}, "no label name"),
        ({"dimensions": "a"}, "list of texts"),
        ({"max_series": 0}, "at least 1"),
        ({"colour": 1}, "unknown keys"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MetricRule.from_json(RULE | change)
    with pytest.raises(UserError, match="lacks"):
        MetricRule.from_json({})


def test_each_version_has_a_collector_that_nobody_else_can_have() -> None:
    one = RuleVersion(7, uuid4(), 2, MetricRule.from_json(RULE))
    assert one.collector == "_errors.2"
    assert is_of_rule(one.collector)
    with pytest.raises(UserError):
        checked_name("collector", one.collector)
