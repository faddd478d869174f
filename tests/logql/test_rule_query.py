from __future__ import annotations

import pytest

from lakerunner.logql.rule_query import rule_query
from lakerunner.logql.text.printer import exact_text
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule


def rule(selector: str, measure: str = "count") -> MetricRule:
    return MetricRule("r", "logs", selector, Measure.parse(measure), "made", ("level",))


@pytest.mark.parametrize(
    ("selector", "measure", "text"),
    [
        ('{app="a"} |= "x"', "count", 'count_over_time({app="a"} |= "x"[10s])'),
        ('{app="a"} | json | status >= 500', "bytes", 'bytes_over_time({app="a"} | json | status>=500[10s])'),
        ('{app="a"} | logfmt', "sum(took)", 'sum_over_time({app="a"} | logfmt | unwrap took[10s])'),
        (
            '{app="a"} | logfmt',
            "histogram(duration(took))",
            'sum_over_time({app="a"} | logfmt | unwrap duration(took)[10s])',
        ),
    ],
)
def test_a_rule_stands_for_a_query(selector: str, measure: str, text: str) -> None:
    query = rule_query(rule(selector, measure))
    assert exact_text(query.aggregation) == text
    assert (query.dimensions.labels, query.dimensions.without) == (("level",), False)


def test_what_cannot_stand_in_a_rule_is_refused_with_its_place() -> None:
    with pytest.raises(UserError, match=r"LineFormat cannot stand in a rule.*line 1, column 11"):
        rule_query(rule('{app="a"} | line_format "x"'))
    with pytest.raises(UserError, match="the measure says"):
        rule_query(rule('count_over_time({app="a"}[1m])'))
    with pytest.raises(UserError, match="line 1, column 2"):
        rule_query(rule("{"))
