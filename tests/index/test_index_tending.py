"""Failed work, segments set aside, what was forgotten, and the checks that merges and rollups are committed with."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from index.index_values import ACME, OTHER, at_once, count, outbox_size, segment
from lakerunner.index.commit import Basis, Commit
from lakerunner.index.index import Index
from lakerunner.index.inspect import Level
from lakerunner.index.segments import CollectorTier
from lakerunner.index.tending import Retry, Work
from lakerunner.model.errors import Conflict
from lakerunner.model.segment import Segment
from lakerunner.model.time import DAY_NS, HOUR_NS, TimeRange

PLACE = CollectorTier(ACME.id, "c", "metrics", 0)
WORK = Work("segments.logs.compact", b'{"a": 1}')
OTHER_WORK = Work("segments.logs.compact", b'{"a": 2}')
RETRY = Retry(attempts=3, seconds=10.0)


def commit(index: Index, *segments: Segment) -> None:
    """One by one: each has its place after the one before."""
    for one in segments:
        index.commit(Commit((one,), (), ()))


def metric(name: str, start: int = 0, end: int = 10, **changes: Any) -> Segment:
    return segment(name, start, end, signal="metrics", **changes)


def age(index: Index, seconds: int) -> None:
    """As if all that is there had come so long ago."""
    with index.pool.connection() as connection:
        connection.execute("UPDATE lrdb.segments SET created_at = created_at - make_interval(secs => %s)", [seconds])


def hurry(index: Index) -> None:
    """As if every pause was over."""
    with index.pool.connection() as connection:
        connection.execute("UPDATE lrdb.failed_work SET next_at = now() - interval '1 s'")


def ids(segments: list[Segment]) -> set[UUID]:
    return {one.id for one in segments}


def pause(index: Index) -> int:
    return count(index, "SELECT round(extract(epoch FROM next_at - now())) FROM lrdb.failed_work")


def test_failed_work_waits_longer_each_time_and_is_then_set_aside(index: Index) -> None:
    tending = index.tending
    one, other = segment("one"), segment("other")
    commit(index, one, other)
    assert tending.fail(WORK, ACME.id, [one.id], "first", RETRY) == (1, "waiting")
    assert 5 < pause(index) <= 10
    assert tending.due([WORK.topic], 10) == []
    assert tending.fail(WORK, ACME.id, [one.id], "second", RETRY) == (2, "waiting")
    assert 15 < pause(index) <= 20
    assert ids(tending.live(ACME.id, [one.id, other.id])) == {one.id, other.id}
    assert tending.fail(WORK, ACME.id, [one.id], "third\0", RETRY) == (3, "aside")
    assert ids(tending.live(ACME.id, [one.id, other.id])) == {other.id}
    (found,) = tending.failed(ACME.id)
    assert (found.work, found.attempts, found.state, found.reason) == (WORK, 3, "aside", "third�")
    ((aside, reason),) = tending.list_aside(ACME.id)
    assert aside.id == one.id
    assert reason == f"work {WORK.id} was set aside after 3 attempts: third�"
    hurry(index)
    assert tending.due([WORK.topic], 10) == []
    assert tending.failed(OTHER.id) == []
    assert tending.list_aside(OTHER.id) == []
    assert tending.failed_counts() == {(WORK.topic, "aside"): 1}


def test_due_work_is_given_to_one_who_asks(index: Index) -> None:
    for work in (WORK, OTHER_WORK):
        index.tending.fail(work, ACME.id, [], "why", RETRY)
    hurry(index)
    assert index.tending.due(["segments.metrics.rollup"], 10) == []
    got = at_once([lambda: index.tending.due([WORK.topic], 10) for _ in range(4)])
    given = [work for one in got if isinstance(one, list) for work in one]
    assert sorted(given, key=lambda work: work.payload) == [WORK, OTHER_WORK]
    index.tending.put_off(WORK, 0.0)
    assert index.tending.due([WORK.topic], 10) == [WORK]
    index.tending.done(WORK)
    index.tending.done(WORK)  # twice is quiet
    assert [one.work for one in index.tending.failed(ACME.id)] == [OTHER_WORK]


def test_requeued_work_is_on_its_way_again_with_its_segments(index: Index) -> None:
    one, other = segment("one"), segment("other")
    commit(index, one, other)
    for work, of in ((WORK, one), (OTHER_WORK, other)):
        index.tending.fail(work, ACME.id, [of.id], "why", Retry(1, 10.0))
    before = outbox_size(index)
    assert index.tending.requeue(OTHER.id, [WORK], [one.id], []) == (0, 0)
    assert index.tending.requeue(ACME.id, [WORK], [one.id], [("boxer.logs.compact", b"again")]) == (1, 1)
    assert outbox_size(index) == before + 2
    assert ids(index.tending.live(ACME.id, [one.id, other.id])) == {one.id}
    assert [failed.work for failed in index.tending.failed(ACME.id)] == [OTHER_WORK]
    with index.pool.connection() as connection:
        rows = connection.execute("SELECT topic, payload FROM lrdb.outbox ORDER BY id DESC LIMIT 2").fetchall()
    assert {(topic, bytes(payload)) for topic, payload in rows} == {
        (WORK.topic, WORK.payload),
        ("boxer.logs.compact", b"again"),
    }


def test_work_that_fails_while_it_is_requeued_is_recorded(index: Index) -> None:
    """Both change the row of the work and its segments: in one order, else each waits for the other."""
    one = segment("one")
    commit(index, one)
    twice = Retry(attempts=2, seconds=10.0)
    index.tending.fail(WORK, ACME.id, [one.id], "first", twice)
    index.tending.set_aside(ACME.id, [one.id], "it was damaged")
    with ThreadPoolExecutor(2) as threads, index.pool.connection() as connection:
        with connection.transaction():
            connection.execute("SELECT FROM lrdb.segments WHERE id = %s FOR UPDATE", [one.id])
            again = threads.submit(index.tending.requeue, ACME.id, [WORK], [one.id], [])
            until_waiting(connection, 1)
            failed = threads.submit(index.tending.fail, WORK, ACME.id, [one.id], "second", twice)
            until_waiting(connection, 2)
        assert again.result() == (1, 1)
        assert failed.result() == (1, "waiting")  # it was forgotten, and has failed anew
    assert index.tending.aside_of(ACME.id, [one.id]) == frozenset()


def until_waiting(connection: Any, sessions: int) -> None:
    """So many sessions wait for a lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    for _ in range(200):
        if connection.execute(waiting).fetchone()[0] >= sessions:
            return
        time.sleep(0.05)
    raise AssertionError("they do not wait")


