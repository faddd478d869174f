from __future__ import annotations

from uuid import UUID

import pytest

from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.metric_expression import RangeLeaf, metric_expression
from lakerunner.logql.rule_guard import CLAUSES, Wanted, refusal, whole_buckets
from lakerunner.logql.rule_query import RuleQuery, rule_query
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import MINUTE_NS, SECOND_NS
from lakerunner.series.values import Steps

ALL = '{app=~".+"}'
NO_NAMES = StreamRules.from_json({"discover_service_name": []})
MINUTES = Steps(10 * MINUTE_NS, 20 * MINUTE_NS, MINUTE_NS)


def rule(selector: str, dimensions: str = "", measure: str = "count") -> RuleQuery:
    given = tuple(sorted(dimensions.split()))
    return rule_query(MetricRule("r", "logs", selector, Measure.parse(measure), "made", given))


def wanted(query: str, steps: Steps = MINUTES, rules: StreamRules = DEFAULT_RULES) -> Wanted:
    parsed = parse_logql(query)
    assert not isinstance(parsed, Pipeline)
    (leaf,) = metric_expression(parsed).leaves
    return Wanted(leaf, steps, rules)


ERRORS = rule('{app=~".+"} |= "error"', "app level")
ACCEPTED = [
    ('sum(count_over_time({app=~".+"} |= "error" [5m]))', ERRORS),
    ('sum by (app) (rate({app=~".+"} |= "error" [5m]))', ERRORS),
    ('topk(3, sum by (level) (rate({app="a"} |= "error" [5m])))', ERRORS),
    ('sum by (level) (count_over_time({app="a", app!="b"} |= "error" [5m] offset 1m))', ERRORS),
    ('sum by (level) (count_over_time({app=~".+"} |= "error" | level="x" or app=~"b|c" [5m]))', ERRORS),
    ('sum(bytes_rate({app="a"} [10s])) / 2', rule('{app=~".+"}', "app", "bytes")),
    ('sum by (p) (sum_over_time({a="b"} | logfmt | unwrap t [1m]))', rule('{a="b"} | logfmt', "p", "sum(t)")),
    ('sum(rate({a="b"} | json | unwrap bytes(t) [1m]))', rule('{a="b"} | json', "", "sum(bytes(t))")),
    ('sum by (x) (count_over_time({a="b", service_name="c"} [1m]))', rule('{a="b"}', "service_name x")),
]


@pytest.mark.parametrize(("query", "of"), ACCEPTED)
def test_a_rule_stands_for_what_it_measures(query: str, of: RuleQuery) -> None:
    assert refusal(wanted(query), of) == ""


def test_one_window_needs_a_whole_bucket() -> None:
    query = 'sum(count_over_time({app="a"} |= "error" [15s]))'
    for end, reason in ((25, ""), (18, "windows: the window has no whole bucket")):
        instant = Steps(*[end * SECOND_NS] * 2)
        assert refusal(wanted(query, instant), ERRORS) == reason
    assert whole_buckets(7, 25 * SECOND_NS) == (10 * SECOND_NS, 20 * SECOND_NS)
    assert whole_buckets(-25 * SECOND_NS, -10 * SECOND_NS) == (-20 * SECOND_NS, -10 * SECOND_NS)


