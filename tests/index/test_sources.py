from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.index_values import ACME, OTHER, arrival, at_once, outbox_size, source, total
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.sources import Attempts
from lakerunner.model.errors import Corrupt, NotFound
from lakerunner.model.source import Findings, Reject, Rejects, SourceState

SEEN, DONE, FAILED = SourceState.SEEN, SourceState.DONE, SourceState.FAILED
NONE = dict.fromkeys(SourceState, 0)


def test_ten_announcements_ask_once(index: Index) -> None:
    arrivals = [arrival(source(n)) for n in range(20)]
    assert [index.sources.announce(arrivals) for _ in range(10)] == [20] + [0] * 9
    assert outbox_size(index) == 20
    assert index.sources.counts() == NONE | {SEEN: 20}


def test_an_identity_twice_in_one_batch_asks_once_with_its_first_message(index: Index) -> None:
    first, second = arrival(source(1)), arrival(source(1, modified_ns=5))
    assert index.sources.announce([first, second, first]) == 1
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == [(first.topic, first.payload)]


def test_an_object_written_again_is_another_identity(index: Index) -> None:
    assert index.sources.announce([arrival(source(1))]) == 1
    assert index.sources.announce([arrival(source(1, etag="changed"))]) == 1


def test_eight_threads_announcing_the_same_hundred_ask_a_hundred_times(index: Index) -> None:
    arrivals = [arrival(source(n)) for n in range(100)]
    orders = [arrivals if thread % 2 else arrivals[::-1] for thread in range(8)]
    results = at_once(partial(index.sources.announce, batch) for batch in orders)
    assert total(results) == 100
    assert outbox_size(index) == 100


def test_large_batches_in_any_order_do_not_deadlock(index: Index) -> None:
    for round_ in range(3):
        arrivals = [arrival(source(round_ * 10_000 + n)) for n in range(2000)]
        orders = [arrivals, arrivals[::-1], arrivals[1000:] + arrivals[:1000], arrivals[::-1]]
        assert total(at_once(partial(index.sources.announce, batch) for batch in orders)) == 2000
    assert outbox_size(index) == 6000


def test_thousands_in_one_batch(index: Index) -> None:
    assert index.sources.announce([arrival(source(n)) for n in range(5000)]) == 5000
    found = [(source(n).key, source(n).size, source(n).modified_ns) for n in range(10_000)]
    assert index.sources.unknown("lake", found) == found[5000:]


def test_nothing_to_announce(index: Index) -> None:
    assert index.sources.announce([]) == 0
    assert index.sources.unknown("lake", []) == []
    assert index.sources.states([]) == {}


def test_an_unknown_organization_is_not_found_and_leaves_nothing(index: Index) -> None:
    stranger = type(ACME)(uuid4(), "stranger")
    with pytest.raises(NotFound, match="organization"):
        index.sources.announce([arrival(source(1)), arrival(source(2), stranger)])
    assert index.sources.counts()[SEEN] == 0
    assert outbox_size(index) == 0


def test_a_key_that_the_database_cannot_hold_is_corrupt(index: Index) -> None:
    for key in ("otel-raw/a/b/nul\0", "otel-raw/a/b/\udcff"):
        with pytest.raises(Corrupt, match="cannot store this value"):
            index.sources.announce([arrival(source(1, key=key))])


def test_set_aside_takes_the_unknown_and_the_seen_and_leaves_the_done(index: Index) -> None:
    index.sources.announce([arrival(source(1)), arrival(source(2))])
    index.commit(Commit((), (source(2),), ()))
    for n in (1, 2, 3):
        index.sources.set_aside(source(n), f"reason {n}")
    states = index.sources.states([source(n).identity for n in (1, 2, 3, 4)])
    assert states == {source(1).identity: FAILED, source(2).identity: DONE, source(3).identity: FAILED}
    index.sources.set_aside(source(1), "a later reason")
    seen, new = sorted(index.sources.list(FAILED), key=lambda record: record.source)
    assert (seen.source, seen.reason, seen.organization) == (source(1), "reason 1", ACME.id)
    assert (new.source, new.reason, new.organization) == (source(3), "reason 3", None)
    assert seen.ended_at is not None
    assert seen.ended_at >= seen.seen_at


