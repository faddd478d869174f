"""What fsck, repair and status ask of the index."""

from __future__ import annotations

from uuid import UUID

import pytest

from index.index_values import ACME, OTHER, arrival, segment, source
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.inspect import Birth, EndedTotals, FailedWork, Hour, Level, PastTotals, SourceCount
from lakerunner.index.segments import CollectorTier
from lakerunner.model.retention_policy import Retention
from lakerunner.model.segment import Segment
from lakerunner.model.time import HOUR_NS, TimeRange


def commit(index: Index, *segments: Segment, replaced: tuple[UUID, ...] = ()) -> None:
    index.commit(Commit(segments, (), (), replaced=replaced))


def sql(index: Index, statement: str, *values: object) -> None:
    with index.pool.connection() as connection:
        connection.execute(statement.encode(), values)


def test_live_segments_come_page_after_page(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.index.inspect.PAGE", 2)
    made = [segment(f"s{number}") for number in range(5)]
    commit(index, *made, segment("theirs-not", 0, 10))
    commit(index, segment("merged", level=1), replaced=(made[0].id,))
    index.commit(Commit((segment("theirs", organization=OTHER.id),), (), ()))
    pages = list(index.inspect.live(ACME.id))
    assert [len(page) for page in pages] == [2, 2, 2]
    found = [one.id for page in pages for one in page]
    assert found == sorted(found)
    assert set(found) == {one.id for one in [*made[1:], segment("theirs-not"), segment("merged")]}
    assert index.inspect.count_live(ACME.id) == 6
    assert index.inspect.still_live([made[0].id, made[1].id]) == {made[1].id}
    states = index.inspect.states([made[0].id, made[1].id, UUID(int=5)])
    assert {id_: state for id_, (state, _) in states.items()} == {made[0].id: "replaced", made[1].id: "live"}


def test_a_live_segment_whose_input_is_live_again_is_found(index: Index) -> None:
    old, other, new = segment("old"), segment("other"), segment("new", level=1)
    commit(index, old, other)
    commit(index, new, replaced=(old.id, other.id))
    assert index.inspect.doubled(ACME.id) == []
    sql(index, "UPDATE lrdb.segments SET state = 'live' WHERE id = %s", old.id)
    assert index.inspect.doubled(ACME.id) == [(new.id, "c", "logs", old.id)]
    assert index.inspect.doubled(OTHER.id) == []


def test_crowded_hours_are_those_in_which_segments_overlap(index: Index) -> None:
    h = HOUR_NS
    commit(
        index,
        segment("a", 0, h),
        segment("b", h // 2, h // 2 + 1),
        segment("alone", 2 * h, 3 * h),
        segment("touches", 3 * h, 4 * h),
        segment("long", 5 * h, 9 * h),
        segment("late", 7 * h - 1, 8 * h),
        segment("elsewhere", 2 * h, 3 * h, collector="d"),
        segment("window", 2 * h, 3 * h, signal="metrics", frequency_ms=10_000),
        segment("point", 2 * h, 3 * h, signal="metrics"),
        segment("before", -h, -1),
        segment("before-too", -h, -2),
    )
    assert index.inspect.crowded(ACME.id) == [Hour("c", "logs", hour) for hour in (-1, 0, 6, 7)]
    assert Hour("c", "logs", -1).time == TimeRange(-h, 0)


def test_a_tier_is_in_the_order_in_which_it_came(index: Index) -> None:
    commit(index, segment("b", 0, 10))
    commit(index, segment("a", 5, 20))
    commit(index, segment("later", 20, 30))
    found = index.inspect.tier(CollectorTier(ACME.id, "c", "logs", 0), TimeRange(9, 20))
    assert [one.id for one in found] == [segment("b").id, segment("a").id]


def test_rolled_segments_without_windows(index: Index) -> None:
    second = 10**9
    raw = segment("raw", 12 * second, 19 * second, signal="metrics", rolled=True)
    other = segment("other", 20 * second + 1, 20 * second + 10**6, signal="metrics", rolled=True)
    window = segment("w", 20 * second, 20 * second + 1, signal="metrics", frequency_ms=10_000)
    commit(index, raw, other, segment("unrolled", 0, 5, signal="metrics"))
    assert set(index.inspect.without_windows(ACME.id, 0, 10_000, 0)) == {raw.id, other.id}
    commit(index, window)
    # 20.000000001 s is 20.000 s in ms, and so in the window that ends there.
    assert index.inspect.without_windows(ACME.id, 0, 10_000, 0) == []
    sql(index, "UPDATE lrdb.segments SET collector = 'd' WHERE id = %s", window.id)
    assert index.inspect.without_windows(ACME.id, 0, 10_000, 13 * second) == [other.id]
    assert set(index.inspect.rolled(ACME.id, 86_400_000, 1, None)) == {raw.id, other.id}
    drawn = {tuple(index.inspect.rolled(ACME.id, 86_400_000, seed, 1)) for seed in range(20)}
    assert drawn == {(raw.id,), (other.id,)}


def test_what_became_of_sources(index: Index) -> None:
    one, two, three = source(1), source(2), source(3)
    index.sources.announce([arrival(one), arrival(two), arrival(three), arrival(source(4), OTHER)])
    index.commit(Commit((segment("s"),), (one,), ((two, "broken"),)))
    sql(index, "UPDATE lrdb.source_objects SET seen_at = now() - interval '2 days' WHERE key = %s", three.key)
    found = index.inspect.sources(ACME.id, 86_400)
    assert found["done"] == SourceCount("done", 1, None, None, 0)
    seen = found["seen"]
    assert (seen.count, seen.oldest, seen.stale) == (1, three.key, 1)
    assert seen.age_seconds is not None
    assert 2 * 86_400 <= seen.age_seconds < 2 * 86_400 + 60
    assert (found["failed"].count, found["failed"].oldest) == (1, two.key)
    assert index.inspect.sources(None, 86_400)["seen"].count == 2
    assert index.inspect.endless_sources(ACME.id) == []
    sql(index, "UPDATE lrdb.source_objects SET ended_at = NULL WHERE key = %s", one.key)
    assert index.inspect.endless_sources(ACME.id) == [(one.key, True)]
    assert index.inspect.count_sources(ACME.id) == 3


def test_counts_for_status(index: Index) -> None:
    a, b, c = segment("a"), segment("b", 5, 30), segment("c", rows=9, bytes=50, level=1)
    commit(index, a, b, segment("other-hour", HOUR_NS, HOUR_NS + 1))
    assert [(signal, count) for signal, count, _ in index.inspect.unmerged(ACME.id, 86_400_000, 101)] == [("logs", 2)]
    assert index.inspect.unmerged(ACME.id, 86_400_000, 100) == []
    commit(index, c, replaced=(a.id, b.id))
    commit(index, segment("m", signal="metrics", rows=4))
    levels = index.inspect.levels(ACME.id)
    assert levels == [
        Level("logs", 0, 0, 1, 7, 100, 0),
        Level("logs", 0, 1, 1, 9, 50, 0),
        Level("metrics", 0, 0, 1, 4, 100, 0),
    ]
    assert index.inspect.levels(OTHER.id) == []
    assert index.inspect.levels(None) == levels
    assert [row[:2] for row in index.inspect.unrolled(None, 86_400_000)] == [(0, 1)]
    assert index.inspect.ended(None, 3600) == [EndedTotals("replaced", False, 2, 200)]
    assert index.inspect.ended(None, -1) == [EndedTotals("replaced", True, 2, 200)]


def test_retention_of_the_organization_goes_before_the_settings(index: Index) -> None:
    commit(index, segment("a", 0, 10), segment("b", 0, 10, signal="traces"))
    now = 10 + 100 * 10**9
    kept = Retention({("logs", 0): 100 * 10**9, ("traces", 0): 101 * 10**9, ("metrics", 0): None})
    assert index.inspect.past_retention(None, kept, now) == [PastTotals("logs", 0, 1, 100)]
    sql(index, "INSERT INTO lrdb.retention VALUES (%s, 'logs', 0, NULL), (%s, 'traces', 0, 5)", ACME.id, ACME.id)
    assert index.inspect.past_retention(ACME.id, kept, now) == [PastTotals("traces", 0, 1, 100)]
    assert index.inspect.past_retention(OTHER.id, kept, now) == []


def test_failed_work_and_the_outbox(index: Index) -> None:
    sql(
        index,
        "INSERT INTO lrdb.failed_work VALUES"
        " ('t', '\\x01', '', %s, 2, 'why', 'aside', now() - interval '1 hour', now())",
        ACME.id,
    )
    ((found),) = index.inspect.failed_work(ACME.id)
    assert found == FailedWork("t", "aside", 1, found.age_seconds, "why")
    assert 3600 <= found.age_seconds < 3660
    assert index.inspect.failed_work(OTHER.id) == []
    index.sources.announce([arrival(source(1)), arrival(source(2))])
    ((topic, messages, oldest),) = index.inspect.outbox()
    assert (topic, messages) == ("objstore.ingest.logs", 2)
    assert oldest > 0


def test_the_objects_and_holders_of_a_segments_rows(index: Index) -> None:
    """A segment that was never merged came in with its objects, a merged one after them."""
    objects = [source(number, key=f"k{number}") for number in range(3)]
    index.sources.announce([arrival(one) for one in objects])
    tier, time = CollectorTier(ACME.id, "c", "logs", 0), TimeRange(0, 10)
    made = [segment(f"s{number}", 0, 10) for number in range(3)]
    beside = segment("beside", 0, 10)
    index.commit(Commit((made[0], beside), (objects[0],), ()))
    index.commit(Commit((made[1],), (objects[1],), ()))
    merged = segment("merged", 0, 10, level=1)
    commit(index, merged, replaced=(made[1].id,))
    index.commit(Commit((made[2],), (objects[2],), ()))
    born = index.inspect.born([made[0].id, merged.id])

    def keys(birth: Birth, limit: int = 10) -> list[str]:
        return [one.source.key for one in index.inspect.sources_until(tier, birth, limit)]

    def holders(birth: Birth) -> set[UUID]:
        return {one.id for one in index.inspect.holders(tier, time, birth, [made[0].id])}

    assert keys(Birth(born[made[0].id], exact=True)) == ["k0"]
    assert keys(Birth(born[merged.id], exact=False)) == ["k1", "k0"]
    assert keys(Birth(born[merged.id], exact=False), limit=1) == ["k1"]
    assert holders(Birth(born[made[0].id], exact=True)) == {beside.id, merged.id}
    assert holders(Birth(born[merged.id], exact=False)) == {beside.id, merged.id}
    assert (
        index.inspect.sources_until(CollectorTier(OTHER.id, "c", "logs", 0), Birth(born[merged.id], exact=False), 10)
        == []
    )


def test_what_a_repair_commits_is_as_old_as_what_was_lost(index: Index) -> None:
    lost, new = segment("lost"), segment("new")
    commit(index, lost)
    born = index.inspect.born([lost.id])[lost.id]
    index.commit(Commit((new,), (), (), (lost.id,), repaired=True))
    assert index.inspect.born([new.id]) == {new.id: born}


def test_one_repair_at_a_time(index: Index) -> None:
    with index.inspect.repairing("one") as first, index.inspect.repairing("other") as second:
        assert (first, second) == (True, False)
    with index.inspect.repairing("later") as third:
        assert third
