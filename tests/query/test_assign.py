"""Every segment goes to one worker, the same one every time, in units of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.time import TimeRange
from lakerunner.query.gather import UnitSize, assign, rank_workers
from query.sample_lake import HOUR, OWN, START

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
BYTES = st.lists(st.integers(1, 100), max_size=60)


def segments(sizes: Sequence[int]) -> list[Segment]:
    return [
        Segment(
            id=segment_id("s", n),
            organization=OWN,
            collector="default",
            signal="logs",
            time=TimeRange(START + n * HOUR, START + (n + 1) * HOUR),
            rows=1,
            bytes=size,
            sort_version=1,
            columns=(),
        )
        for n, size in enumerate(sizes)
    ]


def owners(given: Sequence[Segment], workers: Sequence[str]) -> dict[UUID, str]:
    return {segment.id: share.worker for share in assign(given, workers, UnitSize()) for segment in share.segments}


@given(BYTES, NAMES, st.integers(1, 150), st.integers(1, 7))
def test_every_segment_is_in_one_unit_of_bounded_size_and_order_is_kept(
    sizes: list[int], workers: list[str], most_bytes: int, most_segments: int
) -> None:
    given_ = segments(sizes)
    order = {segment.id: n for n, segment in enumerate(given_)}
    shares = assign(given_, workers, UnitSize(most_bytes, most_segments))
    assert sorted(order[s.id] for share in shares for s in share.segments) == list(range(len(given_)))
    firsts = [order[share.segments[0].id] for share in shares]
    assert firsts == sorted(firsts)
    for share in shares:
        numbers = [order[segment.id] for segment in share.segments]
        assert numbers == sorted(numbers)
        assert len(numbers) <= most_segments
        assert len(numbers) == 1 or sum(segment.bytes for segment in share.segments) <= most_bytes
    for worker in workers:
        read = [segment.id for share in shares if share.worker == worker for segment in share.segments]
        assert [order[id_] for id_ in read] == sorted(order[id_] for id_ in read)


def test_a_unit_is_as_large_as_it_may_be_and_no_larger() -> None:
    def cut(sizes: list[int], most: UnitSize) -> list[list[int]]:
        return [[segment.bytes for segment in share.segments] for share in assign(segments(sizes), ["a"], most)]

    assert cut([4, 6, 1], UnitSize(10, 100)) == [[4, 6], [1]]
    assert cut([4, 6, 1], UnitSize(11, 100)) == [[4, 6, 1]]
    assert cut([1, 30, 1, 1], UnitSize(10, 100)) == [[1], [30], [1, 1]]
    assert cut([1, 1, 1], UnitSize(10, 2)) == [[1, 1], [1]]
    assert cut([], UnitSize()) == []


def test_ten_million_rows_on_one_worker_are_one_unit() -> None:
    assert len(assign(segments([4_000_000] * 100), ["here"], UnitSize())) == 1


@given(NAMES.filter(lambda names: len(names) > 1), st.data())
def test_a_worker_that_leaves_moves_its_own_share_only(workers: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(workers))
    given_ = segments([1] * 50)
    before, after = owners(given_, workers), owners(given_, [name for name in workers if name != gone])
    assert {id_: name for id_, name in before.items() if name != gone}.items() <= after.items()
    for id_, name in before.items():
        order = rank_workers(id_, workers)
        assert order[0] == name
        assert sorted(order) == sorted(workers)
        assert after[id_] == (order[1] if name == gone else name)


def test_the_shares_are_about_equal() -> None:
    counts = Counter(owners(segments([1] * 3000), ["http://a:1", "http://b:1", "http://c:1"]).values())
    assert len(counts) == 3
    assert all(900 < n < 1100 for n in counts.values())
