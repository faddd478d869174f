from __future__ import annotations

import random

from lakerunner.model.tier import RAW, TIERS, align_start, clip_tiles, join_intervals, tile, window_end

TEN, MINUTE, FIVE, HOUR = TIERS[:4]


def test_all_of_the_widest_where_everything_is_rolled_up() -> None:
    assert tile((0, HOUR), FIVE, {}) == {FIVE: ((0, HOUR),)}
    assert tile((HOUR, HOUR), FIVE, {}) == {}


def test_a_raw_segment_that_is_not_rolled_up_takes_its_windows_from_every_tier() -> None:
    found = tile((0, 2 * FIVE), FIVE, {RAW: [(FIVE + 61_000, FIVE + 62_000)]})
    assert found == {
        FIVE: ((0, FIVE),),
        MINUTE: ((FIVE, FIVE + MINUTE), (FIVE + 2 * MINUTE, 2 * FIVE)),
        TEN: ((FIVE + 70_000, FIVE + 120_000),),
        RAW: ((FIVE + 60_000, FIVE + 70_000),),
    }


def test_windows_of_a_tier_that_are_not_rolled_up_serve_themselves() -> None:
    """A window is named by its end: that of one minute is the last of its five minutes."""
    assert tile((0, 2 * FIVE), FIVE, {MINUTE: [(FIVE, FIVE)]}) == {FIVE: ((FIVE, 2 * FIVE),), MINUTE: ((0, FIVE),)}
    assert tile((0, 2 * FIVE), FIVE, {FIVE: [(FIVE, FIVE)]}) == {FIVE: ((0, 2 * FIVE),)}


def test_tiles_cover_the_range_and_touch_nothing_that_is_missing_below_them() -> None:
    draw = random.Random(7)
    for _ in range(300):
        widest = draw.choice(TIERS[:4])
        reach = (-3 * widest, draw.randint(-3, 4) * widest)
        unrolled = {
            frequency: [
                (start, start + draw.choice([0, 1, 7 * TEN]))
                for start in (draw.randint(*sorted(reach)) for _ in range(3))
            ]
            for frequency in draw.sample([RAW, TEN, MINUTE, FIVE], draw.randint(0, 3))
        }
        found = tile(reach, widest, unrolled)
        pieces = sorted(tile for times in found.values() for tile in times)
        assert all(start < end for start, end in pieces)
        assert join_intervals(pieces) == ([reach] if reach[0] < reach[1] else [])
        assert sum(end - start for start, end in pieces) == max(0, reach[1] - reach[0])
        for tier, times in found.items():
            for start, end in times:
                for frequency, segments in unrolled.items():
                    if tier and frequency < tier:
                        assert start % tier == end % tier == 0
                        assert not any(window_end(a, tier) <= end and window_end(b, tier) > start for a, b in segments)


def test_where_a_tier_has_expired_another_serves() -> None:
    assert tile((0, 2 * HOUR), HOUR, {}, {HOUR: HOUR - 1, FIVE: 2 * FIVE}) == {
        HOUR: ((HOUR, 2 * HOUR),),
        FIVE: ((2 * FIVE, HOUR),),
        MINUTE: ((0, 2 * FIVE),),
    }
    gone = dict.fromkeys(TIERS, FIVE)
    assert tile((0, 2 * FIVE), FIVE, {}, gone) == {FIVE: ((FIVE, 2 * FIVE),), RAW: ((0, FIVE),)}
    assert tile((FIVE, 2 * FIVE), FIVE, {}, {FIVE: FIVE}) == {FIVE: ((FIVE, 2 * FIVE),)}


def test_what_is_inside_a_shorter_range() -> None:
    tiles = {FIVE: ((0, 2 * FIVE),), RAW: ((2 * FIVE, 3 * FIVE),)}
    assert clip_tiles(tiles, (FIVE, 2 * FIVE)) == {FIVE: ((FIVE, 2 * FIVE),)}
    assert align_start((FIVE + 1, 3 * FIVE), FIVE) == (FIVE, 3 * FIVE)
    assert align_start((-1, FIVE), FIVE) == (-FIVE, FIVE)
