"""What the sweeper asks of the index: pages, cutoffs under locks, rows that go and rows that never do."""

from __future__ import annotations

from threading import Barrier
from uuid import UUID, uuid4

import pytest

from index.index_values import ACME, OTHER, arrival, at_once, count, segment, source
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.sweep import EndedSegment, FailedBox, ListedObject, PastSegment
from lakerunner.model.errors import Conflict, NotFound
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import Segment
from lakerunner.model.source import Findings, Reject, Rejects
from lakerunner.model.time import DAY_NS, MIN_NS, SECOND_NS
from servers.lake import wait_until

LOGS = Cutoff("logs", 0, 100, 100, 100, 100)


def commit(index: Index, *segments: Segment) -> None:
    for one in segments:
        index.commit(Commit((one,), (), ()))


def run(index: Index, statement: str, *values: object) -> None:
    with index.pool.connection() as connection:
        connection.execute(statement.encode(), values)


def pages(index: Index, cutoff: Cutoff, limit: int) -> list[PastSegment]:
    found: list[PastSegment] = []
    while page := index.sweep.past(ACME.id, cutoff, found[-1] if found else None, limit):
        found += page
    return found


def test_the_clock_is_the_servers(index: Index) -> None:
    first = index.sweep.now_ns()
    assert abs(first - count(index, "SELECT extract(epoch FROM now())::bigint") * SECOND_NS) < 60 * SECOND_NS
    assert index.sweep.now_ns() >= first


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_past_pages_by_end_and_names_each_once(index: Index, limit: int) -> None:
    ends = [5, 9, 9, 9, 50, 100]
    commit(index, *(segment(f"past {place}", 0, end) for place, end in enumerate(ends)))
    commit(
        index,
        segment("young", 0, 101),
        segment("other signal", 0, 5, signal="traces"),
        segment("tier", 0, 5, frequency_ms=10_000),
        segment("of another", 0, 5, organization=OTHER.id),
    )
    found = pages(index, LOGS, limit)
    assert [past.end_ns for past in found] == ends
    assert len({past.id for past in found}) == len(ends)
    assert all(past.due for past in found)


def test_past_tells_path_and_bytes_with_side_files(index: Index) -> None:
    made = segment("sides", 0, 5, statistics={"side_bytes": {"text.bin": 20, "series.parquet": 3}})
    commit(index, made)
    (past,) = pages(index, LOGS, 10)
    assert past == PastSegment(made.id, ACME.id, made.path, "logs", 0, 5, 123, True, False)


@pytest.mark.parametrize(
    ("rolled", "end", "born", "due"),
    [
        (True, 100, 999, True),
        (False, 100, 999, False),
        (False, 50, 999, True),
        (False, 70, 999, False),
        (False, 70, 0, True),
        (False, 71, 0, False),
        (True, 101, 0, False),
    ],
)
def test_the_index_decides_as_the_model_does(index: Index, rolled: bool, end: int, born: int, due: bool) -> None:
    cutoff = Cutoff("metrics", 0, 100, 50, 70, 500 * SECOND_NS)
    made = segment("m", 0, end, signal="metrics", rolled=rolled)
    commit(index, made)
    run(index, "UPDATE lrdb.segments SET created_at = to_timestamp(%s)", born)
    assert cutoff.is_due(end, born * SECOND_NS, rolled=rolled) == due
    assert [past.due for past in pages(index, cutoff, 10)] == ([due] if end <= 100 else [])
    assert index.sweep.expire(ACME.id, cutoff, [made.id], SECOND_NS) == ({made.id} if due else set())
    assert index.sweep.expired_before(ACME.id, made.collector, 0) == (end if due else MIN_NS)


def test_up_to_when_metrics_have_expired_is_known_for_ever(index: Index) -> None:
    cutoff = Cutoff("metrics", 10_000, 100, 0, 0, 0)
    made = [segment(f"m{end}", 0, end, signal="metrics", frequency_ms=10_000, rolled=True) for end in (20, 40, 30)]
    commit(index, *made)
    whose = (ACME.id, made[0].collector, 10_000)
    for some, before in ((made[:1], 20), (made[1:], 40)):
        index.sweep.expire(ACME.id, cutoff, [one.id for one in some], SECOND_NS)
        assert index.sweep.expired_before(*whose) == before
    assert index.sweep.forget([one.id for one in made]) == 3
    assert index.sweep.expired_before(*whose) == 40
    assert index.sweep.expired_before(ACME.id, made[0].collector, 0) == MIN_NS
    assert index.sweep.expired_before(OTHER.id, *whose[1:]) == MIN_NS


