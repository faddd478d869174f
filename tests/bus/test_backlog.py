"""What waits and what is held, by topic and group, without taking any of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from lakerunner.bus.backlog import READERS, Backlog, backlog
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.postgres import PostgresBus
from lakerunner.bus.topics import arrivals, compact_boxes
from lakerunner.model.errors import Unavailable
from servers.kafka import KafkaBroker
from suites.bus import take_until

Pool = ConnectionPool[psycopg.Connection[TupleRow]]


@pytest.fixture
def pool(postgres_url: str) -> Iterator[Pool]:
    with ConnectionPool(postgres_url, min_size=1, max_size=4) as made:
        with made.connection() as connection:
            for table in ("bus_messages", "bus_cursors", "bus_claims"):
                connection.execute(f"DELETE FROM lrdb.{table}".encode())
        yield made


def counts(pool: Pool) -> list[tuple[str, str, int, int, int]]:
    return [(one.topic, one.group, one.waiting, one.claimed, one.orphaned) for one in backlog("postgres", pool, "")]


def test_waiting_claimed_and_orphaned(pool: Pool, postgres_url: str) -> None:
    bus = PostgresBus(pool, postgres_url)
    bus.publish([("t", b"1"), ("t", b"2"), ("t", b"3"), ("unread", b"1")])
    assert counts(pool) == [("t", "", 3, 0, 0), ("unread", "", 1, 0, 0)]
    one, other = bus.subscribe(["t"], "one"), bus.subscribe(["t"], "other")
    taken = one.take(2, 0)
    other.commit(other.take(3, 0))
    assert counts(pool) == [("t", "one", 1, 2, 0), ("t", "other", 0, 0, 0), ("unread", "", 1, 0, 0)]
    one.commit(taken[:1])
    one.close()
    assert counts(pool)[0] in (("t", "one", 1, 1, 0), ("t", "one", 1, 1, 1))  # the server may not know it yet
    with pool.connection() as connection:
        connection.execute("UPDATE lrdb.bus_claims SET holder_pid = 1, holder_start = now()")
        connection.execute("UPDATE lrdb.bus_messages SET published_at = now() - interval '1 hour' WHERE topic = 't'")
    first = backlog("postgres", pool, "")[0]
    assert (first.waiting, first.claimed, first.orphaned) == (1, 1, 1)
    assert first.age_seconds is not None
    assert 3600 <= first.age_seconds < 3700
    bus.close()


def test_a_server_that_is_away(postgres_url: str) -> None:
    pool: Pool = ConnectionPool(postgres_url + "x", min_size=0, max_size=1, timeout=0.5)
    with pool, pytest.raises(Unavailable, match="PostgreSQL bus, looking at its backlog: "):
        backlog("postgres", pool, "")


def test_kafka_tells_the_lag_of_the_groups_that_are_ours(kafka: KafkaBroker) -> None:
    prefix = f"b{uuid4().hex[:8]}."
    bus = KafkaBus(kafka.servers, prefix, partitions=2)
    bus.publish([(arrivals("logs"), b"x")] * 5 + [(compact_boxes("logs"), b"x")])
    member = bus.subscribe([arrivals("logs")], "boxer")
    taken = take_until(member, lambda taken: len(taken) >= 5)
    member.commit(taken)
    bus.publish([(arrivals("logs"), b"x")] * 2)
    pool: Pool = ConnectionPool("", open=False)
    found = backlog(f"kafka://{kafka.servers}", pool, prefix)
    assert sorted(found, key=lambda one: one.topic) == [
        Backlog(arrivals("logs"), "boxer", 2),
        Backlog(compact_boxes("logs"), "compact", 1),
    ]
    bus.close()


def test_every_topic_has_its_reader() -> None:
    assert len({topic for topic, _ in READERS}) == len(READERS) == 14