def test_a_reason_may_quote_damaged_input(index: Index) -> None:
    index.sources.set_aside(source(1), "at byte 3: '\0\udcff'" + "x" * 5000, ACME.id, "c", "logs")
    (record,) = index.sources.list(FAILED, organization=ACME.id)
    assert record.reason is not None
    assert record.reason.startswith("at byte 3: '�?'xxx")
    assert len(record.reason) == 2000
    assert (record.collector, record.signal) == ("c", "logs")


def test_touch_makes_a_rewritten_object_known(index: Index) -> None:
    index.sources.announce([arrival(source(1))])
    item = source(1)
    again = (item.key, item.size, 99)
    assert index.sources.unknown("lake", [again]) == [again]
    assert index.sources.unknown("another lake", [(item.key, item.size, item.modified_ns)]) != []
    index.sources.touch(source(1, modified_ns=99))
    assert index.sources.unknown("lake", [again]) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    known=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 2)), max_size=12),
    found=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 2)), max_size=20),
)
def test_unknown_is_what_no_row_matches(
    index: Index, known: list[tuple[str, int, int]], found: list[tuple[str, int, int]]
) -> None:
    bucket = uuid4().hex
    sources = [source(n, bucket=bucket, key=key, size=size, modified_ns=ns) for n, (key, size, ns) in enumerate(known)]
    index.sources.announce([arrival(item) for item in sources])
    assert index.sources.unknown(bucket, found) == [item for item in found if item not in known]


def test_list_is_newest_first_bounded_and_of_one_state(index: Index) -> None:
    index.sources.announce([arrival(source(n)) for n in range(5)])
    index.commit(Commit((), (source(4),), ((source(3), "bad"),)))
    assert [r.source for r in index.sources.list(SEEN)] == [source(2), source(1), source(0)]
    assert [r.source for r in index.sources.list(None, limit=2)] == [source(4), source(3)]
    assert [(r.source, r.state, r.reason) for r in index.sources.list(DONE)] == [(source(4), DONE, None)]
    assert [(r.source, r.state, r.reason) for r in index.sources.list(FAILED)] == [(source(3), FAILED, "bad")]


def test_only_the_failed_are_retried(index: Index) -> None:
    index.sources.announce([arrival(source(n)) for n in range(3)])
    index.commit(Commit((), (source(0),), ((source(1), "bad"),)))
    index.sources.set_aside(source(9), "whose?")
    index.outbox.relay(lambda _: None)
    arrivals = [arrival(source(n)) for n in (0, 1, 1, 2, 9)]
    assert index.sources.retry(arrivals) == 2
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == [(arrival(source(n)).topic, arrival(source(n)).payload) for n in (1, 9)]
    assert index.sources.counts() == NONE | {SEEN: 3, DONE: 1}
    assert index.sources.list(SEEN, organization=ACME.id)[0].source == source(9)
    assert index.sources.retry(arrivals) == 0


def test_retries_at_once_ask_once(index: Index) -> None:
    index.commit(Commit((), (), tuple((source(n), "bad") for n in range(50))))
    arrivals = [arrival(source(n)) for n in range(50)]
    orders = [arrivals, arrivals[::-1], arrivals, arrivals[::-1]]
    assert total(at_once(partial(index.sources.retry, batch) for batch in orders)) == 50
    assert outbox_size(index) == 50