def test_only_live_segments_are_set_aside(index: Index) -> None:
    old, new = segment("old"), segment("new")
    commit(index, old)
    index.commit(Commit((new,), (), (), (old.id,)))
    assert index.tending.set_aside(ACME.id, [old.id, new.id], "damaged") == 1
    assert index.tending.set_aside(OTHER.id, [new.id], "not theirs") == 0
    assert index.tending.aside_of(ACME.id, [old.id, new.id]) == {new.id}
    assert index.tending.list_aside(ACME.id)[0][1] == "damaged"


def test_overlapping_shows_all_that_is_live_in_the_order_it_came(index: Index) -> None:
    first, second, third = metric("z", 5, 15), metric("y", 0, 6), metric("x", 9, 10)
    elsewhere = metric("e", 0, 10, collector="d"), metric("f", 0, 10, frequency_ms=10_000), metric("g", 15, 20)
    commit(index, first, second, third, *elsewhere)
    index.tending.set_aside(ACME.id, [third.id], "damaged")
    found = index.tending.overlapping(PLACE, TimeRange(0, 15))
    assert [one.id for one in found] == [first.id, second.id, third.id]
    places = [one.ingested for one in found]
    assert [one.id for one in index.tending.overlapping(PLACE, TimeRange(0, 6))] == [first.id, second.id]
    between = index.tending.overlapping(PLACE, TimeRange(0, 15), ingested=(places[1], places[2]))
    assert [one.id for one in between] == [second.id, third.id]


def test_a_merge_of_what_is_not_contiguous_is_refused(index: Index) -> None:
    first, between, last = metric("a"), metric("b"), metric("c")
    commit(index, first, between, last, metric("other collector", collector="d"), metric("later", 10, 20))
    merged = metric("merged", level=1)
    with pytest.raises(Conflict, match="was added between"):
        index.commit(Commit((merged,), (), (), (first.id, last.id), contiguous=True))
    assert len(index.tending.live(ACME.id, [first.id, last.id])) == 2
    index.commit(Commit((merged,), (), (), (first.id, between.id, last.id), contiguous=True))
    assert index.tending.live(ACME.id, [first.id, between.id, last.id]) == []


