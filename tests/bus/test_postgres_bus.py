"""The bus on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Timer
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from lakerunner.bus.postgres import PostgresBus
from lakerunner.model.errors import Unavailable
from suites.bus import PATIENCE, BusAddress, ServerBusSuite, numbers, payloads, publish, take_all, unique


@pytest.fixture
def database(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def bus(postgres_url: str) -> Iterator[PostgresBus]:
    with ConnectionPool(postgres_url, min_size=1, max_size=6) as pool:
        bus = PostgresBus(pool, postgres_url)
        yield bus
        bus.close()


class TestPostgresBus(ServerBusSuite):
    @pytest.fixture
    def bus_address(self, postgres_url: str) -> BusAddress:
        return BusAddress("postgres", postgres_url)


def end_backends(database: psycopg.Connection[Any], group: str) -> None:
    """What a lost connection looks like from both ends."""
    query = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = %s"
    assert database.execute(query, [f"lakerunner bus {group}"]).fetchall() == [(True,)]


def kept(database: psycopg.Connection[Any], topic: str) -> list[str]:
    rows = database.execute("SELECT payload FROM lrdb.bus_messages WHERE topic = %s", [topic])
    return sorted(bytes(row[0]).decode() for row in rows)


def claims(database: psycopg.Connection[Any], group: str) -> int:
    row = database.execute('SELECT count(*) FROM lrdb.bus_claims WHERE "group" = %s', [group]).fetchone()
    assert row is not None
    return int(row[0])


def test_after_a_lost_connection_it_goes_on_with_what_it_holds(
    bus: PostgresBus, database: psycopg.Connection[Any]
) -> None:
    topic, group = unique("topic"), unique("group")
    publish(bus, topic, numbers(10))
    member = bus.subscribe([topic], group)
    taken = member.take(4, 5)
    end_backends(database, group)
    with pytest.raises(Unavailable, match="PostgreSQL bus, taking"):
        member.take(10, 0)
    rest = member.take(10, 0)
    assert payloads(taken + rest) == numbers(10)  # the four it holds did not come again
    end_backends(database, group)
    with pytest.raises(Unavailable, match="PostgreSQL bus, committing"):
        member.commit(taken)
    member.commit(taken)
    member.close()
    assert payloads(take_all(bus.subscribe([topic], group), payloads(rest))) == payloads(rest)


def test_what_another_member_got_meanwhile_is_left_to_it(bus: PostgresBus, database: psycopg.Connection[Any]) -> None:
    topic, group = unique("topic"), unique("group")
    publish(bus, topic, numbers(10))
    first = bus.subscribe([topic], group)
    taken = first.take(10, 5)
    end_backends(database, group)
    second = bus.subscribe([topic], group)
    assert payloads(second.take(7, 5)) == payloads(taken[:7])
    with pytest.raises(Unavailable):
        first.commit(taken)
    first.commit(taken)  # three are still its own
    assert claims(database, group) == 7
    assert first.take(10, 0) == []
    second.close()
    assert payloads(take_all(first, payloads(taken[:7]))) == payloads(taken[:7])
    first.commit(taken)
    assert claims(database, group) == 0


def test_a_notification_wakes_a_take(bus: PostgresBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before it would look by itself."""
    monkeypatch.setattr("lakerunner.bus.postgres._LOOK_SECONDS", float(PATIENCE))
    topic = unique("topic")
    member = bus.subscribe([topic], unique("group"))
    for _ in range(5):
        timer = Timer(0.1, publish, [bus, topic, ["now"]])
        start = time.monotonic()
        timer.start()
        assert payloads(member.take(1, PATIENCE)) == ["now"]
        assert time.monotonic() - start < PATIENCE / 2
        timer.join()


def test_a_take_that_waits_sees_a_member_die(bus: PostgresBus, database: psycopg.Connection[Any]) -> None:
    topic, group = unique("topic"), unique("group")
    publish(bus, topic, numbers(3))
    first = bus.subscribe([topic], group)
    assert len(first.take(10, 5)) == 3
    second = bus.subscribe([topic], group)
    with ThreadPoolExecutor(1) as pool:
        start = time.monotonic()
        waiting = pool.submit(second.take, 10, PATIENCE)
        time.sleep(0.3)
        first.close()
        assert payloads(waiting.result()) == numbers(3)
    assert time.monotonic() - start < PATIENCE / 2


