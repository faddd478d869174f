from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Event, Thread
from uuid import uuid4

import pytest

from index.index_values import ACME, OTHER, arrival, at_once, count, outbox_size, segment, source
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict, Corrupt, NotFound, Unavailable
from lakerunner.model.segment import Column, segment_id
from lakerunner.model.source import Findings, Note, Reject, Rejects, SourceObject, SourceState
from lakerunner.model.time import ALL_TIME

SEEN, DONE, FAILED = SourceState.SEEN, SourceState.DONE, SourceState.FAILED


def announced(index: Index, *numbers: int) -> None:
    """Announced, and their messages already relayed."""
    index.sources.announce([arrival(source(n)) for n in numbers])
    while index.outbox.relay(lambda _: None):
        pass


def nothing_changed(index: Index, *numbers: int) -> bool:
    states = index.sources.states([source(n).identity for n in numbers])
    tables = [count(index, f"SELECT count(*) FROM lrdb.{table}") for table in ("segments", "column_sets", "outbox")]
    return set(states.values()) == {SEEN} and tables == [0, 0, 0]


def test_a_commit_does_all_of_it(index: Index) -> None:
    announced(index, 1, 2, 3)
    made = segment("made", statistics={"services": ["shop"], "big": 2**60}, fingerprints=(-5, 7))
    messages = (("boxer.logs.compact", b"one"), ("boxer.logs.compact", b"two"))
    index.commit(Commit((made,), (source(1), source(2)), ((source(3), "truncated gzip"),), (), messages))
    assert index.segments.get(ACME.id, [made.id]) == [made]
    assert index.segments.pick(ACME.id, "logs", ALL_TIME).segments == (replace(made, fingerprints=()),)
    assert index.sources.counts() == dict.fromkeys(SourceState, 0) | {DONE: 2, FAILED: 1}
    assert index.sources.list(FAILED)[0].reason == "truncated gzip"
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == list(messages)


def test_a_segment_comes_with_its_rule_set_and_parts_or_not_at_all(index: Index) -> None:
    announced(index, 1)
    covered = segment("covered", rule_set=(3, 12, 2**40))
    parts = segment("parts", signal="metrics", collector="_errors.1")
    work = Commit((covered, segment("bare")), (source(1),), (), parts=(parts,))
    with pytest.raises(Conflict, match="already in the index"):
        index.commit(replace(work, segments=(*work.segments, parts)))
    assert nothing_changed(index, 1)
    assert count(index, "SELECT count(*) FROM lrdb.rule_sets") == 0
    index.commit(work)
    found = {one.id: one.rule_set for one in index.segments.pick(ACME.id, "logs", ALL_TIME).segments}
    assert found == {segment_id("covered"): (3, 12, 2**40), segment_id("bare"): ()}
    (live,) = index.tending.live(ACME.id, [covered.id])
    assert live.rule_set == (3, 12, 2**40)
    assert index.segments.pick(ACME.id, "metrics", ALL_TIME).segments == (parts,)


def test_parts_that_a_merge_takes_back_replace_nothing(index: Index) -> None:
    index.commit(Commit((segment("one", rule_set=(3,)), segment("two", rule_set=(3,))), (), ()))
    taken = segment("taken", signal="metrics", collector="_errors.1")
    merged = segment("merged", level=1, rule_set=(3,))
    old = (segment_id("one"), segment_id("two"))
    index.commit(Commit((merged,), (), (), old, parts=(taken,)))
    with index.pool.connection() as connection:
        rows = connection.execute(b"SELECT id, inputs FROM lrdb.segments WHERE state = 'live'").fetchall()
    assert dict(rows) == {merged.id: sorted(old), taken.id: None}


def test_parts_belong_to_new_segments_of_the_same_organization() -> None:
    parts = segment("parts", signal="metrics", collector="_errors.1")
    with pytest.raises(ValueError, match="parts come with"):
        Commit((), (), (), parts=(parts,))
    with pytest.raises(ValueError, match="one organization"):
        Commit((segment("made"),), (), (), parts=(replace(parts, organization=OTHER.id),))


def test_the_same_commit_again_is_a_conflict_and_changes_nothing(index: Index) -> None:
    announced(index, 1)
    work = Commit((segment("made"),), (source(1),), (), (), (("t", b"x"),))
    index.commit(work)
    with pytest.raises(Conflict, match=r"logs_1\.binpb is done already"):
        index.commit(work)
    assert index.segments.totals(ACME.id) == (1, 7, 100)
    assert outbox_size(index) == 1


