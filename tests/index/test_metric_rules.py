"""The catalog of rules: versions, states, laws among rules, many writers at once, each organization on its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings

from index.index_values import ACME, OTHER, at_once, count, segment
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError, NotFound, TooLarge, UserError
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.metric_rules.rule_changes import RULES_MAX
from lakerunner.model.organization import Organization
from lakerunner.model.segment import INCOMPLETE, field_fingerprints
from suites.rules import ERRORS, RULE_LISTS, over_metric, rule


def stored(index: Index, organization: Organization = ACME) -> list[tuple[str, int, MetricRule, str]]:
    return [(one.rule.name, one.version, one.rule, one.paused) for one in index.metric_rules.current(organization.id)]


def test_a_rule_is_stored_and_the_same_rule_again_changes_nothing(index: Index) -> None:
    first = index.metric_rules.put(ACME.id, ERRORS)
    assert first == RuleVersion(first.id, ACME.id, 1, ERRORS)
    assert index.metric_rules.put(ACME.id, ERRORS) == first
    assert index.metric_rules.current(ACME.id) == [first]
    assert index.metric_rules.find(ACME.id, "errors") == first
    assert count(index, "SELECT count(*) FROM lrdb.metric_rules") == 1


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({"selector": '{a="b"}'}, 2),
        ({"measure": Measure("bytes")}, 2),
        ({"metric": "other"}, 2),
        ({"dimensions": ()}, 2),
        ({"signal": "traces", "selector": "{}"}, 2),
        ({"description": "why"}, 1),
        ({"max_series": 5}, 1),
        ({"enabled": False}, 1),
        ({"enabled": False, "selector": '{a="b"}'}, 2),
    ],
)
def test_what_makes_a_new_version(index: Index, changes: dict[str, object], version: int) -> None:
    first = index.metric_rules.put(ACME.id, ERRORS)
    changed = index.metric_rules.put(ACME.id, replace(ERRORS, **changes))  # type: ignore[arg-type]
    assert (changed.version, changed.id == first.id) == (version, version == 1)
    assert stored(index) == [("errors", version, replace(ERRORS, **changes), "")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "paused"),
    [({}, True), ({"description": "why"}, True), ({"max_series": 20_000}, False), ({"selector": '{a="b"}'}, False)],
)
def test_a_paused_rule_goes_on_with_another_limit_or_selector(
    index: Index, changes: dict[str, object], paused: bool
) -> None:
    index.metric_rules.pause(index.metric_rules.put(ACME.id, ERRORS).id, "too many series")
    index.metric_rules.put(ACME.id, replace(ERRORS, **changes))  # type: ignore[arg-type]
    assert [one[3] for one in stored(index)] == ["too many series" if paused else ""]


def test_active_rules_are_those_of_a_signal_that_make_points(index: Index) -> None:
    rules = index.metric_rules
    plain, spans = rules.put(ACME.id, rule("z")), rules.put(ACME.id, rule("s", signal="traces", selector="{}"))
    rules.put(ACME.id, rule("off", enabled=False))
    paused, later = rules.put(ACME.id, rule("paused")), rules.put(ACME.id, rule("a"))
    rules.put(OTHER.id, rule("theirs"))
    rules.pause(paused.id, "too many series")
    assert rules.active(ACME.id, "logs") == (plain, later)
    assert rules.active(ACME.id, "traces") == (spans,)
    assert rules.active(ACME.id, "metrics") == rules.active(uuid4(), "logs") == ()
    rules.resume(paused.id)
    rules.set_enabled(ACME.id, "z", False)
    assert rules.active(ACME.id, "logs") == (paused, later)
    rules.drop(ACME.id, "a")
    assert rules.active(ACME.id, "logs") == (paused,)


def test_pause_keeps_its_first_reason_and_leaves_ended_versions_alone(index: Index) -> None:
    rules = index.metric_rules
    first = rules.put(ACME.id, ERRORS)
    rules.pause(first.id, "first" + "x" * 3000)
    rules.pause(first.id, "second")
    assert rules.find(ACME.id, "errors").paused == ("first" + "x" * 3000)[:2000]
    assert rules.set_enabled(ACME.id, "errors", False).paused.startswith("first")
    assert rules.set_enabled(ACME.id, "errors", True) == first
    second = rules.put(ACME.id, replace(ERRORS, dimensions=()))
    rules.pause(first.id, "late")
    assert rules.current(ACME.id) == [second]


def test_versions_go_on_after_a_rule_was_dropped(index: Index) -> None:
    first = index.metric_rules.put(ACME.id, ERRORS)
    index.metric_rules.drop(ACME.id, "errors")
    assert index.metric_rules.current(ACME.id) == []
    again = index.metric_rules.put(ACME.id, ERRORS)
    assert (again.version, again.collector) == (2, "_errors.2")
    assert again.id > first.id


def test_unknown_names_are_not_found(index: Index) -> None:
    rules = index.metric_rules
    rules.put(OTHER.id, ERRORS)
    for act in (rules.find, rules.drop, lambda whose, name: rules.set_enabled(whose, name, True)):
        with pytest.raises(NotFound, match="rule 'errors' not found"):
            act(ACME.id, "errors")
        with pytest.raises(NotFound):
            act(uuid4(), "errors")
    with pytest.raises(NotFound, match=r"organization .* not found"):
        rules.put(uuid4(), ERRORS)
    assert [one[0] for one in stored(index, OTHER)] == ["errors"]


def test_rules_fit_to_each_other_or_none_is_stored(index: Index) -> None:
    rules = index.metric_rules
    rules.put(ACME.id, rule("a"))
    with pytest.raises(UserError, match="rules 'a' and 'b' both make metric 'made_a'"):
        rules.put(ACME.id, rule("b", metric="made_a"))
    rules.put(OTHER.id, rule("b", metric="made_a"))
    rules.put(ACME.id, over_metric("b", "made_a", "made_b"))
    with pytest.raises(UserError, match="loop: c -> c"):
        rules.put(ACME.id, over_metric("c", "made_c", "made_c"))
    with pytest.raises(UserError, match=r"a -> b -> a\. Let"):
        rules.put(ACME.id, over_metric("a", "made_b", "made_a"))
    with pytest.raises(UserError, match="rule 'd' appears 2 times"):
        rules.apply(ACME.id, [rule("d"), rule("d")])
    assert [one[0] for one in stored(index)] == ["a", "b"]


def test_an_organization_has_a_limit_of_rules(index: Index) -> None:
    most = [rule(f"r{number:04}") for number in range(RULES_MAX)]
    assert len(index.metric_rules.apply(ACME.id, most)) == RULES_MAX
    with pytest.raises(TooLarge, match=r"1001 rules are more than an organization may have \(1000\)"):
        index.metric_rules.put(ACME.id, rule("more"))
    with pytest.raises(TooLarge):
        index.metric_rules.apply(ACME.id, [*most, rule("more")])
    assert index.metric_rules.apply(ACME.id, most) == []
    assert index.metric_rules.put(OTHER.id, rule("more")).version == 1
    assert len(index.metric_rules.active(ACME.id, "logs")) == RULES_MAX


def test_many_writers_leave_one_version_and_lose_none(index: Index) -> None:
    """Each of them gets what it stored; numbers of versions have no gap."""

    def put(name: str, metric: str) -> RuleVersion:
        return index.metric_rules.put(ACME.id, rule(name, metric=metric))

    made = at_once([partial(put, "a", f"m{number}") for number in range(8)])
    versions = [one for one in made if isinstance(one, RuleVersion)]
    assert sorted(one.version for one in versions) == list(range(1, 9))
    assert [one for one in versions if one.version == 8] == index.metric_rules.current(ACME.id)
    results = at_once([partial(put, f"b{number}", "same") for number in range(4)])
    assert sorted(type(one).__name__ for one in results) == ["RuleVersion", *["UserError"] * 3]


def test_a_change_of_rules_does_not_hold_up_commits(index: Index) -> None:
    with index.pool.connection() as connection:
        connection.execute(b"SELECT FROM lrdb.organizations WHERE name = 'acme' FOR NO KEY UPDATE")
        index.commit(Commit((segment("a"),), (), ()))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(before=RULE_LISTS, after=RULE_LISTS)
def test_apply_is_put_and_drop_one_by_one_and_twice_is_once(
    index: Index, before: list[MetricRule], after: list[MetricRule]
) -> None:
    rules = index.metric_rules
    whole, single = Organization(uuid4(), f"whole-{uuid4()}"), Organization(uuid4(), f"single-{uuid4()}")
    for one in (whole, single):
        index.organizations.create(one)
        rules.apply(one.id, before)
        for version in rules.current(one.id)[::2]:
            rules.pause(version.id, "too many series")
    changes = rules.apply(whole.id, after)
    for old in before:
        if old.name not in {new.name for new in after}:
            rules.drop(single.id, old.name)
    for new in after:
        rules.put(single.id, new)
    assert stored(index, whole) == stored(index, single)
    assert sorted((one.rule for one in rules.current(whole.id)), key=str) == sorted(after, key=str)
    assert rules.apply(whole.id, after) == []
    assert stored(index, whole) == stored(index, single)
    assert {one.name for one in changes} == {one.name for one in {*before} ^ {*after}}


def test_native_metrics_are_those_that_senders_sent(index: Index) -> None:
    def metrics(name: str, *names: str, **changes: Any) -> None:
        prints = field_fingerprints("metric_name", names)
        index.commit(Commit((segment(name, **{"signal": "metrics", "fingerprints": prints, **changes}),), (), ()))

    metrics("sent", "sent", "sent_total")
    metrics("rolled", "rolled", frequency_ms=10_000)
    metrics("made", "made", collector="_errors.1")
    metrics("theirs", "theirs", organization=OTHER.id)
    metrics("lines", "lines", signal="logs")
    many = {"metrics": ["a", 'a"quoted', "many\\", "many.more", "many2"], "metric_count": 5000}
    metrics("many", fingerprints=(INCOMPLETE,), statistics=many)
    native = index.metric_rules.native_metric
    for one in ("sent", "sent_total", "rolled", "a", "many2"):
        assert native(ACME.id, ["never", one, "x"]) == one
        assert native(OTHER.id, ["never", one, "x"]) is None
    for one in ("made", "lines", "theirs", "quoted", "many", "more", "never"):
        assert native(ACME.id, ["never", one, "x"]) is None
    assert native(OTHER.id, ["theirs"]) == "theirs"
    assert native(ACME.id, []) is None


def test_a_text_that_cannot_be_stored_is_refused_before() -> None:
    for text in ("\0", "\ud800"):
        with pytest.raises(LakerunnerError, match="cannot be stored"):
            rule("a", description=text)
