"""Compaction on a real index: what is merged with what, what happens when something fails, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from uuid import UUID

import pytest

from lakerunner.bus.topics import CompactBox, SegmentsCommitted, compact_boxes, decode, encode
from lakerunner.index.commit import Commit
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.time import DAY_NS, HOUR_NS, TimeRange
from lakerunner.pipeline.compact import Outcome
from lakerunner.services.compact import Compaction
from lakerunner.services.tending import Overdue, ReminderLog, remind_merges
from suites.rules import rule
from suites.tending_lake import ACME, ADDRESS, LIMITS, MERGE, OTHER, Lake, merged, segment

TOPIC = compact_boxes("logs")


def several(tended: Lake, count: int, **changes: object) -> list[Segment]:
    return tended.commit(*(segment(f"s{number}", **changes) for number in range(count)))


def reasons(tended: Lake) -> list[tuple[int, str, str]]:
    return [(one.attempts, one.state, one.reason) for one in tended.index.tending.failed(ACME.id)]


def test_a_box_becomes_one_segment_in_the_place_of_the_last(tended: Lake) -> None:
    made = several(tended, 3)
    last = max(one.ingested for one in tended.live())
    worker = tended.compaction()
    tended.box(*made)
    worker.step()
    (merged,) = tended.live()
    assert (merged.level, merged.rows, merged.ingested) == (1, 3, last)
    worker.close()
    assert tended.left(TOPIC, "compact") == []
    tended.relay()
    (told,) = tended.left("boxer.logs.compact", "boxer")
    assert (told.level, [one.id for one in told.segments]) == (1, [merged.id])  # type: ignore[union-attr]


def test_from_commits_to_a_day(tended: Lake) -> None:
    """Ingest tells the boxer, the boxer makes boxes, merges tell the boxer of the next level, up to the last."""
    hours = [TimeRange(hour * HOUR_NS, hour * HOUR_NS + 10) for hour in range(4)]
    tended.commit(
        *(segment(f"{place}-{n}", time=time) for place, time in enumerate(hours) for n in range(4)), tell=True
    )
    boxers, worker = tended.boxers(), tended.compaction()

    def turn() -> None:
        tended.relay()
        for boxer in boxers:
            boxer.step()
        worker.step()

    turn()
    assert tended.levels() == [(1, 4)] * 4  # a box of level 0 is full with four
    tended.commit(
        *(segment(f"late-{place}-{n}", time=time) for place, time in enumerate(hours) for n in range(4)), tell=True
    )
    turn()
    assert tended.levels() == [(1, 4)] * 8
    turn()  # level 1 waits
    tended.now += 601
    turn()
    assert tended.levels() == [(2, 8)] * 4
    turn()  # four of level 2 are of one day
    assert tended.levels() == [(3, 32)]
    tended.now += 1e6
    turn()
    assert tended.levels() == [(3, 32)]


def test_neighbours_between_come_along_and_those_that_cannot_cut_the_box(tended: Lake) -> None:
    a, between, b = several(tended, 3)
    worker = tended.compaction()
    tended.box(a, b)
    worker.step()
    assert tended.levels() == [(1, 3)]
    c, d, full, e, f = tended.commit(
        segment("c"), segment("d"), segment("full", bytes=5000), segment("e"), segment("f", bytes=11)
    )
    tended.box(c, d, e, f)
    worker.step()
    assert tended.levels() == [(1, 3), (1, 2), (0, 1), (1, 2)]
    assert between.id not in {one.id for one in tended.live()}
    assert full.id in {one.id for one in tended.live()}


def test_segments_that_other_rules_cover_are_not_merged_until_those_have_ended(tended: Lake) -> None:
    first, second = (tended.index.metric_rules.put(ACME.id, rule(name)).id for name in ("a", "b"))
    sets = [(first,), (first,), (first, second), (first, second), (), ()]
    made = tended.commit(*(segment(f"s{place}", rule_set=rules) for place, rules in enumerate(sets)))
    worker = tended.compaction()
    tended.box(*made)
    worker.step()
    assert [(one.rows, one.rule_set) for one in tended.live()] == [(2, (first,)), (2, (first, second)), (2, ())]
    tended.index.metric_rules.drop(ACME.id, "b")
    tended.box(*tended.live(), level=1)
    worker.step()
    assert [(one.rows, one.rule_set) for one in tended.live()] == [(4, (first,)), (2, ())]
    tended.index.metric_rules.drop(ACME.id, "a")
    more = tended.commit(segment("again", level=1))
    tended.box(*tended.live()[1:], *more, level=1)
    worker.step()
    assert [(one.rows, one.rule_set) for one in tended.live()] == [(4, (first,)), (3, ())]


def test_a_rule_that_is_paused_or_disabled_covers_all_the_same(tended: Lake) -> None:
    made = tended.index.metric_rules.put(ACME.id, rule("a"))
    tended.index.metric_rules.pause(made.id, "too many series")
    several(tended, 2, rule_set=(made.id,))
    worker = tended.compaction()
    tended.box(*tended.live())
    worker.step()
    tended.index.metric_rules.set_enabled(ACME.id, "a", False)
    several_more = tended.commit(*(segment(f"more{number}", rule_set=(made.id,)) for number in range(2)))
    tended.box(*several_more)
    worker.step()
    assert [(one.rows, one.rule_set) for one in tended.live()] == [(2, (made.id,)), (2, (made.id,))]


def test_a_merge_commits_what_it_takes_back(tended: Lake) -> None:
    """The book has the rules that cover the segments; parts are committed and rolled up with the merged segment."""
    covering = tended.index.metric_rules.put(ACME.id, rule("a"))
    tended.index.metric_rules.put(ACME.id, rule("b"))
    several(tended, 2, rule_set=(covering.id,))
    kind = Compaction(tended.index, nullcontext, ADDRESS, MERGE, LIMITS)  # type: ignore[arg-type]
    first = tended.live()[0]
    ids = tuple(one.id for one in tended.live())
    (work,) = kind.plan(CompactBox(ACME.id, first.collector, first.signal, first.frequency_ms, 0, ids))
    assert work.book.versions == (covering,)
    taken = segment("taken", signal="metrics", collector=covering.collector)
    kind.commit(work, Outcome((merged(work),), parts=(taken,)))
    assert [(one.rows, one.rule_set) for one in tended.live()] == [(2, (covering.id,))]
    assert [one.id for one in tended.live("metrics")] == [taken.id]
    tended.relay()
    (told,) = tended.left("boxer.metrics.rollup", "boxer")
    assert (told.collector, [one.id for one in told.segments]) == (covering.collector, [taken.id])  # type: ignore[union-attr]


def test_a_crowd_of_small_ones_between_is_left_to_its_own_merges(tended: Lake) -> None:
    first = tended.commit(segment("first", level=2))
    several(tended, 3)
    last = tended.commit(segment("last", level=2))
    worker = tended.compaction()
    tended.box(*first, *last, level=2)
    worker.step()
    assert tended.levels() == [(2, 1), (0, 1), (0, 1), (0, 1), (2, 1)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_what_does_not_belong_together_is_not_merged(tended: Lake) -> None:
    ours = several(tended, 1)
    other = tended.commit(segment("collector", collector="d"), segment("tier", signal="metrics"), segment("o", level=1))
    theirs = segment("theirs", organization=OTHER.id)
    tended.index.commit(Commit((theirs,), (), ()))
    worker = tended.compaction()
    tended.box(*ours, *other, theirs)
    worker.step()
    assert tended.levels() == [(0, 1), (0, 1), (1, 1)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_a_box_that_comes_twice_or_too_late_is_void(tended: Lake) -> None:
    made = several(tended, 2)
    worker = tended.compaction(at_once=1)
    tended.box(*made)
    tended.box(*made)
    worker.step()
    worker.step()
    assert tended.levels() == [(1, 2)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_a_damaged_segment_is_set_aside_and_the_others_are_merged_without_it(tended: Lake) -> None:
    made = several(tended, 4)
    tended.jobs.damaged = {made[3].id}
    worker = tended.compaction()
    tended.box(*made)
    worker.step()
    assert tended.levels() == [(0, 1)] * 4
    worker.step()
    assert tended.levels() == [(1, 3), (0, 1)]
    ((aside, reason),) = tended.index.tending.list_aside(ACME.id)
    assert (aside.id, reason) == (made[3].id, f"{made[3].id} is damaged")
    assert reasons(tended) == []
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_what_fails_is_tried_again_with_pauses_and_then_set_aside(tended: Lake) -> None:
    made = several(tended, 2)
    tended.jobs.fail = {made[0].id}
    worker = tended.compaction()
    tended.box(*made)
    for attempt in (1, 2):
        worker.step()
        assert reasons(tended) == [(attempt, "waiting", "it does not work")]
        tended.now += 5.0
        worker.step()  # its pause is not over
        assert tended.jobs.sizes == [1] * attempt
        tended.hurry()
    worker.step()
    assert reasons(tended) == [(3, "aside", "it does not work")]
    tended.hurry()
    worker.step()
    tended.box(*made)  # set aside, its segments are merged no more
    worker.step()
    assert tended.jobs.sizes == [1, 1, 1]
    assert tended.levels() == [(0, 1), (0, 1)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_what_failed_and_goes_well_later_is_forgotten(tended: Lake) -> None:
    made = several(tended, 2)
    tended.jobs.fail = {made[0].id}
    worker = tended.compaction()
    tended.box(*made)
    worker.step()
    tended.jobs.fail = set()
    tended.hurry()
    worker.step()
    assert tended.levels() == [(1, 2)]
    assert reasons(tended) == []


def test_who_kills_its_worker_is_found_and_its_neighbours_get_through(tended: Lake) -> None:
    boxes = [tended.commit(*(segment(f"{c}{n}", collector=c) for n in range(2))) for c in ("a", "b", "d")]
    tended.jobs.crash = {boxes[1][0].id}
    worker = tended.compaction()
    for box in boxes:
        tended.box(*box)
    worker.step()
    assert tended.jobs.sizes == [3, 1, 1, 1]
    assert sorted((one.collector, one.level) for one in tended.live()) == [("a", 1), ("b", 0), ("b", 0), ("d", 1)]
    assert reasons(tended) == [(1, "waiting", "Crashed: a worker died")]
    assert tended.probes == 2
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_a_store_that_is_away_counts_for_nothing_and_the_box_stays_in_hand(tended: Lake) -> None:
    made = several(tended, 2)
    worker = tended.compaction(attempts=1)
    tended.box(*made)
    tended.jobs.away = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="store is away"):
            worker.step()
    assert reasons(tended) == []
    assert tended.probes == 0
    tended.jobs.away = False
    worker.step()
    assert tended.levels() == [(1, 2)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_a_worker_that_goes_leaves_its_boxes_to_another(tended: Lake) -> None:
    made = several(tended, 2)
    failing = tended.commit(*(segment(f"f{n}", collector="d") for n in range(2)))
    tended.jobs.fail = {failing[0].id}
    first = tended.compaction()
    tended.box(*failing)
    first.step()
    tended.hurry()
    tended.box(*made)
    tended.jobs.away = True
    with pytest.raises(Unavailable):
        first.step()
    first.close()
    tended.jobs.away, tended.jobs.fail = False, set()
    second = tended.compaction()
    second.step()
    assert tended.levels() == [(1, 2), (1, 2)]
    assert reasons(tended) == []


def test_of_two_workers_one_wins_and_the_other_looks_again(tended: Lake) -> None:
    made = several(tended, 4)
    tended.box(*made[:3])
    tended.box(*made[1:])
    first, second = tended.compaction(at_once=1), tended.compaction(at_once=1)
    calls: list[Callable[[], None]] = [second.step]
    tended.jobs.first = lambda: calls.pop()() if calls else None
    first.step()  # while its job runs, the second does its box
    assert tended.levels() == [(0, 1), (1, 3)]
    first.step()  # what is left of the box is one segment
    assert tended.levels() == [(0, 1), (1, 3)]
    for worker in (first, second):
        worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_one_that_comes_between_during_the_job_is_seen(tended: Lake) -> None:
    """A segment whose place was given before that of the last, and which was committed after it."""
    a = several(tended, 1)
    (b,) = tended.commit(segment("b"))
    place = max(one.ingested for one in tended.live())
    (c,) = tended.commit(segment("c"))
    tended.index.commit(Commit((segment("gone", ingested=place),), (), (), (b.id,)))  # keeps b's place
    (gone,) = (one for one in tended.live() if one.ingested == place)
    late = segment("late", ingested=place, level=3)
    worker = tended.compaction()
    tended.box(*a, c)
    comes = iter([lambda: tended.index.commit(Commit((late,), (), (), (gone.id,)))])
    tended.jobs.first = lambda: next(comes, lambda: None)()
    worker.step()
    assert tended.levels() == [(0, 1), (3, 1), (0, 1)]
    worker.step()
    assert tended.levels() == [(0, 1), (3, 1), (0, 1)]  # cut: nothing is left to merge
    assert reasons(tended) == []


def test_messages_of_other_kinds_are_passed_over(tended: Lake) -> None:
    worker = tended.compaction()
    tended.bus.publish([(TOPIC, b"{nonsense")])
    made = several(tended, 2)
    tended.box(*made)
    worker.step()
    assert tended.levels() == [(1, 2)]
    worker.close()
    assert tended.left(TOPIC, "compact") == []


def test_what_the_bus_lost_is_told_of_again(tended: Lake) -> None:
    several(tended, 3)
    overdue = Overdue(reminder=900.0, merge=60.0, roll=10.0, target_bytes=1000)
    assert remind_merges(tended.index.tending, overdue, ReminderLog(900.0)) == 0
    tended.age(1000)
    assert remind_merges(tended.index.tending, overdue, ReminderLog(900.0)) == 3
    tended.relay()
    boxers, worker = tended.boxers(), tended.compaction()
    for _ in range(2):
        for boxer in boxers:
            boxer.step()
        tended.now += 61
    worker.step()
    assert tended.levels() == [(1, 3)]


def test_what_waits_long_is_told_of_ever_more_seldom(tended: Lake) -> None:
    """A backlog of hours does not fill the bus with the same boxes again and again."""
    several(tended, 3)
    tended.age(1000)
    overdue = Overdue(reminder=900.0, merge=60.0, roll=10.0, target_bytes=1000)
    told = ReminderLog(900.0, lambda: tended.now)
    said = []
    for _ in range(16):
        said.append(remind_merges(tended.index.tending, overdue, told))
        tended.now += 900
    assert said == [3, 3, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3]
    tended.commit(segment("new"))
    tended.age(1000)
    assert remind_merges(tended.index.tending, overdue, told) == 4  # with the others of its hour


def told_levels(tended: Lake) -> list[tuple[int, int]]:
    """(level, segments) of each message of a reminder."""
    overdue = Overdue(reminder=900.0, merge=60.0, roll=10.0, target_bytes=1000, few=4)
    remind_merges(tended.index.tending, overdue, ReminderLog(900.0))
    tended.relay()
    subscription = tended.bus.subscribe(["boxer.logs.compact"], "boxer")
    taken = subscription.take(100, 0)
    subscription.commit(taken)
    subscription.close()
    messages = [decode(delivery.payload) for delivery in taken]
    return [(one.level, len(one.segments)) for one in messages if isinstance(one, SegmentsCommitted)]


def test_a_few_that_something_keeps_apart_are_told_of_at_the_level_of_that(tended: Lake) -> None:
    tended.commit(segment("a"), segment("between", level=1), segment("b"))
    tended.age(1000)
    assert told_levels(tended) == [(0, 2)]  # not so long as for level 1
    tended.age(1000)
    assert told_levels(tended) == [(1, 3)]
    tended.age(5000)
    assert told_levels(tended) == [(2, 3)]
    several(tended, 3)
    tended.age(5000)
    assert told_levels(tended) == [(0, 5)]  # many make their own way up


def test_leftovers_of_several_levels_come_together_in_the_end(tended: Lake) -> None:
    """One of each level is alone in its own, and would stay so."""
    tended.commit(segment("l0"), segment("l1", level=1), segment("l2", level=2, time=TimeRange(HOUR_NS, HOUR_NS + 1)))
    tended.age(DAY_NS // 10**9)
    overdue = Overdue(reminder=900.0, merge=60.0, roll=10.0, target_bytes=1000)
    boxers, worker = tended.boxers(), tended.compaction()
    for _ in range(2):
        remind_merges(tended.index.tending, overdue, ReminderLog(900.0))
        tended.relay()
        for _ in range(2):
            for boxer in boxers:
                boxer.step()
            tended.now += 3601
        worker.step()
        tended.age(DAY_NS // 10**9)
    assert tended.levels() == [(3, 3)]


def test_the_wire_form_of_a_failed_part_is_a_box_of_its_own(tended: Lake) -> None:
    """Of a box that was cut, only the part that failed is tried again."""
    a, b, _full, c, d = tended.commit(
        segment("a"), segment("b"), segment("full", bytes=5000), segment("c"), segment("d")
    )
    tended.jobs.fail = {c.id}
    worker = tended.compaction()
    tended.box(a, b, c, d)
    worker.step()
    assert tended.levels() == [(1, 2), (0, 1), (0, 1), (0, 1)]
    (failed,) = tended.index.tending.failed(ACME.id)
    part = CompactBox(ACME.id, "c", "logs", 0, 0, tuple(sorted([c.id, d.id])))
    assert (failed.work.topic, failed.work.payload) == (TOPIC, encode(part))


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_what_a_merge_that_was_cut_left_is_merged_with_later_ones(tended: Lake, ids: tuple[int, int]) -> None:
    """Both parts have one place in the order, and no sort key in common: the full one does not stand between."""
    full, rest = (UUID(int=number) for number in ids)
    cut = tended.commit(segment(full, ingested=1, bytes=1000, rows=9), segment(rest, ingested=1))
    (later,) = tended.commit(segment("later", ingested=2))
    tended.box(cut[1], later)
    worker = tended.compaction()
    worker.step()
    assert tended.levels() == [(0, 9), (1, 2)]
    assert (tended.jobs.sizes, tended.index.tending.failed(ACME.id)) == ([1], [])


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_no_part_of_a_merge_that_was_cut_is_merged_with_earlier_ones_alone(tended: Lake, ids: tuple[int, int]) -> None:
    """These would come to have the place of the other part, which came after them."""
    full, rest = (UUID(int=number) for number in ids)
    (earlier,) = tended.commit(segment("earlier", ingested=1))
    cut = tended.commit(segment(full, ingested=2, bytes=1000, rows=9), segment(rest, ingested=2))
    (later,) = tended.commit(segment("later", ingested=3))
    tended.box(earlier, cut[1], later)
    worker = tended.compaction()
    worker.step()
    assert sorted(tended.levels()) == [(0, 1), (0, 9), (1, 2)]
    assert tended.live()[0].id == earlier.id
    assert (tended.jobs.sizes, tended.index.tending.failed(ACME.id)) == ([1], [])