def windows(index: Index, name: str, touched: Segment, *basis: Segment) -> None:
    """Commit a rollup of one segment, made of these."""
    made = Basis("c", "metrics", 0, TimeRange(0, 10), frozenset(one.id for one in basis))
    rolled = metric(name, frequency_ms=10_000)
    index.commit(Commit((rolled,), (), (), rolled=(touched.id,), basis=made, rolled_of=ACME.id))


def test_windows_made_of_less_than_those_before_are_refused(index: Index) -> None:
    first, late = metric("first"), metric("late")
    commit(index, first)
    commit(index, late)
    windows(index, "of late", late, first, late)
    with pytest.raises(Conflict, match="read them again"):
        windows(index, "without late", first, first)
    windows(index, "with late", first, first, late)
    rolled = {one.id: one.rolled for one in index.tending.live(ACME.id, [first.id, late.id])}
    assert rolled == {first.id: True, late.id: True}


def test_what_came_meanwhile_and_is_not_rolled_up_is_no_conflict(index: Index) -> None:
    first, late = metric("first"), metric("late")
    commit(index, first, late)
    windows(index, "without late", first, first)
    windows(index, "with late", late, first, late)
    replaced = metric("merged", level=1, rolled=True)
    third = metric("third")
    commit(index, third)
    index.commit(Commit((replaced,), (), (), (first.id, late.id)))
    with pytest.raises(
        Conflict, match="read them again"
    ):  # their rows are in another now: nobody knows if all are the same
        windows(index, "of third", third, first, late, third)
    windows(index, "of third", third, replaced, third)


def test_reminding_of_merges(index: Index) -> None:
    hour = HOUR_NS
    pair = segment("a", 0, 5), segment("b", hour - 1, hour)
    alone = segment("c", hour, hour + 1)
    metrics = metric("m1"), metric("m2"), metric("m3", rolled=True), metric("m4", rolled=True)
    days = metric("d1", frequency_ms=86_400_000), metric("d2", frequency_ms=86_400_000)
    large = segment("e", 0, 5, bytes=1000)
    grown = segment("l1", 0, 1, level=1), segment("l1'", 5 * hour, 5 * hour + 1, level=1)
    theirs = segment("t1", 0, 5, organization=OTHER.id), segment("t2", 0, 5, organization=OTHER.id)
    commit(index, *pair, alone, *metrics, *days, large, *grown, *theirs)
    assert index.tending.to_merge(0, 60, 1000) == []  # too young
    age(index, 100)
    found = index.tending.to_merge(0, 60, 1000)
    assert ids(found) == ids([*pair, *metrics[2:], *days, *theirs])
    assert ids(index.tending.to_merge(1, 60, 1000)) == ids([*found, grown[0]])
    assert ids(index.tending.to_merge(2, 60, 1000)) == ids([*found, *grown, alone])
    index.tending.set_aside(ACME.id, [pair[0].id], "damaged")
    assert ids(index.tending.to_merge(0, 60, 1000)) == ids([*metrics[2:], *days, *theirs])


def test_reminding_of_rollups(index: Index) -> None:
    raw, rolled, tier, aside = metric("r"), metric("x", rolled=True), metric("t", frequency_ms=10_000), metric("a")
    commit(index, raw, rolled, tier, aside, segment("log"))
    index.tending.set_aside(ACME.id, [aside.id], "damaged")
    assert index.tending.to_roll(0, 60) == []
    age(index, 100)
    assert ids(index.tending.to_roll(0, 60)) == {raw.id}
    assert ids(index.tending.to_roll(10_000, 60)) == {tier.id}
    assert index.tending.to_roll(60_000, 60) == []
    waits = index.tending.unrolled_seconds()
    assert waits.keys() == {0, 10_000}
    assert waits[0] == pytest.approx(100, abs=30)
    index.tending.remind([("boxer.metrics.rollup", b"x"), ("boxer.metrics.rollup", b"y")])
    index.tending.remind([])
    assert outbox_size(index) == 2


def test_counts_by_level_and_per_hour(index: Index) -> None:
    commit(index, segment("a", 0, 5), segment("b", 0, 5), segment("c", 3 * HOUR_NS, 3 * HOUR_NS + 1))
    commit(index, segment("d", 0, 5, level=1, bytes=50), segment("t", organization=OTHER.id))
    assert index.inspect.levels(ACME.id) == [Level("logs", 0, 0, 3, 21, 300, 0), Level("logs", 0, 1, 1, 7, 50, 0)]
    assert index.inspect.levels(None)[0].segments == 4
    assert index.tending.segments_per_hour(TimeRange(0, DAY_NS)) == {("logs", 0, 0): 2.0, ("logs", 0, 1): 1.0}