def test_expire_hides_from_queries_and_keeps_the_row(index: Index) -> None:
    old, young = segment("old", 0, 100), segment("young", 0, 200)
    foreign = segment("foreign", 0, 5, organization=OTHER.id)
    commit(index, old, young, foreign)
    assert index.sweep.expire(ACME.id, LOGS, [old.id, young.id, foreign.id, uuid4()], 7 * SECOND_NS) == {old.id}
    assert index.sweep.expire(ACME.id, LOGS, [old.id], 9 * SECOND_NS) == set()
    picked = index.segments.pick(ACME.id, "logs", segment("x", 0, 1000).time)
    assert [one.id for one in picked.segments] == [young.id]
    (ended,) = index.sweep.ended(7 * SECOND_NS, None, 10)
    assert (ended.id, ended.path, ended.state, ended.ended_ns) == (old.id, old.path, "expired", 7 * SECOND_NS)


def test_expire_leaves_what_a_commit_holds(index: Index) -> None:
    held, free = segment("held", 0, 5), segment("free", 0, 5)
    commit(index, held, free)
    with index.pool.connection() as connection:
        connection.execute("SELECT FROM lrdb.segments WHERE id = %s FOR UPDATE", (held.id,))
        assert index.sweep.expire(ACME.id, LOGS, [held.id, free.id], SECOND_NS) == {free.id}


def test_an_expired_segment_is_replaced_and_rolled_no_more(index: Index) -> None:
    old = segment("old", 0, 5)
    commit(index, old)
    index.sweep.expire(ACME.id, LOGS, [old.id], SECOND_NS)
    with pytest.raises(Conflict):
        index.commit(Commit((segment("merged", 0, 5),), (), (), replaced=(old.id,)))


def ended(index: Index, before_ns: int, limit: int) -> list[EndedSegment]:
    found: list[EndedSegment] = []
    while page := index.sweep.ended(before_ns, found[-1] if found else None, limit):
        found += page
    return found


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_ended_pages_by_time_and_forget_spares_the_living(index: Index, limit: int) -> None:
    gone = [segment(f"gone {place}", 0, 5) for place in range(5)]
    live = segment("live", 0, 5)
    commit(index, *gone, live)
    run(
        index,
        "UPDATE lrdb.segments SET state = 'replaced', replaced_at = to_timestamp(100) WHERE id = ANY(%s)",
        [one.id for one in gone],
    )
    run(index, "UPDATE lrdb.segments SET replaced_at = to_timestamp(101) WHERE id = %s", gone[0].id)
    assert {one.id for one in ended(index, 100 * SECOND_NS, limit)} == {one.id for one in gone[1:]}
    found = ended(index, 101 * SECOND_NS, limit)
    assert [one.id for one in found][-1] == gone[0].id
    assert len(found) == 5
    assert index.sweep.forget([*(one.id for one in gone), live.id]) == 5
    assert index.sweep.forget([one.id for one in gone]) == 0
    assert index.sweep.known([live.id, gone[0].id]) == {live.id}


def test_live_tells_what_is_rolled(index: Index) -> None:
    one, two = segment("one", signal="metrics", rolled=True), segment("two", signal="metrics")
    commit(index, one, two)
    assert index.sweep.live([one.id, two.id, uuid4()]) == {one.id: True, two.id: False}


def test_done_sources_are_done_just_so_and_long_ago(index: Index) -> None:
    done, failed, seen, changed = (source(number) for number in range(4))
    index.commit(Commit((), (done,), ((failed, "broken"),)))
    index.commit(Commit((), (changed,), ()))
    index.sources.set_aside(source(3, etag="newer", size=99), "broken")
    run(index, "UPDATE lrdb.source_objects SET ended_at = to_timestamp(100) WHERE ended_at IS NOT NULL")
    listed = [ListedObject(one.key, one.etag, one.size, one.modified_ns) for one in (done, failed, seen, changed)]
    assert index.sweep.done_sources("lake", listed, 100 * SECOND_NS) == [listed[0]]
    assert index.sweep.done_sources("lake", listed, 99 * SECOND_NS) == []
    assert index.sweep.done_sources("another", listed, 100 * SECOND_NS) == []
    local = ListedObject(done.key, "", done.size, done.modified_ns)
    assert index.sweep.done_sources("lake", [local], 100 * SECOND_NS) == [local]
    # One that is done but for some lines stays until it is dismissed, one of which an older version failed goes.
    part, old, new = source(5), source(6), source(6, etag="newer", modified_ns=5_000)
    bad = Findings(Rejects(1, 2, (Reject(1, 0, "bad", "x"),)))
    index.sources.announce([arrival(one) for one in (part, old, new)])
    index.commit(Commit((), (part, new), ((old, "broken"),), findings=((part, bad),)))
    run(index, "UPDATE lrdb.source_objects SET ended_at = to_timestamp(100) WHERE ended_at IS NOT NULL")
    listed = [ListedObject(one.key, one.etag, one.size, one.modified_ns) for one in (part, new)]
    assert index.sweep.done_sources("lake", listed, 100 * SECOND_NS) == listed[1:]
    index.sources.dismiss(part.key, ACME.id)
    assert index.sweep.done_sources("lake", listed, 100 * SECOND_NS) == listed
    for other in (
        ListedObject(done.key, "another etag", done.size, done.modified_ns),
        ListedObject(done.key, done.etag, done.size + 1, done.modified_ns),
        ListedObject(done.key, "", done.size, done.modified_ns + 1),
    ):
        assert index.sweep.done_sources("lake", [other], 100 * SECOND_NS) == []


