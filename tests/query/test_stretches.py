"""Stretches hold every segment once, share no bucket, follow each other in time, and are few."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.plan.plan import Rounds
from lakerunner.query.row_answer import FIRST_BYTES, cut
from query.sample_lake import HOUR, OWN, START


def segment(number: int, start: int, end: int, size: int = 1000) -> Segment:
    return Segment(segment_id(number), OWN, "default", "logs", TimeRange(start, end), 1, size, 1, ())


spans = st.tuples(st.integers(-500, 500), st.integers(1, 60))
cuts = st.builds(
    Rounds, descending=st.booleans(), bucket_ns=st.sampled_from([1, 2, 7, 50, 1000]), origin_ns=st.integers(-100, 100)
)


@settings(max_examples=300)
@given(st.lists(spans, max_size=40), cuts, st.integers(1, 100_000_000))
def test_no_bucket_lies_in_two_stretches(given_: list[tuple[int, int]], rounds: Rounds, first_bytes: int) -> None:
    segments = [segment(n, start, start + length) for n, (start, length) in enumerate(given_)]
    stretches = cut(segments, ALL_TIME, rounds, first_bytes)
    assert sorted(s.id for stretch in stretches for s in stretch) == sorted(s.id for s in segments)
    assert all(stretches) or stretches == [()]
    buckets = [
        {
            (ns - rounds.origin_ns) // rounds.bucket_ns
            for one in stretch
            for ns in (one.time.start_ns, one.time.end_ns - 1)
        }
        for stretch in stretches
        if stretch
    ]
    for one, after in pairwise(reversed(buckets) if rounds.descending else buckets):
        assert max(one) < min(after)


def test_segments_that_do_not_overlap_are_stretches_of_their_own() -> None:
    hours = [segment(n, START + n * HOUR, START + (n + 1) * HOUR) for n in range(4)]
    assert cut(hours, ALL_TIME, Rounds(), 1) == [(hour,) for hour in hours]
    assert cut(hours, ALL_TIME, Rounds(descending=True), 1) == [(hour,) for hour in reversed(hours)]
    by_two = cut(hours, ALL_TIME, Rounds(bucket_ns=2 * HOUR, origin_ns=HOUR), 1)
    assert by_two == [(hours[0],), (hours[1], hours[2]), (hours[3],)]


def test_segments_that_touch_may_be_cut_and_those_that_overlap_may_not() -> None:
    one, two, three = segment(1, 0, 10), segment(2, 10, 20), segment(3, 19, 30)
    assert cut([three, one, two], ALL_TIME, Rounds(), 1) == [(one,), (two, three)]
    # Only what lies in the scan's time joins: the rows the two share are not wanted.
    assert cut([one, two, three], TimeRange(0, 19), Rounds(), 1)[0] == (one,)


def test_a_long_segment_holds_all_that_it_overlaps_together() -> None:
    long, hours = segment(99, 0, 1000), [segment(n, n * 10, n * 10 + 10) for n in range(120)]
    assert len(cut([*hours, long], ALL_TIME, Rounds(), 1)[0]) == 101


def test_many_small_segments_are_few_rounds_and_the_first_is_small() -> None:
    tiny = [segment(n, n * HOUR, (n + 1) * HOUR, 10_000) for n in range(5000)]
    large = [segment(n, n * HOUR, (n + 1) * HOUR, 500 << 20) for n in range(5000)]
    for segments in (tiny, large):
        stretches = cut(segments, ALL_TIME, Rounds())
        assert 5 < len(stretches) <= 64
        assert len(stretches[0]) < len(segments) / 100
        assert sum(s.bytes for s in stretches[0]) < max(2 * FIRST_BYTES, 600 << 20)


def test_no_segments_are_one_round_without_any() -> None:
    assert cut([], ALL_TIME, Rounds()) == [()]
