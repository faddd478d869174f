"""New versions of rules whose points count no more."""

from __future__ import annotations

from index.index_values import ACME, OTHER
from lakerunner.index.index import Index
from lakerunner.model.streams.stream_rules import StreamRules
from suites.rules import over_metric, rule


def test_current_versions_begin_again_and_others_stay(index: Index) -> None:
    rules = index.metric_rules
    first, second = rules.put(ACME.id, rule("a")), rules.put(ACME.id, rule("b"))
    theirs = rules.put(OTHER.id, rule("a"))
    (renewed,) = rules.renew(ACME.id, [first.id, theirs.id, 10**6])
    assert (renewed.rule, renewed.version, renewed.id > first.id) == (first.rule, 2, True)
    assert rules.current(ACME.id) == [renewed, second]
    assert rules.current(OTHER.id) == [theirs]
    assert rules.renew(ACME.id, [first.id]) == []
    assert rules.active(ACME.id, "logs") == (second, renewed)


def test_new_stream_rules_begin_log_rules_again(index: Index) -> None:
    """Labels of lines change with them: what was made before is of other series."""
    rules, organizations = index.metric_rules, index.organizations
    lines = rules.put(ACME.id, rule("a"))
    points = rules.put(ACME.id, over_metric("m", "source", "made"))
    theirs = rules.put(OTHER.id, rule("a"))
    organizations.set_stream_rules(ACME.id, None)
    assert rules.current(ACME.id) == [lines, points]
    plain = StreamRules(service_labels=())
    for _ in range(2):  # the same again changes nothing
        organizations.set_stream_rules(ACME.id, plain)
        renewed, same = rules.current(ACME.id)
        assert (renewed.rule, renewed.version, same) == (lines.rule, 2, points)
    assert rules.current(OTHER.id) == [theirs]
    organizations.set_stream_rules(ACME.id, None)
    assert [one.version for one in rules.current(ACME.id)] == [3, 1]
