from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.index_values import ACME, OTHER, segment
from lakerunner.index.commit import Commit
from lakerunner.index.database import load_queries
from lakerunner.index.index import Index
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment, SegmentPick, segment_id
from lakerunner.model.time import ALL_TIME, MAX_NS, MIN_NS, TimeRange


def commit(index: Index, *segments: Segment) -> None:
    index.commit(Commit(segments, (), ()))


def test_every_field_comes_back(index: Index) -> None:
    made = segment(
        "all",
        -5,
        2**62,
        signal="metrics",
        frequency_ms=60_000,
        level=3,
        sort_version=2,
        rows=2**40,
        bytes=2**41,
        statistics={"services": ["a", "\0"], "max": 1.5, "nested": {"n": None}},
        fingerprints=(-(2**63), 0, 2**63 - 1),
    )
    commit(index, made)
    picked = replace(made, fingerprints=())  # which have done their work
    assert index.segments.pick(ACME.id, "metrics", ALL_TIME, frequency_ms=60_000) == SegmentPick((picked,), 1)
    assert index.segments.get(ACME.id, [made.id]) == [made]
    assert index.segments.pick(ACME.id, "metrics", ALL_TIME) == SegmentPick((), 0)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 100, False),  # ends where the segment starts
        (0, 101, True),
        (199, 300, True),
        (200, 300, False),  # starts where the segment ends
        (150, 151, True),
        (50, 250, True),
        (MIN_NS, MAX_NS, True),
    ],
)
def test_ranges_are_half_open(index: Index, start: int, end: int, found: bool) -> None:
    commit(index, segment("one", 100, 200))
    assert (index.segments.pick(ACME.id, "logs", TimeRange(start, end)).considered == 1) is found


def test_the_ends_of_time(index: Index) -> None:
    first, last = segment("first", MIN_NS, MIN_NS + 1), segment("last", MAX_NS - 1, MAX_NS)
    commit(index, first, last, segment("whole", MIN_NS, MAX_NS))
    assert index.segments.pick(ACME.id, "logs", ALL_TIME).considered == 3
    picked = index.segments.pick(ACME.id, "logs", TimeRange(MAX_NS - 1, MAX_NS))
    assert [s.id for s in picked.segments] == [segment_id("whole"), last.id]


_RANGES = st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda pair: TimeRange(pair[0], pair[0] + pair[1]))
_ROWS = st.tuples(_RANGES, st.sampled_from(["logs", "metrics"]), st.sampled_from([0, 10_000]), st.booleans())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_ROWS, max_size=15), asked=_RANGES)
def test_pick_is_what_a_loop_over_all_segments_picks(
    index: Index, rows: list[tuple[TimeRange, str, int, bool]], asked: TimeRange
) -> None:
    organization = Organization(uuid4(), f"org-{uuid4().hex}")
    index.organizations.create(organization)
    made = [
        segment(
            f"{organization.id} {n}",
            time=time,
            signal=signal,
            frequency_ms=frequency,
            organization=organization.id,
        )
        for n, (time, signal, frequency, _) in enumerate(rows)
    ]
    commit(index, *made)
    gone = [s for s, row in zip(made, rows, strict=True) if row[3]]
    if gone:
        elsewhere = segment(f"{organization.id} new", 1000, 1001, organization=organization.id)
        index.commit(Commit((elsewhere,), (), (), tuple(s.id for s in gone)))
    live = [s for s in made if s not in gone]
    for signal in ("logs", "metrics"):
        for frequency in (0, 10_000):
            expected = [
                s for s in live if s.signal == signal and s.frequency_ms == frequency and s.time.overlaps(asked)
            ]
            expected.sort(key=lambda s: (s.time.start_ns, s.id))
            picked = index.segments.pick(organization.id, signal, asked, frequency_ms=frequency)
            assert picked == SegmentPick(tuple(expected), len(expected))


def test_segments_of_another_organization_are_out_of_reach(index: Index) -> None:
    ours, theirs = segment("ours"), segment("theirs", organization=OTHER.id, rows=3)
    commit(index, ours)
    commit(index, theirs)
    assert index.segments.pick(ACME.id, "logs", ALL_TIME) == SegmentPick((ours,), 1)
    assert index.segments.pick(OTHER.id, "logs", ALL_TIME) == SegmentPick((theirs,), 1)
    assert index.segments.get(OTHER.id, [ours.id, theirs.id]) == [theirs]
    assert index.segments.totals(ACME.id) == (1, 7, 100)
    assert index.segments.totals(OTHER.id) == (1, 3, 100)
    assert index.segments.totals(uuid4()) == (0, 0, 0)


def test_get_takes_ids_that_are_not_there(index: Index) -> None:
    late, early = segment("late", 5, 6), segment("early", 1, 2)
    commit(index, late, early)
    assert index.segments.get(ACME.id, [late.id, uuid4(), early.id, late.id]) == [early, late]
    assert index.segments.get(ACME.id, []) == []


def test_the_planner_uses_an_index_wherever_in_time_the_question_lies(index: Index) -> None:
    commit(index, segment("seed"))
    with index.pool.connection() as connection:
        connection.execute(
            "INSERT INTO lrdb.segments (id, organization, collector, signal, start_ns, end_ns, frequency_ms, level,"
            " sort_version, rows, bytes, column_set, statistics, fingerprints)"
            " SELECT gen_random_uuid(), organization, collector, signal, n * 10, n * 10 + 10, 0, 0, 1, 1, 1,"
            " column_set, statistics, array(SELECT generate_series(1, 30))"
            " FROM lrdb.segments, generate_series(1, 20000) AS n"
        )
        connection.execute("ANALYZE lrdb.segments")
    for start in (0, 100_000, 199_990):
        values = {"organization": ACME.id, "signal": "logs", "frequency_ms": 0, "start_ns": start, "end_ns": start + 15}
        with index.pool.connection() as connection:
            plan = connection.execute(b"EXPLAIN " + load_queries()["segments.pick"], values).fetchall()
        assert "Seq Scan" not in str(plan)
        assert 1 <= index.segments.pick(ACME.id, "logs", TimeRange(start, start + 15)).considered <= 3


def test_segments_know_the_order_in_which_they_came(index: Index) -> None:
    for name in ("c", "a", "b"):
        commit(index, segment(name, 0, 10))
    found = {one.id: one.ingested for one in index.segments.pick(ACME.id, "logs", ALL_TIME).segments}
    places = [found[segment(name, 0, 10).id] for name in ("c", "a", "b")]
    assert places == sorted(places)
    assert 0 < places[0] < places[1] < places[2]


def test_a_segment_may_be_given_the_place_of_those_it_replaces(index: Index) -> None:
    commit(index, segment("first", 0, 10))
    (first,) = index.segments.pick(ACME.id, "logs", ALL_TIME).segments
    commit(index, segment("second", 0, 10))
    merged = replace(segment("merged", 0, 10), level=1, ingested=first.ingested)
    index.commit(Commit((merged,), (), (), replaced=(first.id,)))
    found = {one.level: one.ingested for one in index.segments.pick(ACME.id, "logs", ALL_TIME).segments}
    assert found == {1: first.ingested, 0: first.ingested + 1}