def test_a_failed_source_is_not_committed(index: Index) -> None:
    index.sources.set_aside(source(1), "bad")
    with pytest.raises(Conflict, match="is failed already"):
        index.commit(Commit((segment("made"),), (source(1),), ()))


def test_a_segment_id_that_exists_is_a_conflict(index: Index) -> None:
    index.commit(Commit((segment("made"),), (), ()))
    announced(index, 1)
    with pytest.raises(Conflict, match="already in the index"):
        index.commit(Commit((segment("new"), segment("made")), (source(1),), ()))
    assert index.sources.counts()[SEEN] == 1
    assert [s.id for s in index.segments.pick(ACME.id, "logs", ALL_TIME).segments] == [segment_id("made")]


def test_a_value_that_fails_in_the_last_step_leaves_nothing(index: Index) -> None:
    announced(index, 1, 2)
    with pytest.raises(Corrupt):
        index.commit(Commit((segment("made"),), (source(1),), ((source(2), "bad"),), (), (("nul\0", b"x"),)))
    assert nothing_changed(index, 1, 2)


def test_a_session_that_dies_in_the_last_step_leaves_nothing(index: Index) -> None:
    announced(index, 1, 2)
    with index.pool.connection() as connection:
        connection.execute(
            "CREATE FUNCTION lrdb.die() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER die BEFORE INSERT ON lrdb.outbox FOR EACH ROW EXECUTE FUNCTION lrdb.die()")
    with pytest.raises(Unavailable):
        index.commit(Commit((segment("made"),), (source(1),), ((source(2), "bad"),), (), (("t", b"x"),)))
    assert nothing_changed(index, 1, 2)
    with index.pool.connection() as connection:
        connection.execute("DROP FUNCTION lrdb.die CASCADE")
    index.commit(Commit((segment("made"),), (source(1),), ((source(2), "bad"),), (), (("t", b"x"),)))
    assert index.segments.totals(ACME.id) == (1, 7, 100)


def test_an_unknown_organization_leaves_nothing(index: Index) -> None:
    announced(index, 1)
    with pytest.raises(NotFound, match="organization"):
        index.commit(Commit((segment("made", organization=uuid4()),), (source(1),), ()))
    assert nothing_changed(index, 1)


def test_sources_that_were_never_announced_are_recorded(index: Index) -> None:
    announced(index, 1)
    index.commit(Commit((segment("made"),), (source(1), source(2)), ((source(3), "bad"),)))
    records = {record.source: record for record in index.sources.list(None)}
    assert records[source(2)].state == DONE
    assert records[source(2)].organization == ACME.id
    assert records[source(3)].reason == "bad"
    assert index.sources.announce([arrival(source(n)) for n in (1, 2, 3)]) == 0


def test_of_two_workers_with_overlapping_boxes_exactly_one_wins(index: Index) -> None:
    for round_ in range(15):
        numbers = [round_ * 100 + n for n in range(8)]
        announced(index, *numbers)
        left, right = numbers[:6], numbers[2:][::-1]
        works = [
            Commit((segment(f"{side} {round_}"),), tuple(source(n) for n in box), (), (), (("t", side.encode()),))
            for side, box in (("left", left), ("right", right))
        ]
        results = at_once(partial(index.commit, work) for work in works)
        assert sorted(str(type(result).__name__) for result in results) == ["Conflict", "NoneType"]
        side, winner = ("left", left) if results[0] is None else ("right", right)
        states = index.sources.states([source(n).identity for n in numbers])
        assert {n: states[source(n).identity] for n in numbers} == {n: DONE if n in winner else SEEN for n in numbers}
        said: list[tuple[str, bytes]] = []
        index.outbox.relay(said.extend)
        assert said == [("t", side.encode())]
    assert index.segments.totals(ACME.id)[0] == 15


def test_workers_that_meet_the_same_unannounced_sources_do_not_deadlock(index: Index) -> None:
    for round_ in range(10):
        numbers = [round_ * 100 + n for n in range(20)]
        works = [
            Commit((segment(f"{worker} {round_}"),), tuple(source(n) for n in order), ())
            for worker, order in enumerate((numbers, numbers[::-1], numbers[10:] + numbers[:10]))
        ]
        results = at_once(partial(index.commit, work) for work in works)
        assert sorted(type(result).__name__ for result in results) == ["Conflict", "Conflict", "NoneType"]
    assert index.sources.counts()[DONE] == 200


