"""New versions of rules whose points count no more."""

from __future__ import annotations

from index.index_values import ACME, OTHER
from lakerunner.index.index import Index
from suites.rules import rule


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
