"""Segments of several tiers, picked in one snapshot."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import uuid4

from index.index_values import ACME, OTHER, at_once, segment
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.condition import Equals
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import MAX_FINGERPRINTS, Segment, field_fingerprints
from lakerunner.model.tier import NOTHING_EXPIRED, RAW, TIERS, Expiry, tile
from lakerunner.model.time import MAX_NS, MIN_NS, TimeRange

NS = 1_000_000
TEN, MINUTE, FIVE, HOUR, DAY = TIERS


def metrics(name: str, start: int, end: int, frequency: int = RAW, **changes: object) -> Segment:
    """Times in ms of the first and the last row."""
    values = {"signal": "metrics", "frequency_ms": frequency, "organization": ACME.id, **changes}
    return segment(name, start * NS, end * NS + 1, **values)


def commit(index: Index, *segments: Segment) -> None:
    index.commit(Commit(segments, (), ()))


def names(index: Index, reach: tuple[int, int], tier: int, **how: object) -> tuple[object, set[object], int]:
    found = index.segments.pick_tiers(ACME.id, reach, tier, **how)  # type: ignore[arg-type]
    return found.tiles, {(one.frequency_ms, one.time.start_ns // NS) for one in found.segments}, found.considered


def test_raw_segments_until_they_are_rolled_up(index: Index) -> None:
    first, second = metrics("first", 1, MINUTE), metrics("second", MINUTE + 1, 2 * MINUTE)
    commit(index, first, second, segment("logs", 1, 9))
    commit(index, metrics("theirs", 1, 9, organization=OTHER.id))
    assert names(index, (0, FIVE), MINUTE) == (
        {MINUTE: ((2 * MINUTE, FIVE),), RAW: ((0, 2 * MINUTE),)},
        {(RAW, 1), (RAW, MINUTE + 1)},
        2,
    )
    windows = metrics("windows", TEN, MINUTE, TEN)
    index.commit(Commit((windows,), (), (), rolled=(first.id,), rolled_of=ACME.id))
    assert names(index, (0, FIVE), MINUTE) == (
        {MINUTE: ((2 * MINUTE, FIVE),), TEN: ((0, MINUTE),), RAW: ((MINUTE, 2 * MINUTE),)},
        {(TEN, TEN), (RAW, MINUTE + 1)},
        2,
    )
    index.commit(Commit((metrics("wide", MINUTE, MINUTE, MINUTE),), (), (), rolled=(windows.id,), rolled_of=ACME.id))
    tiles, found, _ = names(index, (0, FIVE), MINUTE)
    assert tiles == {MINUTE: ((0, MINUTE), (2 * MINUTE, FIVE)), RAW: ((MINUTE, 2 * MINUTE),)}
    assert found == {(MINUTE, MINUTE), (RAW, MINUTE + 1)}


def test_windows_that_have_expired_are_made_good_by_finer_ones(index: Index) -> None:
    raw = metrics("raw", 1, 3 * MINUTE, rolled=True)
    windows = [metrics(f"w{n}", n * MINUTE, n * MINUTE, MINUTE, rolled=True) for n in (1, 2, 3)]
    commit(index, raw, metrics("ten", TEN, 3 * MINUTE, TEN, rolled=True), *windows)
    cutoff = Cutoff("metrics", MINUTE, 2 * MINUTE * NS + 1, 0, 0, 0)
    assert len(index.sweep.expire(ACME.id, cutoff, [one.id for one in windows], NS)) == 2
    tiles, found, _ = names(index, (0, 3 * MINUTE), MINUTE)
    assert tiles == {MINUTE: ((2 * MINUTE, 3 * MINUTE),), TEN: ((0, 2 * MINUTE),)}
    assert found == {(MINUTE, 3 * MINUTE), (TEN, TEN)}


def expire(index: Index, frequency: int, before: int, *segments: Segment) -> None:
    cutoff = Cutoff(segments[0].signal, frequency, before * NS, before * NS, 0, 0)
    assert len(index.sweep.expire(ACME.id, cutoff, [one.id for one in segments], NS)) == len(segments)


def test_what_has_expired_where_raw_points_are_read_and_which_tiers_are_left(index: Index) -> None:
    held = {name: field_fingerprints("metric_name", [name]) for name in ("up", "down")}
    both = held["up"] + held["down"]
    raw = metrics("raw", 1, 2 * MINUTE, rolled=True, fingerprints=both)
    young = metrics("young", 2 * MINUTE + 1, 5 * MINUTE, fingerprints=both)
    ten = metrics("ten", TEN, 2 * MINUTE, TEN, rolled=True, fingerprints=both)
    one = metrics("one", MINUTE, 2 * MINUTE, MINUTE, fingerprints=held["up"])
    theirs = metrics("theirs", MINUTE, MINUTE, FIVE, organization=OTHER.id)
    commit(index, raw, young, ten, one)
    commit(index, theirs)
    reach = TimeRange(1, 5 * MINUTE * NS)
    assert index.segments.pick(ACME.id, "metrics", reach).expiry == NOTHING_EXPIRED
    expire(index, RAW, 3 * MINUTE, raw)
    before_ns = {RAW: 2 * MINUTE * NS + 1}
    assert index.segments.pick(ACME.id, "metrics", reach).expiry == Expiry(before_ns, (TEN, MINUTE))
    down = (Equals("metric_name", ("down",)),)
    assert index.segments.pick(ACME.id, "metrics", reach, conditions=down).expiry == Expiry(before_ns, (TEN,))
    late = TimeRange(2 * MINUTE * NS + 1, 5 * MINUTE * NS)
    assert index.segments.pick(ACME.id, "metrics", late).expiry == NOTHING_EXPIRED
    assert index.segments.pick(OTHER.id, "metrics", reach).expiry == NOTHING_EXPIRED
    # A tier in the place of raw points lacks nothing, until it has expired too.
    assert index.segments.pick_tiers(ACME.id, (0, 5 * MINUTE), TEN).expiry == NOTHING_EXPIRED
    expire(index, TEN, 3 * MINUTE, ten)
    before_ns[TEN] = 2 * MINUTE * NS + 1
    assert index.segments.pick_tiers(ACME.id, (0, 5 * MINUTE), TEN).expiry == Expiry(before_ns, (MINUTE,))
    assert index.segments.pick_tiers(ACME.id, (0, 5 * MINUTE), MINUTE).expiry == NOTHING_EXPIRED
    assert index.segments.pick_tiers(ACME.id, (2 * MINUTE, 5 * MINUTE), TEN).expiry == NOTHING_EXPIRED


def in_vain(index: Index, frequency: int, *segments: Segment) -> None:
    """Rollups have been waited for, and some tier keeps their time."""
    last = max(one.time.end_ns for one in segments)
    cutoff = Cutoff("metrics", frequency, last, MIN_NS, last, MAX_NS)
    assert len(index.sweep.expire(ACME.id, cutoff, [one.id for one in segments], NS)) == len(segments)


def test_rows_that_expired_before_they_were_rolled_up(index: Index) -> None:
    held = {name: field_fingerprints("metric_name", [name]) for name in ("up", "down")}
    rolled = metrics("rolled", 1, MINUTE, rolled=True, fingerprints=held["up"])
    some = [metrics("a", MINUTE + 1, 90_000, fingerprints=held["up"]), metrics("b", 85_000, 2 * MINUTE)]
    other = metrics("other", 3 * MINUTE, 3 * MINUTE + 5, fingerprints=held["down"], collector="d")
    next_hour = metrics("next", HOUR + 1, HOUR + 9, fingerprints=held["up"])
    commit(index, rolled, *some, other, next_hour)
    in_vain(index, RAW, rolled, *some, other, next_hour)
    reach = (0, 2 * HOUR)
    before_ns = {RAW: (HOUR + 9) * NS + 1}
    found = index.segments.pick_tiers(ACME.id, reach, HOUR)
    times = ((MINUTE, 2 * MINUTE), (3 * MINUTE - 1, 3 * MINUTE + 5), (HOUR, HOUR + 9))
    assert (found.tiles, found.segments) == ({HOUR: (reach,)}, ())
    assert found.expiry == Expiry(before_ns, (), {RAW: times})

    def of(metric: str, *over: int) -> object:
        asked = (Equals("metric_name", (metric,)),)
        return index.segments.pick_tiers(ACME.id, over or reach, HOUR, conditions=asked).expiry  # type: ignore[arg-type]

    assert of("up") == Expiry(before_ns, (), {RAW: (times[0], times[2])})
    assert of("down") == Expiry(before_ns, (), {RAW: (times[1],)})
    assert of("another") == of("down", HOUR, 2 * HOUR) == NOTHING_EXPIRED
    assert index.segments.pick_tiers(OTHER.id, reach, HOUR).expiry == NOTHING_EXPIRED


def test_too_many_fingerprints_stand_for_any(index: Index) -> None:
    """As of a segment: also of several of one hour, one after the other."""
    many = [
        metrics(f"s{n}", n, n, fingerprints=tuple(range(n * MAX_FINGERPRINTS // 2, (n + 1) * MAX_FINGERPRINTS // 2)))
        for n in (1, 2, 3)
    ]
    asked = (Equals("metric_name", ("up",)),)
    commit(index, *many)
    in_vain(index, RAW, *many[:2])
    assert index.segments.pick_tiers(ACME.id, (0, HOUR), TEN, conditions=asked).expiry == NOTHING_EXPIRED
    in_vain(index, RAW, many[2])
    expiry = index.segments.pick_tiers(ACME.id, (0, HOUR), TEN, conditions=asked).expiry
    assert expiry == Expiry({RAW: 3 * NS + 1}, (), {RAW: ((0, 3),)})


def test_what_no_tier_keeps_is_past_for_all_of_them(index: Index) -> None:
    early, late = metrics("early", 1, MINUTE), metrics("late", 2 * MINUTE, 3 * MINUTE)
    commit(index, early, late)
    in_vain(index, RAW, early, late)
    expiry = index.segments.pick_tiers(ACME.id, (0, HOUR), HOUR).expiry
    assert expiry.unrolled == {RAW: ((0, 3 * MINUTE),)}  # known by the hour
    # The next sweep finds that no tier is kept for so long.
    more = metrics("more", 1, 2)
    commit(index, more)
    expire(index, RAW, 4, more)
    before_ns = {RAW: 3 * MINUTE * NS + 1}
    assert index.segments.pick_tiers(ACME.id, (0, HOUR), HOUR).expiry.unrolled == {RAW: ((0, 3 * MINUTE),)}
    last = metrics("last", 3, 4)
    commit(index, last)
    expire(index, RAW, 3 * MINUTE + 1, last)
    found = index.segments.pick_tiers(ACME.id, (0, HOUR), MINUTE)
    assert found.tiles == {MINUTE: ((3 * MINUTE, HOUR),), RAW: ((0, 3 * MINUTE),)}
    assert found.expiry == Expiry(before_ns | dict.fromkeys(TIERS, before_ns[RAW]))


def test_only_what_a_tier_is_made_of_can_be_missing_in_it(index: Index) -> None:
    day = metrics("day", DAY, DAY, DAY)
    commit(index, day, segment("logs", 1 * NS, 5 * NS))
    in_vain(index, DAY, day)
    expire(index, RAW, 5, segment("logs", 1 * NS, 5 * NS))
    assert index.segments.pick_tiers(ACME.id, (0, 2 * DAY), DAY).expiry == NOTHING_EXPIRED


def test_each_signal_has_an_expiry_of_its_own(index: Index) -> None:
    old = segment("old", 1 * NS, 5 * NS)
    commit(index, old, segment("young", 5 * NS, 9 * NS), segment("spans", 1 * NS, 5 * NS, signal="traces"))
    expire(index, RAW, 5, old)
    reach = TimeRange(NS, 9 * NS)
    assert index.segments.pick(ACME.id, "logs", reach).expiry == Expiry({RAW: 5 * NS})
    assert index.segments.pick(ACME.id, "traces", reach).expiry == NOTHING_EXPIRED
    assert index.segments.pick(ACME.id, "metrics", reach).expiry == NOTHING_EXPIRED
    assert index.sweep.expired_before(ACME.id, old.collector, RAW) == MIN_NS  # which is of metrics


def test_a_metric_that_no_unrolled_segment_has_is_not_held_up(index: Index) -> None:
    held = {name: field_fingerprints("metric_name", [name]) for name in ("up", "down")}
    commit(
        index,
        metrics("up", 1, 2, fingerprints=held["up"]),
        metrics("windows", FIVE, FIVE, FIVE, fingerprints=held["up"] + held["down"]),
    )
    down, up = ((Equals("metric_name", (name,)),) for name in ("down", "up"))
    assert names(index, (0, FIVE), FIVE, conditions=down) == ({FIVE: ((0, FIVE),)}, {(FIVE, FIVE)}, 1)
    tiles, found, _ = names(index, (0, FIVE), FIVE, conditions=up)
    assert found == {(RAW, 1)}
    assert tiles == {MINUTE: ((MINUTE, FIVE),), TEN: ((TEN, MINUTE),), RAW: ((0, TEN),)}


def test_what_a_loop_over_all_segments_picks(index: Index) -> None:
    draw = random.Random(3)
    every = []
    for n in range(60):
        start = draw.randint(0, 20 * MINUTE)
        every.append(
            metrics(
                f"s{n}",
                start,
                start + draw.randint(0, MINUTE),
                draw.choice([RAW, TEN, MINUTE, FIVE]),
                rolled=draw.random() < 0.9,
            )
        )
    commit(index, *every)
    for _ in range(30):
        tier = draw.choice([TEN, MINUTE, FIVE])
        reach = (draw.randint(0, 2) * FIVE, draw.randint(2, 5) * FIVE)
        between = [
            one for one in every if one.time.start_ns < (reach[1] + 1) * NS and one.time.end_ns > (reach[0] + 1) * NS
        ]
        unrolled: dict[int, list[tuple[int, int]]] = {}
        for one in between:
            if not one.rolled:
                times = one.time.start_ns // NS, (one.time.end_ns - 1) // NS
                unrolled.setdefault(one.frequency_ms, []).append(times)
        tiles = tile(reach, tier, unrolled)
        wanted = {
            one.id
            for one in every
            for start, end in tiles.get(one.frequency_ms, ())
            if one.time.start_ns < (end + 1) * NS and one.time.end_ns > (start + 1) * NS
        }
        picked = index.segments.pick_tiers(ACME.id, reach, tier)
        assert picked.tiles == tiles
        assert {one.id for one in picked.segments} == wanted
        assert len(picked.segments) == picked.considered == len(wanted)


def test_a_rollup_is_seen_whole_or_not_at_all(index: Index) -> None:
    """Whoever looks while it is committed sees the raw segment unrolled, or its windows."""
    raws = [metrics(f"raw{n}", n * MINUTE + 1, (n + 1) * MINUTE) for n in range(20)]
    commit(index, *raws)

    def roll() -> None:
        for n, raw in enumerate(raws):
            windows = replace(metrics(f"ten{n}", n * MINUTE + TEN, (n + 1) * MINUTE, TEN), id=uuid4())
            index.commit(Commit((windows,), (), (), rolled=(raw.id,), rolled_of=ACME.id))

    def look() -> None:
        while True:
            picked = index.segments.pick_tiers(ACME.id, (0, 20 * MINUTE), TEN)
            there = {one.time.start_ns // NS // MINUTE for one in picked.segments}
            assert there == set(range(20))
            assert len(picked.segments) == 20
            if RAW not in picked.tiles:
                return

    assert at_once([roll, look, look]) == [None, None, None]