def test_what_every_group_has_finished_is_deleted(bus: PostgresBus, database: psycopg.Connection[Any]) -> None:
    topic = unique("topic")
    first, second = bus.subscribe([topic], unique("group")), bus.subscribe([topic], unique("group"))
    publish(bus, topic, numbers(6))
    taken = first.take(10, 5)
    first.commit(taken)
    assert kept(database, topic) == numbers(6)
    others = second.take(10, 5)
    second.commit(others[2:])
    assert kept(database, topic) == numbers(6)  # the two oldest are held
    second.commit([others[1]])
    second.commit([others[0]])
    assert kept(database, topic) == []


def test_what_nobody_reads_is_kept_a_week(bus: PostgresBus, database: psycopg.Connection[Any]) -> None:
    unread, read = unique("topic"), unique("topic")
    bus.subscribe([read], unique("group"))
    bus.publish([(topic, b"old") for topic in (unread, read)])
    bus.publish([(topic, b"young") for topic in (unread, read)])
    age = "UPDATE lrdb.bus_messages SET published_at = now() - make_interval(days => %s) WHERE payload = %s"
    for days, payload in ((8, b"old"), (6, b"young")):
        database.execute(age, [days, payload])
    bus.publish([(topic, b"new") for topic in (unread, read)])
    assert kept(database, unread) == ["new", "young"]
    assert kept(database, read) == ["new", "old", "young"]


def test_offsets_become_visible_in_their_order(bus: PostgresBus, postgres_url: str) -> None:
    """A publisher that has its offsets and is slow to commit holds the later ones back, for its topic only."""
    topic, other, group = unique("topic"), unique("other"), unique("group")
    member = bus.subscribe([topic, other], group)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres_url) as slow:
        slow_bus = PostgresBus(_OneConnection(slow), postgres_url)  # type: ignore[arg-type]
        with slow.transaction():
            publish(slow_bus, topic, ["first"])
            fast = pool.submit(publish, bus, topic, ["second"])
            publish(bus, other, ["elsewhere"])
            assert payloads(member.take(10, 5)) == ["elsewhere"]
            time.sleep(0.3)
            assert not fast.done()
        fast.result(PATIENCE)
    taken = take_all(member, ["first", "second"])
    assert [delivery.payload for delivery in taken] == [b"first", b"second"]


class _OneConnection:
    """A pool of one connection, whose transaction its owner ends."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def connection(self) -> Any:
        return nullcontext(self._connection)


def test_publishers_of_several_topics_do_not_block_each_other_for_good(bus: PostgresBus) -> None:
    topics = [unique("topic") for _ in range(4)]
    orders = [topics, topics[::-1], [topics[2], topics[0]], [topics[1], topics[3], topics[0]]]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: bus.publish([(topic, b"x") for topic in orders[n % 4]]), range(200)))
    member = bus.subscribe(topics, unique("group"))
    assert len(member.take(1000, 5)) == 50 * sum(len(order) for order in orders)


def test_a_plain_user_can_use_it(database: psycopg.Connection[Any], postgres_url: str) -> None:
    user = unique("user")
    name = sql.Identifier(user)
    database.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(name))
    for grant in ("USAGE ON SCHEMA lrdb", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lrdb"):
        database.execute(sql.SQL(f"GRANT {grant} TO {{}}").format(name))
    url = make_conninfo(postgres_url, user=user, password="plain")
    topic, group = unique("topic"), unique("group")
    with ConnectionPool(url, min_size=1) as pool:
        bus = PostgresBus(pool, url)
        publish(bus, topic, numbers(5))
        first, second = bus.subscribe([topic], group), bus.subscribe([topic], group)
        held = first.take(3, 5)
        rest = second.take(10, 1)
        assert payloads(held + rest) == numbers(5)
        first.close()
        assert payloads(second.take(10, PATIENCE)) == payloads(held)
        # A session that this user may not look into counts as alive.
        foreign = PostgresBus(pool, postgres_url).subscribe([topic], group)
        second.close()
        assert payloads(foreign.take(10, PATIENCE)) == numbers(5)
        third = bus.subscribe([topic], group)
        assert third.take(10, 1.5) == []
        foreign.close()
        assert payloads(third.take(10, PATIENCE)) == numbers(5)
        bus.close()


def test_a_server_that_is_away_is_unavailable_and_the_message_keeps_the_password() -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/lake"
    with ConnectionPool(url, min_size=0, max_size=1, open=True, timeout=0.5) as pool:
        bus = PostgresBus(pool, url)
        with pytest.raises(Unavailable, match="PostgreSQL bus, publishing") as publishing:
            bus.publish([("topic", b"")])
        with pytest.raises(Unavailable, match="PostgreSQL bus, subscribing") as subscribing:
            bus.subscribe(["topic"], "group")
    for caught in (publishing, subscribing):
        assert "hunter2" not in str(caught.value)
