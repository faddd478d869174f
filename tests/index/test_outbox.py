from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import monotonic

import pytest

from index.index_values import arrival, at_once, outbox_size, source, total
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable

# Seconds: what comes soon on a busy machine, and what would come at all without what is tested.
SOON, LONG = 60, 120


def say(index: Index, *payloads: bytes) -> None:
    index.commit(Commit((), (), (), (), tuple(("topic", payload) for payload in payloads)))


def waited(index: Index, seconds: float) -> float:
    start = monotonic()
    index.outbox.wait(seconds)
    return monotonic() - start


def test_the_relay_publishes_in_order_and_forgets(index: Index) -> None:
    say(index, b"1", b"2")
    say(index, b"3")
    said: list[tuple[str, bytes]] = []
    assert index.outbox.relay(said.extend, limit=2) == 2
    assert index.outbox.relay(said.extend, limit=2) == 1
    assert index.outbox.relay(said.extend, limit=2) == 0
    assert said == [("topic", b"1"), ("topic", b"2"), ("topic", b"3")]


def test_what_could_not_be_published_stays(index: Index) -> None:
    say(index, b"1", b"2")
    tried: list[tuple[str, bytes]] = []

    def fails(messages: Sequence[tuple[str, bytes]]) -> None:
        tried.extend(messages)
        raise Unavailable("the bus is away")

    for _ in range(3):
        with pytest.raises(Unavailable, match="the bus is away"):
            index.outbox.relay(fails)
    assert len(tried) == 6
    assert outbox_size(index) == 2
    said: list[tuple[str, bytes]] = []
    assert index.outbox.relay(said.extend) == 2
    assert outbox_size(index) == 0
    assert [payload for _, payload in said] == [b"1", b"2"]


def test_a_relay_that_dies_after_publishing_publishes_again(index: Index) -> None:
    say(index, b"1")

    def published_and_died(_: Sequence[tuple[str, bytes]]) -> None:
        with index.pool.connection() as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
            )

    with pytest.raises(Unavailable):
        index.outbox.relay(published_and_died)
    said: list[tuple[str, bytes]] = []
    index.outbox.relay(said.extend)
    assert said == [("topic", b"1")]


def test_several_relays_share_the_work(index: Index) -> None:
    say(index, *(str(n).encode() for n in range(600)))
    said: Counter[bytes] = Counter()

    def relay() -> int:
        total = 0
        while done := index.outbox.relay(lambda messages: said.update(payload for _, payload in messages), limit=25):
            total += done
        return total

    assert total(at_once([relay] * 4)) == 600
    assert said == Counter({str(n).encode(): 1 for n in range(600)})


def test_what_one_relay_holds_another_passes_by(index: Index) -> None:
    say(index, b"1", b"2", b"3", b"4")
    said: list[bytes] = []

    def publish(messages: Sequence[tuple[str, bytes]]) -> None:
        said.extend(payload for _, payload in messages)

    with ThreadPoolExecutor(1) as other:

        def publish_while_another_relays(messages: Sequence[tuple[str, bytes]]) -> None:
            assert other.submit(index.outbox.relay, publish).result(timeout=SOON) == 2
            publish(messages)

        assert index.outbox.relay(publish_while_another_relays, limit=2) == 2
    assert said == [b"3", b"4", b"1", b"2"]


def test_a_wait_ends_when_something_comes(index: Index) -> None:
    assert waited(index, LONG) < SOON  # the first one only begins to listen
    assert 0.2 <= waited(index, 0.2) < SOON
    speaker = Thread(target=say, args=(index, b"1"))
    speaker.start()
    assert waited(index, LONG) < SOON
    speaker.join()


def test_an_announcement_and_a_retry_end_a_wait_and_a_known_source_does_not(index: Index) -> None:
    index.outbox.wait(0)
    index.sources.announce([arrival(source(1))])
    assert waited(index, LONG) < SOON
    index.sources.announce([arrival(source(1))])
    assert waited(index, 0.3) >= 0.3
    index.sources.set_aside(source(1), "bad")
    index.sources.retry([arrival(source(1))])
    assert waited(index, LONG) < SOON


def test_what_came_between_two_waits_ends_the_next_at_once(index: Index) -> None:
    index.outbox.wait(0)
    say(index, b"1")
    assert waited(index, LONG) < SOON


def test_after_a_lost_connection_the_next_wait_listens_anew(index: Index) -> None:
    index.outbox.wait(0)
    with index.pool.connection() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
    with pytest.raises(Unavailable):
        index.outbox.wait(LONG)
    assert waited(index, LONG) < SOON
    say(index, b"1")
    assert waited(index, LONG) < SOON