# For each clause queries that it alone refuses: without it the answer would be wrong.
REFUSED = [
    ("measure", 'sum(bytes_over_time({app="a"} |= "error" [5m]))', ERRORS, "bytes_over_time is not made of count_over"),
    ("measure", 'sum(max_over_time({a="b"} | logfmt | unwrap t [1m]))', rule('{a="b"} | logfmt', "", "sum(t)"), "max_"),
    (
        "measure",
        'sum(sum_over_time({a="b"} | logfmt | unwrap u [1m]))',
        rule('{a="b"} | logfmt', "", "sum(t)"),
        "not u",
    ),
    (
        "measure",
        'sum(sum_over_time({a="b"} | logfmt | unwrap duration(t) [1m]))',
        rule('{a="b"} | logfmt', "", "sum(t)"),
        "measures",
    ),
    (
        "measure",
        'sum(sum_over_time({a="b"} | logfmt | unwrap t | p="q" [1m]))',
        rule('{a="b"} | logfmt', "p", "sum(t)"),
        "no filters",
    ),
    ("selector", 'sum(count_over_time({service_name="x"}[5m]))', rule('{app="a"}', "service_name"), "app="),
    ("selector", 'sum(count_over_time({app=~"a|b"} |= "error" [5m]))', rule('{app="a"} |= "error"', "app"), "app="),
    ("streams", 'sum(count_over_time({app="a", pod="p"} |= "error" [5m]))', ERRORS, "does not keep pod"),
    ("streams", 'sum(count_over_time({app="a", level="x"} |= "error" [5m]))', ERRORS, "not every stream"),
    ("stages", 'sum(count_over_time({app="a"} [5m]))', ERRORS, "the query lacks"),
    ("stages", 'sum(count_over_time({app="a"} |= "Error" [5m]))', ERRORS, "the query lacks"),
    ("stages", 'sum(count_over_time({app="a"} |= "error" | json [5m]))', ERRORS, "it lacks | json"),
    ("stages", 'sum(count_over_time({app="a"} |= "error" | pod="p" [5m]))', ERRORS, "does not keep pod"),
    ("stages", 'sum(count_over_time({app="a"} |= "error" | __error__="" [5m]))', ERRORS, "__error__"),
    ("grouping", 'count_over_time({app="a"} |= "error" [5m])', ERRORS, "does not sum"),
    ("grouping", 'avg(count_over_time({app="a"} |= "error" [5m]))', ERRORS, "does not sum"),
    ("grouping", 'sum without (app) (count_over_time({app="a"} |= "error" [5m]))', ERRORS, "without"),
    ("grouping", 'sum by (pod) (count_over_time({app="a"} |= "error" [5m]))', ERRORS, "does not keep pod"),
    ("windows", 'sum(count_over_time({app="a"} |= "error" [15s]))', ERRORS, "the range is no multiple of 10 s"),
    ("windows", 'sum(count_over_time({app="a"} |= "error" [10s] offset 1s))', ERRORS, "the time of the first step"),
]


@pytest.mark.parametrize(("clause", "query", "of", "reason"), REFUSED)
def test_what_a_clause_refuses_only_it_refuses(clause: str, query: str, of: RuleQuery, reason: str) -> None:
    found = refusal(wanted(query), of)
    assert found.startswith(f"{clause}: ")
    assert reason in found
    others = {name: one for name, one in CLAUSES.items() if name != clause}
    assert refusal(wanted(query), of, others) == ""


def test_steps_are_buckets() -> None:
    query = 'sum(count_over_time({app="a"} |= "error" [1m]))'
    for start, step, reason in ((0, 10, ""), (0, 15, "step"), (5, 10, "first step")):
        steps = Steps(start * SECOND_NS, (start + 60) * SECOND_NS, step * SECOND_NS)
        assert reason in refusal(wanted(query, steps), ERRORS)


def test_the_rules_of_streams_decide_whether_every_stream_has_a_service_name() -> None:
    query, of = 'sum(count_over_time({a="b", service_name="c"} [1m]))', rule('{a="b"}', "service_name")
    assert refusal(wanted(query), of) == ""
    assert refusal(wanted(query, rules=NO_NAMES), of).startswith("streams: not every stream")


def test_every_clause_has_a_query_that_it_alone_refuses() -> None:
    assert {clause for clause, *_ in REFUSED} == set(CLAUSES)
    assert isinstance(wanted(ACCEPTED[0][0]).leaf, RangeLeaf)


def test_a_stored_rule_that_cannot_run_any_more_is_refused_and_others_are_used() -> None:
    rules = (
        MetricRule(name, "logs", text, Measure.parse("count"), "made") for name, text in (("old", "{"), ("new", ALL))
    )
    versions = tuple(RuleVersion(number, UUID(int=1), 1, one) for number, one in enumerate(rules))
    minute = 10 * MINUTE_NS
    plan = compile_logql(LogqlQuestion(f"sum(count_over_time({ALL}[1m]))", minute, minute, versions=versions), minute)
    (leaf,) = plan.leaves
    assert leaf.points is not None
    assert leaf.points.name == "new version 1"
    assert [one.partition(",")[0] for one in leaf.refused] == ["rule old version 1 is not used"]
