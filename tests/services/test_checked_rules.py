"""What is refused before a rule is stored: wrong selectors with their position, metrics that are sent, loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from index.index_values import ACME, OTHER, segment
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import Position, UserError
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule
from lakerunner.model.segment import field_fingerprints
from lakerunner.services.metric_rules import CheckedRules, check_rule
from lakerunner.services.rule_presets import presets
from servers.postgres import empty_index
from suites.rules import ERRORS, over_metric, rule


@pytest.fixture
def index(embedded_postgres_url: str) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, ACME, OTHER) as opened:
        sent = field_fingerprints("metric_name", ["sent"])
        opened.commit(Commit((segment("sent", signal="metrics", fingerprints=sent),), (), ()))
        yield opened


def spans(selector: str, measure: str = "count") -> MetricRule:
    return replace(rule("a"), signal="traces", selector=selector, measure=Measure.parse(measure))


def points(selector: str, measure: str = "sum(value)") -> MetricRule:
    return replace(over_metric("a", "x", "y"), selector=selector, measure=Measure.parse(measure))


@pytest.mark.parametrize(
    "fine",
    [
        ERRORS,
        rule("a", selector='{a="b"} | json | logfmt | c > 5', measure=Measure.parse("sum(bytes(size))")),
        spans("{}"),
        spans('{http.method=~"GET|P.*", kind!="client"}', "histogram(duration)"),
        spans("{}", "sum(http.size)"),
        points("{}"),
        points('{job="a", pod!~"b.*"}'),
    ],
    ids=str,
)
def test_rules_that_can_be_evaluated(fine: MetricRule) -> None:
    check_rule(fine)


@pytest.mark.parametrize(
    ("wrong", "message", "place"),
    [
        (rule("a", selector='{a="b"'), "rule 'a': ", Position(1, 7)),
        (
            rule("a", selector='{a="b"} |= "x"\n| line_format "{{.c}}"'),
            "LineFormat cannot stand in a rule",
            Position(2, 1),
        ),
        (rule("a", selector='rate({a="b"}[1m])'), "the selector of a rule is a log query", None),
        (rule("a", measure=Measure.parse("sum(a.b)")), "field 'a.b' of sum(a.b) is no label name", None),
        (spans("{a=b}"), "unexpected identifier", Position(1, 4)),
        (spans('{a=~"("}'), "missing closing )", Position(1, 2)),
        (spans("count"), "unexpected <aggr:count> in a rule's selector, expected matchers such as", Position(1, 1)),
        (spans('{a="b"} | json'), "unexpected character: '|'", Position(1, 9)),
        (spans("{" + 'a="b",' * 65 + "}"), "has 65 matchers: use 64 at most", None),
        (spans("{}", "histogram(size)"), "of spans there is no histogram(size): use histogram(duration)", None),
        (spans("{}", "sum(bytes(size))"), "which only fields of log lines have", None),
        (points('{__name__="x"}'), "names no metric", None),
        (points('x{a="b"}'), 'unexpected identifier "x"', Position(1, 1)),
        (points('{a.b="c"}'), "unexpected character inside braces: '.'", Position(1, 3)),
        (points("{}", "sum(size)"), "of points there is no sum(size): use sum(value)", None),
    ],
    ids=lambda one: one.selector if isinstance(one, MetricRule) else "",
)
def test_what_cannot_be_evaluated_is_refused_where_it_is_wrong(
    wrong: MetricRule, message: str, place: Position | None
) -> None:
    with pytest.raises(UserError) as refused:
        check_rule(wrong)
    assert message in refused.value.message
    assert refused.value.message.startswith("rule 'a': ")
    assert place is None or refused.value.position == place


def test_no_rule_makes_a_metric_that_is_sent(index: Index) -> None:
    checked = CheckedRules(index.metric_rules)
    for act in (
        checked.put,
        lambda whose, one: checked.apply(whose, [one]),
        lambda whose, one: checked.plan(whose, [one]),
    ):
        with pytest.raises(
            UserError, match="rule 'a' cannot make metric 'sent': it is sent to this organization already"
        ):
            act(ACME.id, rule("a", metric="sent"))
    assert index.metric_rules.current(ACME.id) == []
    assert checked.put(OTHER.id, rule("a", metric="sent")).version == 1


def test_a_metric_that_is_sent_later_does_not_block_its_rule(index: Index) -> None:
    checked = CheckedRules(index.metric_rules)
    index.metric_rules.put(ACME.id, rule("a", metric="sent"))
    assert checked.apply(ACME.id, [rule("a", metric="sent")]) == []
    assert checked.put(ACME.id, rule("a", metric="sent", selector='{a="b"}')).version == 2
    renamed = checked.apply(ACME.id, [rule("b", metric="sent")])
    assert [str(one) for one in renamed] == ["- a", "+ b"]


def test_a_file_with_one_wrong_rule_changes_nothing(index: Index) -> None:
    checked = CheckedRules(index.metric_rules)
    checked.put(ACME.id, rule("a"))
    for wrong in (rule("b", selector="{"), rule("b", metric="made_a"), rule("b", metric="sent")):
        with pytest.raises(UserError):
            checked.apply(ACME.id, [rule("a", description="new"), wrong])
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [rule("a")]
    assert [str(one) for one in checked.plan(ACME.id, [rule("a", selector='{a="b"}', max_series=5), rule("c")])] == [
        "~ a v1 -> v2: selector, max_series",
        "+ c",
    ]
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [rule("a")]


def test_a_source_metric_may_be_sent_later_or_made_by_a_rule(index: Index) -> None:
    checked = CheckedRules(index.metric_rules)
    checked.put(ACME.id, over_metric("b", "made_a", "made_b"))
    checked.put(ACME.id, over_metric("c", "never.sent", "made_c"))
    checked.put(ACME.id, rule("a"))
    with pytest.raises(UserError, match="loop: b -> d -> b"):
        checked.apply(ACME.id, [over_metric("b", "made_d", "made_b"), over_metric("d", "made_b", "made_d")])


def test_presets_can_all_be_switched_on(index: Index) -> None:
    assert len(CheckedRules(index.metric_rules).apply(ACME.id, presets())) == len(presets()) == 6
    assert presets(["span-errors"])[0].measure == Measure("errors")
    with pytest.raises(UserError, match="no ready-made rule is named 'x': use log-errors, log-lines"):
        presets(["x"])