def test_eight_workers_with_the_same_box_commit_it_once(index: Index) -> None:
    announced(index, *range(10))
    work = Commit((segment("made"),), tuple(source(n) for n in range(10)), (), (), (("t", b"x"),))
    results = at_once([lambda: index.commit(work)] * 8)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert (index.segments.totals(ACME.id), outbox_size(index)) == ((1, 7, 100), 1)


def test_replaced_segments_go_out_as_the_new_ones_come_in(index: Index) -> None:
    old = [segment("a", 0, 10), segment("b", 10, 20)]
    index.commit(Commit(tuple(old), (), ()))
    new = segment("ab", 0, 20, rows=14, level=1)
    index.commit(Commit((new,), (), (), tuple(s.id for s in old)))
    assert index.segments.pick(ACME.id, "logs", ALL_TIME).segments == (new,)
    assert index.segments.get(ACME.id, [s.id for s in old]) == old
    assert index.segments.totals(ACME.id) == (1, 14, 100)


def test_what_is_not_live_any_more_is_not_replaced(index: Index) -> None:
    index.commit(Commit((segment("a"), segment("b")), (), ()))
    index.commit(Commit((segment("a2"),), (), (), (segment_id("a"),)))
    for ids in ((segment_id("a"), segment_id("b")), (uuid4(),)):
        with pytest.raises(Conflict, match="no longer live"):
            index.commit(Commit((segment("late"),), (), (), ids))
    assert {s.id for s in index.segments.pick(ACME.id, "logs", ALL_TIME).segments} == {
        segment_id("a2"),
        segment_id("b"),
    }


def test_another_organization_cannot_replace_segments(index: Index) -> None:
    index.commit(Commit((segment("a"),), (), ()))
    with pytest.raises(Conflict):
        index.commit(Commit((segment("theirs", organization=OTHER.id),), (), (), (segment_id("a"),)))
    assert index.segments.totals(ACME.id) == (1, 7, 100)
    assert index.segments.totals(OTHER.id) == (0, 0, 0)


def test_of_two_compactions_of_overlapping_segments_one_wins(index: Index) -> None:
    for round_ in range(10):
        old = [segment(f"{round_} {n}") for n in range(6)]
        index.commit(Commit(tuple(old), (), ()))
        ids = [s.id for s in old]
        works = [
            Commit((segment(f"{round_} new {n}", level=1),), (), (), tuple(box))
            for n, box in enumerate((ids[:4], ids[2:][::-1]))
        ]
        results = at_once(partial(index.commit, work) for work in works)
        assert sorted(type(result).__name__ for result in results) == ["Conflict", "NoneType"]
    assert index.segments.totals(ACME.id)[0] == 10 * (2 + 1)


def test_a_reader_sees_the_old_or_the_new_segments_never_both_or_neither(index: Index) -> None:
    """Sixty compactions, two into two, each keeping 14 rows, while readers count."""
    index.commit(Commit((segment("0 a"), segment("0 b")), (), ()))
    stop, seen = Event(), set()

    def read() -> None:
        while not stop.is_set():
            seen.add(sum(s.rows for s in index.segments.pick(ACME.id, "logs", ALL_TIME).segments))

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for n in range(60):
            old = (segment_id(f"{n} a"), segment_id(f"{n} b"))
            index.commit(Commit((segment(f"{n + 1} a", rows=6), segment(f"{n + 1} b", rows=8)), (), (), old))
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert seen == {14}


def test_column_sets_are_shared_and_hold_any_name(index: Index) -> None:
    odd = (Column("attributes.\0nul", "string"), Column("attributes.\ud800", "json"), Column("attributes.ü", "int64"))
    index.commit(Commit((segment("a", columns=odd), segment("b", columns=odd), segment("c")), (), ()))
    got = {s.id: s.columns for s in index.segments.pick(ACME.id, "logs", ALL_TIME).segments}
    assert got == {segment_id("a"): odd, segment_id("b"): odd, segment_id("c"): segment("c").columns}
    assert count(index, "SELECT count(*) FROM lrdb.column_sets") == 2


