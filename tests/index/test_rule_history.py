"""Which stored segments rules do not cover yet, and commits that cover them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from index.index_values import ACME, OTHER, count, segment
from lakerunner.index.commit import Commit, Covering
from lakerunner.index.index import Index
from lakerunner.index.rule_history import RuleCoverage, UncoveredDay
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.time import ALL_TIME, DAY_NS, HOUR_NS
from suites.rules import rule

LOGS = ("logs",)


def at(name: str, start_ns: int, **changes: Any) -> Segment:
    return segment(name, start_ns, start_ns + 10, **changes)


def stored(index: Index, *segments: Segment) -> list[Segment]:
    for one in segments:
        index.commit(Commit((one,), (), ()))
    return list(segments)


def left(index: Index, limit: int = 100, without: tuple[UUID, ...] = ()) -> list[UUID]:
    return [one.id for one in index.rule_history.uncovered(LOGS, limit, without)]


def since(index: Index, name: str, since_ns: int = 0) -> RuleVersion:
    index.metric_rules.put(ACME.id, rule(name))
    return index.metric_rules.set_since(ACME.id, name, since_ns)


def rule_set(index: Index, one: Segment) -> tuple[int, ...]:
    return index.segments.get(one.organization, [one.id])[0].rule_set


def test_what_a_rule_wants_and_lacks_newest_hour_first(index: Index) -> None:
    old, first, second, new = stored(
        index, *(at(name, hour * HOUR_NS) for name, hour in (("old", 1), ("first", 5), ("second", 5), ("new", 6)))
    )
    stored(index, at("theirs", 6 * HOUR_NS, organization=OTHER.id), at("spans", 6 * HOUR_NS, signal="traces"))
    index.metric_rules.put(ACME.id, rule("never"))
    assert left(index) == []
    made = since(index, "errors", 2 * HOUR_NS)
    assert left(index) == [new.id, second.id, first.id]
    assert (left(index, limit=2), left(index, without=(new.id,))) == ([new.id, second.id], [second.id, first.id])
    index.metric_rules.set_since(ACME.id, "errors", HOUR_NS + 9)
    assert left(index)[-1] == old.id
    index.metric_rules.set_since(ACME.id, "errors", HOUR_NS + 10)  # its end: it has no row from then on
    assert old.id not in left(index)
    index.tending.set_aside(ACME.id, [new.id], "damaged")
    index.commit(Commit((), (), (), covered=(Covering(second, (made.id,)),)))
    assert left(index) == [first.id]
    for stop in (
        lambda: index.metric_rules.pause(made.id, "too many series"),
        lambda: index.metric_rules.set_enabled(ACME.id, "errors", False),
        lambda: index.metric_rules.drop(ACME.id, "errors"),
    ):
        index.metric_rules.set_enabled(ACME.id, "errors", True)
        assert left(index) == [first.id]
        stop()
        assert left(index) == []


def test_another_version_takes_over_the_history_and_a_rule_that_was_dropped_does_not(index: Index) -> None:
    (one,) = stored(index, at("one", HOUR_NS))
    first = since(index, "errors", 5)
    index.commit(Commit((), (), (), covered=(Covering(one, (first.id,)),)))
    assert left(index) == []
    other = index.metric_rules.put(ACME.id, rule("errors", selector='{a="b"}'))
    assert (other.version, other.since_ns) == (2, 5)
    assert left(index) == [one.id]
    assert index.metric_rules.put(ACME.id, rule("errors", selector='{a="b"}', description="why")).since_ns == 5
    index.metric_rules.drop(ACME.id, "errors")
    assert index.metric_rules.put(ACME.id, rule("errors")).since_ns is None
    with pytest.raises(NotFound):
        index.metric_rules.set_since(ACME.id, "nobody", 5)


def test_parts_and_the_grown_rule_set_are_one_commit(index: Index) -> None:
    (one,) = stored(index, at("one", HOUR_NS, rule_set=(3,)))
    a, b = since(index, "a"), since(index, "b")
    parts = segment("parts", signal="metrics", collector=a.collector)
    work = Commit((), (), (), parts=(parts,), covered=(Covering(one, (a.id, b.id)),))
    index.commit(work)
    assert rule_set(index, one) == tuple(sorted({3, a.id, b.id}))
    assert [part.id for part in index.segments.pick(ACME.id, "metrics", ALL_TIME).segments] == [parts.id]
    with pytest.raises(Conflict, match="others cover it now"):
        index.commit(work)
    assert count(index, "SELECT count(*) FROM lrdb.segments") == 2


@pytest.mark.parametrize("what", ["replaced", "covered", "ended", "gone", "theirs"])
def test_a_segment_or_rule_that_changed_meanwhile_is_a_conflict_and_leaves_nothing(index: Index, what: str) -> None:
    (one,) = stored(index, at("one", HOUR_NS))
    a, b = since(index, "a"), since(index, "b")
    read = one
    if what == "replaced":
        index.commit(Commit((at("merged", HOUR_NS, level=1),), (), (), (one.id,)))
    elif what == "covered":
        index.commit(Commit((), (), (), covered=(Covering(one, (b.id,)),)))
    elif what == "ended":
        index.metric_rules.put(ACME.id, rule("a", selector='{a="b"}'))
    elif what == "gone":
        read = at("nobody's", HOUR_NS)
    else:
        read = replace(one, organization=OTHER.id)
    before = count(index, "SELECT count(*) FROM lrdb.segments")
    parts = segment("parts", signal="metrics", collector=a.collector, organization=read.organization)
    with pytest.raises(Conflict):
        index.commit(Commit((), (), (), parts=(parts,), covered=(Covering(read, (a.id,)),)))
    assert count(index, "SELECT count(*) FROM lrdb.segments") == before
    assert a.id not in rule_set(index, one)


def test_coverage_counts_segments_and_rows_from_then_on(index: Index) -> None:
    day = [at(f"day-{n}", n * DAY_NS, rows=n + 1, bytes=100 + n) for n in range(4)]
    stored(index, *day, at("again", 3 * DAY_NS, rows=10, bytes=50))
    made = since(index, "errors", DAY_NS)
    index.metric_rules.put(ACME.id, rule("never"))
    assert index.rule_history.coverage(ACME.id) == {made.id: RuleCoverage(4, 19, 356, 0, 0, 0)}
    assert index.rule_history.left_by_day(made, 2 * DAY_NS) == [
        UncoveredDay(3, 2, 14, 153),
        UncoveredDay(2, 1, 3, 102),
    ]
    assert {one.id for one in index.rule_history.newest_left(made, 0, 2)} == {day[3].id, at("again", 0).id}
    index.commit(Commit((), (), (), covered=(Covering(day[3], (made.id,)),)))
    index.tending.set_aside(ACME.id, [day[2].id], "damaged")
    (coverage,) = index.rule_history.coverage(ACME.id).values()
    assert coverage == RuleCoverage(4, 19, 356, 1, 4, 1)
    assert not coverage.is_complete
    assert [one.day for one in index.rule_history.left_by_day(made, 0)] == [3, 1, 0]
    assert index.rule_history.coverage(OTHER.id) == {}


def test_a_rule_without_segments_is_complete(index: Index) -> None:
    made = since(index, "errors")
    assert index.rule_history.coverage(ACME.id) == {made.id: RuleCoverage(0, 0, 0, 0, 0, 0)}
    assert RuleCoverage(0, 0, 0, 0, 0, 0).is_complete


@pytest.mark.parametrize("seed", range(3))
def test_coverage_and_what_is_left_are_those_of_each_rule_by_itself(index: Index, seed: int) -> None:
    chance = random.Random(seed)
    names = ("a", "b", "c", "d")
    rules = [since(index, name, chance.randrange(0, 40)) for name in names]
    segments = []
    for number in range(30):
        covering = tuple(sorted(one.id for one in chance.sample(rules, chance.randrange(5))))
        segments.append(at(f"s{number}", chance.randrange(0, 40), rows=number + 1, rule_set=covering))
    stored(index, *segments)
    aside = {one.id for one in chance.sample(segments, 4)}
    index.tending.set_aside(ACME.id, aside, "damaged")
    expected, lacking = {}, set()
    for one in rules:
        wanted = [segment for segment in segments if segment.time.end_ns > (one.since_ns or 0)]
        covered = [segment for segment in wanted if one.id in segment.rule_set]
        left_out = [segment for segment in wanted if segment.id in aside and one.id not in segment.rule_set]
        counts = len(wanted), sum(segment.rows for segment in wanted), sum(segment.bytes for segment in wanted)
        rows = sum(segment.rows for segment in covered)
        expected[one.id] = RuleCoverage(*counts, len(covered), rows, len(left_out))
        lacking |= {segment.id for segment in wanted if one.id not in segment.rule_set}
    assert index.rule_history.coverage(ACME.id) == expected
    assert {*left(index)} == lacking - aside


def test_points_of_an_ended_version_make_way_where_the_next_one_makes_them_anew(index: Index) -> None:
    def live(name: str) -> bool:
        return (
            count(index, f"SELECT count(*) FROM lrdb.segments WHERE id = '{points[name].id}' AND state = 'live'") == 1
        )

    first, other = (index.metric_rules.put(ACME.id, rule(name)) for name in ("errors", "calls"))
    made = {"first": first.collector, "other": other.collector, "native": "errors.1"}
    points = {name: at(name, HOUR_NS, signal="metrics", collector=collector) for name, collector in made.items()}
    stored(index, *points.values())
    changed = replace(first.rule, dimensions=())
    index.metric_rules.put(ACME.id, changed)
    assert live("first")  # nobody makes them anew: they stay for PromQL
    index.metric_rules.set_since(ACME.id, "errors", 0)
    assert (live("first"), live("other"), live("native")) == (False, True, True)
    points["late"] = at("late", HOUR_NS, signal="metrics", collector=first.collector)
    stored(index, points["late"])  # its ingest began before the change
    index.metric_rules.retire(ACME.id)
    assert not live("late")