def test_only_the_overdue_are_reminded_of_and_once(index: Index) -> None:
    done, waiting = source(1), source(2)
    index.sources.announce([arrival(done), arrival(waiting)])
    index.commit(Commit((), (done,), ()))
    assert index.sources.overdue(60) == []
    assert [record.source for record in index.sources.overdue(0)] == [waiting]
    assert index.sources.remind([arrival(waiting)], 60) == 0
    index.outbox.relay(lambda _: None)
    assert index.sources.remind([arrival(done), arrival(waiting)], 0) == 1
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == [(arrival(waiting).topic, arrival(waiting).payload)]


def test_sources_of_another_organization_are_out_of_reach(index: Index) -> None:
    index.sources.announce([arrival(source(1))])
    index.sources.set_aside(source(2), "bad", ACME.id)
    assert index.sources.list(None, organization=OTHER.id) == []
    assert index.sources.counts(OTHER.id) == NONE
    assert index.sources.counts(ACME.id) == NONE | {SEEN: 1, FAILED: 1}
    assert index.sources.retry([arrival(source(2), OTHER)]) == 0


def test_attempts_count_by_company_until_they_are_given_back_or_retried(index: Index) -> None:
    index.sources.announce([arrival(source(n)) for n in range(4)])
    ids = [source(n).identity for n in range(4)]
    assert index.sources.attempts(ids) == {}
    index.sources.begin(ids)
    index.sources.begin(ids)
    index.sources.begin(ids[:2])
    expected = [Attempts(1, 2), Attempts(1, 2), Attempts(2, 4), Attempts(2, 4)]
    assert index.sources.attempts(ids) == dict(zip(ids, expected, strict=True))
    index.sources.give_back(ids[1:3])
    index.sources.give_back(ids[1:2])
    expected = [Attempts(1, 2), Attempts(0, 2), Attempts(1, 4), Attempts(2, 4)]
    assert index.sources.attempts(ids) == dict(zip(ids, expected, strict=True))
    index.commit(Commit((), (), ((source(0), "it kills"),)))
    index.sources.begin(ids[:1])  # it has ended: nothing to count
    assert index.sources.attempts(ids[:1]) == {ids[0]: Attempts(1, 2)}
    index.sources.retry([arrival(source(0))])
    assert index.sources.attempts(ids[:1]) == {}


def test_dismissing_ends_what_failed_or_was_partly_read(index: Index) -> None:
    partial = Findings(Rejects(1, 2, (Reject(2, 9, "bad", "x"),)))
    index.sources.announce([arrival(source(n)) for n in (1, 2, 3)])
    index.commit(Commit((), (source(1),), ((source(2), "cut"),), findings=((source(1), partial),)))
    assert index.sources.counts() == NONE | {SEEN: 1, SourceState.PARTIAL: 1, FAILED: 1}
    keys = [source(n).key for n in (1, 2, 3)]
    assert [index.sources.dismiss(key, OTHER.id) for key in keys] == [0, 0, 0]
    assert [index.sources.dismiss(key, ACME.id) for key in keys] == [1, 1, 0]
    assert [index.sources.dismiss(key, ACME.id) for key in keys] == [0, 0, 0]
    assert index.sources.counts() == NONE | {SEEN: 1, DONE: 1, SourceState.DISMISSED: 1}
    (gone,) = index.sources.list(SourceState.DISMISSED)
    assert gone.reason == "dismissed by hand. It had failed: cut"
    assert index.sources.rejects(keys[0], ACME.id) == ("e1", partial.rejects)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("otel-raw/acme/c/logs_1", {1, 10}),
        ("otel-raw/acme/c/logs_1.*", {1}),
        ("*_1?.binpb", {10}),
        ("*", {1, 2, 10}),
        ("otel-raw/acme/c/logs%", set()),
        ("*logs?2*", {2}),
        ("otel_raw", set()),
    ],
)
def test_keys_are_listed_by_prefix_or_pattern(index: Index, key: str, found: set[int]) -> None:
    index.sources.announce([arrival(source(n)) for n in (1, 2, 10)])
    assert {record.source.key for record in index.sources.list(None, key=key)} == {source(n).key for n in found}