def test_a_commit_refuses_nonsense_at_birth() -> None:
    with pytest.raises(ValueError, match="one organization"):
        Commit((segment("a"), segment("b", organization=OTHER.id)), (), ())
    with pytest.raises(ValueError, match="not by nothing"):
        Commit((), (), (), (segment_id("a"),))
    with pytest.raises(ValueError, match="names a source once"):
        Commit((), (source(1),), ((source(1), "bad"),))


def version(number: int, etag: str, modified_ns: int) -> SourceObject:
    return source(number, etag=etag, modified_ns=modified_ns)


REJECTS = Rejects(102, 1_000, tuple(Reject(n + 5, 70 * n, "not JSON: \0", "{\ufffd\0") for n in range(100)))
NOTE = Note("no service", 7, 5, "no column is the service")


def test_what_was_found_goes_with_its_source(index: Index) -> None:
    announced(index, 1, 2, 3)
    found = ((source(1), Findings(REJECTS, (NOTE,), 898)), (source(2), Findings(rows=0)))
    work = Commit((), (source(1), source(2), source(3)), (), findings=found)
    index.commit(work)
    three, two, one = index.sources.list(None)
    assert (one.state, one.rows, one.rejected, one.notes) == (SourceState.PARTIAL, 898, 102, (NOTE,))
    assert (two.state, two.rows, two.rejected, two.notes) == (DONE, 0, 0, ())
    assert (three.state, three.rows) == (DONE, None)
    assert index.sources.rejects(source(1).key, ACME.id) == ("e1", REJECTS)
    assert index.sources.rejects(source(2).key, ACME.id) is None
    assert index.sources.rejects(source(1).key, OTHER.id) is None
    with pytest.raises(Conflict, match=r"logs_1\.binpb is partial already"):
        index.commit(work)
    assert index.sources.rejects(source(1).key, ACME.id) == ("e1", REJECTS)


@pytest.mark.parametrize("failed_first", [True, False])
def test_a_failed_version_is_dismissed_when_a_newer_one_is_done(index: Index, failed_first: bool) -> None:
    old, new, newest = version(1, "a", 5), version(1, "b", 6), version(1, "c", 7)
    index.sources.announce([arrival(one) for one in (old, new, newest)])
    steps = [Commit((), (), ((old, "cut short"), (newest, "bad"))), Commit((), (new,), ())]
    for commit in steps if failed_first else steps[::-1]:
        index.commit(commit)
    reasons = {record.source.etag: (record.state, record.reason) for record in index.sources.list(None)}
    assert reasons == {
        "a": (
            SourceState.DISMISSED,
            "a newer version of the object is done. This one had failed: cut short",
        ),
        "b": (DONE, None),
        "c": (FAILED, "bad"),
    }


def test_two_versions_that_end_at_once_do_not_miss_each_other(index: Index) -> None:
    for number in range(20):
        old, new = version(number, "a", 5), version(number, "b", 6)
        index.sources.announce([arrival(old), arrival(new)])
        works = [Commit((), (), ((old, "bad"),)), Commit((), (new,), ())]
        assert at_once([partial(index.commit, one) for one in works]) == [None, None]
    assert index.sources.counts() == dict.fromkeys(SourceState, 0) | {DONE: 20, SourceState.DISMISSED: 20}


def test_an_object_of_another_signal_is_asked_for_once_more_as_of_that_one(index: Index) -> None:
    announced(index, 1)
    index.sources.begin([source(1).identity])
    moved = replace(arrival(source(1)), signal="metrics", topic="objstore.ingest.metrics", payload=b"again")
    for _ in range(3):  # of as many workers that had the box
        index.commit(Commit((), (), (), rerouted=(moved,)))
    (record,) = index.sources.list(SEEN)
    assert index.sources.settled([source(1).identity, source(2).identity], "logs") == {source(1).identity}
    assert index.sources.settled([source(1).identity], "metrics") == set()
    assert (record.signal, index.sources.attempts([source(1).identity])) == ("metrics", {})
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == [("objstore.ingest.metrics", b"again")]
    index.commit(Commit((), (source(1),), ()))
    with pytest.raises(Conflict, match="is done already"):
        index.commit(Commit((), (), (), rerouted=(moved,)))
    assert outbox_size(index) == 0
