"""Rollups on a real index: what they are made of, how a tier triggers the next, what happens when something fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from lakerunner.bus.topics import RollupBox, SegmentsCommitted
from lakerunner.index.commit import Commit
from lakerunner.model.errors import Unavailable
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIERS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.compact import Outcome
from lakerunner.pipeline.rollup_job import RollupWork
from lakerunner.services.tending import Overdue, ReminderLog, remind_rollups, sample
from suites.tending_lake import ACME, MS, Lake, segment

TOPIC = "segments.metrics.rollup"
S = 1000 * MS


def points(name: str, start: float = 1, end: float = 9, **changes: object) -> Segment:
    """Between these seconds."""
    return segment(name, signal="metrics", time=TimeRange(int(start * S), int(end * S)), **changes)


def rolled(lake: Lake) -> list[bool]:
    return [one.rolled for one in lake.live("metrics")]


def reasons(lake: Lake) -> list[tuple[int, str, str]]:
    return [(one.attempts, one.state, one.reason) for one in lake.index.tending.failed(ACME.id)]


def test_segments_are_rolled_up_and_say_so(tended: Lake) -> None:
    made = tended.commit(points("a"), points("b", 11, 25))
    worker = tended.rollups()
    tended.rollup_box(10_000, *made)
    worker.step()
    assert rolled(tended) == [True, True]
    (windows,) = tended.live("metrics", 10_000)
    assert (windows.rows, windows.rolled) == (3, False)
    worker.close()
    assert tended.left(TOPIC, "rollup") == []
    tended.relay()
    (next_tier,) = tended.left("boxer.metrics.rollup", "boxer")
    assert isinstance(next_tier, SegmentsCommitted)
    assert (next_tier.frequency_ms, [one.id for one in next_tier.segments]) == (10_000, [windows.id])
    (to_merge,) = tended.left("boxer.metrics.compact", "boxer")
    assert isinstance(to_merge, SegmentsCommitted)
    assert (to_merge.frequency_ms, to_merge.level) == (0, 0)
    assert {one.id for one in to_merge.segments} == {one.id for one in made}


@pytest.mark.slow
def test_each_tier_triggers_the_next_up_to_the_last(tended: Lake) -> None:
    tended.commit(points("a"), points("b", 11, 25), tell=True)
    boxers, worker, merges = tended.boxers(), tended.rollups(), tended.compaction()
    for _ in range(2 * len(TIERS)):
        tended.relay()
        for boxer in boxers:
            boxer.step()
        worker.step()
        merges.step()
        tended.now += 601
    for tier in TIERS:
        found = tended.live("metrics", tier)
        assert len(found) == 1, tier
        assert found[0].rolled is (tier != TIERS[-1])
    assert tended.levels("metrics") == [(1, 2)]  # and what is rolled up is merged
    assert rolled(tended) == [True]
    assert reasons(tended) == []


def test_sources_are_all_that_is_live_in_the_windows(tended: Lake) -> None:
    before = tended.commit(points("before", 1, 9), points("other", 1, 9, collector="d"), points("after", 30, 40))
    (late,) = tended.commit(points("late", 5, 6))
    seen: list[list[str]] = []
    names = {one.id: name for one, name in zip([*before, late], ["before", "other", "after", "late"], strict=True)}
    run = tended.jobs.rollup

    def note(spark: Any, works: Sequence[RollupWork], *rest: Any) -> list[Outcome]:
        seen.extend([names[one.id] for one in work.sources] for work in works)
        return run(spark, works, *rest)

    tended.jobs.rollup = note  # type: ignore[method-assign, assignment]
    worker = tended.rollups()
    tended.rollup_box(10_000, late)
    worker.step()
    assert seen == [["before", "late"]]
    assert [names[one.id] for one in tended.live("metrics") if one.rolled] == ["late"]


def test_what_is_rolled_up_by_others_meanwhile_is_taken_in(tended: Lake) -> None:
    a, b = tended.commit(points("a"), points("b"))
    first, second = tended.rollups(at_once=1), tended.rollups(at_once=1)
    tended.rollup_box(10_000, a)
    (late,) = tended.commit(points("c"))
    tended.rollup_box(10_000, late)

    def others() -> None:
        tended.jobs.first = lambda: None
        tended.commit(points("d"))  # which is not rolled up: no conflict
        second.step()

    tended.jobs.first = others
    first.step()
    assert {one.id for one in tended.live("metrics") if one.rolled} == {a.id, late.id}
    assert b.id not in {one.id for one in tended.live("metrics") if one.rolled}
    assert reasons(tended) == []

    def newcomer() -> None:
        tended.jobs.first = lambda: None
        (new,) = tended.commit(points("e"))
        tended.rollup_box(10_000, new)
        second.step()

    tended.rollup_box(10_000, b)
    tended.jobs.first = newcomer
    first.step()  # its windows lack e, which is rolled up by now
    assert b.id not in {one.id for one in tended.live("metrics") if one.rolled}
    first.step()
    assert b.id in {one.id for one in tended.live("metrics") if one.rolled}


def test_a_damaged_segment_that_was_never_rolled_up_is_left_out(tended: Lake) -> None:
    made = tended.commit(points("a"), points("b"))
    tended.jobs.damaged = {made[0].id}
    worker = tended.rollups()
    tended.rollup_box(10_000, *made)
    worker.step()
    worker.step()
    assert rolled(tended) == [False, True]
    ((aside, _),) = tended.index.tending.list_aside(ACME.id)
    assert aside.id == made[0].id
    assert reasons(tended) == []


def test_windows_without_a_segment_that_others_have_rolled_up_meanwhile_are_not_committed(tended: Lake) -> None:
    """It was set aside when they were planned, and was sent again and rolled up while they were made: windows without
    its rows would take the place of windows with them."""
    mended, other = tended.commit(points("mended"), points("other"))
    tended.index.tending.set_aside(ACME.id, [mended.id], "it was damaged")
    seen: list[list[UUID]] = []
    run = tended.jobs.rollup

    def note(spark: Any, works: Sequence[RollupWork], *rest: Any) -> list[Outcome]:
        seen.extend([one.id for one in work.sources] for work in works)
        return run(spark, works, *rest)

    def requeue() -> None:
        tended.jobs.first = lambda: None
        tended.index.tending.requeue(ACME.id, [], [mended.id], [])
        tended.rollup_box(10_000, mended)
        second.step()

    tended.jobs.rollup = note  # type: ignore[method-assign, assignment]
    first, second = tended.rollups(at_once=1), tended.rollups(at_once=1)
    tended.rollup_box(10_000, other)
    tended.jobs.first = requeue
    first.step()
    assert seen == [[other.id], [mended.id, other.id]]
    assert rolled(tended) == [True, False]
    first.step()
    assert seen[2:] == [[mended.id, other.id]]
    assert rolled(tended) == [True, True]
    assert reasons(tended) == []


def test_windows_that_need_a_damaged_segment_are_not_made_without_it(tended: Lake) -> None:
    """It is rolled up: windows without it would replace some that have its rows."""
    (old,) = tended.commit(points("old"))
    worker = tended.rollups(attempts=2)
    tended.rollup_box(10_000, old)
    worker.step()
    (late,) = tended.commit(points("late"))
    tended.jobs.damaged = {old.id}
    tended.rollup_box(10_000, late)
    worker.step()
    tended.hurry()
    worker.step()
    assert reasons(tended) == [(2, "aside", f"{old.id} is damaged")]
    assert rolled(tended) == [True, False]
    assert [one.id for one, _ in tended.index.tending.list_aside(ACME.id)] == [late.id]


def test_late_points_past_retention_fail_where_the_windows_that_are_there_cannot_be_read(tended: Lake) -> None:
    """Which of them are there already is not known then. It is no reason to try for ever, and at once."""
    (old,) = tended.commit(points("old"))
    worker = tended.rollups(attempts=2)
    tended.rollup_box(10_000, old)
    worker.step()
    (windows,) = tended.live("metrics", 10_000)
    cutoff = Cutoff("metrics", 0, old.time.end_ns, old.time.end_ns, 0, 0)
    assert tended.index.sweep.expire(ACME.id, cutoff, [old.id], 3600 * S) == {old.id}
    (late,) = tended.commit(points("late", 2, 3))
    tended.jobs.damaged = {windows.id}
    tended.rollup_box(10_000, late)
    worker.step()
    assert reasons(tended) == [(1, "waiting", f"{windows.id} is damaged")]
    worker.step()
    assert len(tended.jobs.sizes) == 2  # one for the old ones, one for the late
    tended.hurry()
    worker.step()
    assert reasons(tended) == [(2, "aside", f"{windows.id} is damaged")]
    assert [one.id for one, _ in tended.index.tending.list_aside(ACME.id)] == [late.id]


def test_boxes_that_are_done_void_or_wrong_are_given_up(tended: Lake) -> None:
    made = tended.commit(points("a"), points("b"))
    worker = tended.rollups(at_once=1)
    tended.rollup_box(10_000, made[0])
    tended.rollup_box(10_000, made[0])
    tended.rollup_box(60_000, made[1])  # not the next tier
    for _ in range(3):
        worker.step()
    assert rolled(tended) == [True, False]
    assert len(tended.live("metrics", 10_000)) == 1
    worker.close()
    assert tended.left(TOPIC, "rollup") == []


def test_a_segment_that_goes_during_the_job_is_not_marked(tended: Lake) -> None:
    a, b = tended.commit(points("a"), points("b"))
    worker = tended.rollups()
    tended.rollup_box(10_000, a, b)

    def expire() -> None:
        tended.jobs.first = lambda: None
        tended.index.commit(Commit((points("elsewhere", 500, 501),), (), (), (a.id,)))

    tended.jobs.first = expire
    worker.step()
    assert tended.live("metrics", 10_000) == []
    worker.step()
    assert {one.id for one in tended.live("metrics") if one.rolled} == {b.id}


def test_a_store_that_is_away_counts_for_nothing(tended: Lake) -> None:
    made = tended.commit(points("a"))
    worker = tended.rollups(attempts=1)
    tended.rollup_box(10_000, *made)
    tended.jobs.away = True
    with pytest.raises(Unavailable):
        worker.step()
    tended.jobs.away = False
    worker.step()
    assert rolled(tended) == [True]
    assert reasons(tended) == []


def test_what_the_bus_lost_is_told_of_again_and_gauges_show_it(tended: Lake) -> None:
    tended.commit(points("a"), points("t", frequency_ms=300_000))
    tended.age(1000)
    overdue = Overdue(reminder=900.0, merge=60.0, roll=10.0, target_bytes=1000)
    assert (
        remind_rollups(tended.index.tending, overdue, ReminderLog(900.0)) == 1
    )  # those on their way to an hour wait longer
    tended.relay()
    tended.age(1000)
    assert remind_rollups(tended.index.tending, overdue, ReminderLog(900.0)) == 2
    boxers, worker = tended.boxers(), tended.rollups()
    for _ in range(2):
        for boxer in boxers:
            boxer.step()
        tended.now += 11
    (box,) = tended.left(TOPIC, "looking")
    assert isinstance(box, RollupBox)
    assert box.target_frequency_ms == 10_000
    worker.step()
    assert rolled(tended) == [True]
    sample(tended.index.tending, tended.index.inspect, 3600 * S)
    read = REGISTRY.get_sample_value
    assert read("lakerunner_live_segments", {"signal": "metrics", "tier": "10s", "level": "0"}) == 1
    assert read("lakerunner_live_segments_per_hour", {"signal": "metrics", "tier": "raw", "level": "0"}) == 1
    assert read("lakerunner_rollup_lag_seconds", {"tier": "raw"}) == 0
    assert (read("lakerunner_rollup_lag_seconds", {"tier": "5m"}) or 0) >= 2000