def test_pushes_are_forgotten_with_their_requests(index: Index) -> None:
    for place in range(5):
        index.pushes.claim(ACME.id, "logs", f"key {place}", [bytes([place]), bytes([place, 1])])
    run(index, "UPDATE lrdb.push_objects SET pushed_at = to_timestamp(100) WHERE key <> 'key 4'")
    assert index.sweep.old_pushes(100 * SECOND_NS) == (0, None)
    assert index.sweep.old_pushes(101 * SECOND_NS) == (4, 100 * SECOND_NS)
    assert index.sweep.forget_pushes(101 * SECOND_NS, 3) == 3
    assert index.sweep.forget_pushes(101 * SECOND_NS, 3) == 1
    assert index.sweep.forget_pushes(101 * SECOND_NS, 3) == 0
    assert count(index, "SELECT count(*) FROM lrdb.pushes") == 2


def test_failed_work_pages_and_goes(index: Index) -> None:
    for place in range(3):
        run(
            index,
            "INSERT INTO lrdb.failed_work VALUES (%s, %s, %s, %s, 1, 'r', 'aside', to_timestamp(9), now())",
            f"topic {place % 2}",
            bytes([place]),
            b"box",
            ACME.id,
        )
    found: list[FailedBox] = []
    while page := index.sweep.failed_work(found[-1] if found else None, 2):
        found += page
    assert [(box.topic, box.digest) for box in found] == [("topic 0", b"\0"), ("topic 0", b"\2"), ("topic 1", b"\1")]
    assert found[0] == FailedBox("topic 0", b"\0", b"box", ACME.id, 9 * SECOND_NS)
    assert index.sweep.forget_work(found[:2]) == 2
    assert index.sweep.failed_work(None, 9) == found[2:]


def test_vacuum_runs_outside_a_transaction(index: Index) -> None:
    index.sweep.vacuum(["segments", "push_objects"])
    vacuumed = "SELECT count(*) FROM pg_stat_user_tables WHERE last_vacuum IS NOT NULL AND last_analyze IS NOT NULL"
    assert count(index, vacuumed) == 2


def test_one_at_a_time_and_the_other_learns_who(index: Index) -> None:
    assert index.sweep.sweeping() == ""
    with index.sweep.alone("on host-a pid 7") as first:
        assert first is not None
        assert first.held()
        assert index.sweep.sweeping().startswith("lakerunner sweeper on host-a pid 7")
        with index.sweep.alone("on host-b pid 8") as second:
            assert second is None
        assert first.held()
    wait_until(lambda: index.sweep.sweeping() == "", "the server has seen the first one go", 60)
    with index.sweep.alone("again") as third:
        assert third is not None


def test_of_many_at_once_one_has_it(index: Index) -> None:
    done = Barrier(6)

    def take() -> bool:
        with index.sweep.alone("x") as lock:
            done.wait(30)
            return lock is not None

    assert sorted(map(str, at_once([take] * 6))) == ["False"] * 5 + ["True"]


def test_a_broken_connection_is_no_longer_held(index: Index) -> None:
    with index.sweep.alone("x") as lock:
        assert lock is not None
        pid = lock.connection.info.backend_pid
        run(index, "SELECT pg_terminate_backend(%s, 60000)", pid)
        assert not lock.held()
        with index.sweep.alone("y") as other:
            assert other is not None
            assert not lock.held()


def test_retention_rows_are_of_one_organization(index: Index) -> None:
    rows = {("logs", 0): DAY_NS, ("metrics", 60_000): None}
    index.retention.set(ACME.id, rows)
    index.retention.set(OTHER.id, {("logs", 0): 2 * DAY_NS})
    index.retention.set(ACME.id, {("logs", 0): 3 * DAY_NS})
    assert index.retention.of(ACME.id) == {("logs", 0): 3 * DAY_NS, ("metrics", 60_000): None}
    assert index.retention.all() == {
        ACME.id: {("logs", 0): 3 * DAY_NS, ("metrics", 60_000): None},
        OTHER.id: {("logs", 0): 2 * DAY_NS},
    }
    assert index.retention.clear(ACME.id, [("logs", 0), ("traces", 0)]) == 1
    assert index.retention.of(ACME.id) == {("metrics", 60_000): None}
    with pytest.raises(NotFound):
        index.retention.set(UUID(int=1), rows)


def test_times_before_1970_are_past_too(index: Index) -> None:
    commit(index, segment("old", -5, -1))
    assert len(pages(index, LOGS, 10)) == 1
