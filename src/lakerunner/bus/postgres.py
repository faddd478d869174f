"""The bus on PostgreSQL, the embedded default: tables lrdb.bus_messages, bus_cursors and bus_claims.

Comes in: a pool to publish with and the server's URL, to which every subscription opens its own connection. That
connection LISTENs, and its backend holds what the subscription has taken: once the process is gone, so is the backend,
and the next member that looks takes the claims over. There is no lease and no clock.

What always holds: offsets of one topic become visible in their order (publishers lock the topic until they have
committed), so a cursor never passes a message that is still to come. For a group, a message is ahead of the cursor, or
claimed by one member, or finished. A message is deleted once every group that reads its topic has finished it and all
before it.

The server is reached directly, or through a pooler that keeps sessions: LISTEN and backends are a session's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from lakerunner.bus.bus import Delivery
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import digest64

_CHANNEL = "lrdb_bus"
_LOOK_SECONDS = 1.0  # between two looks for claims of members that died: their end sends no notification

# Both ends find out within about 30 s that the other's machine is gone.
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_SETTINGS = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "lock_timeout": "30s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "30s",
}

# Lock in the order of the keys: else publishers of several topics could deadlock.
_LOCK_TOPICS = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"
_INSERT = "INSERT INTO lrdb.bus_messages (topic, payload) SELECT * FROM unnest(%s::text[], %s::bytea[])"
_NOTIFY = "SELECT pg_notify(%s, topic) FROM unnest(%s::text[]) AS topic"

# No group reads these topics yet: a week is kept for groups to come. Only the oldest messages are looked at.
_PRUNE_UNREAD = """
DELETE FROM lrdb.bus_messages WHERE "offset" IN (
    SELECT oldest."offset"
    FROM unnest(%s::text[]) AS t (topic), LATERAL (
        SELECT "offset", published_at FROM lrdb.bus_messages
        WHERE topic = t.topic ORDER BY "offset" LIMIT 1000
    ) AS oldest
    WHERE oldest.published_at < now() - interval '7 days'
      AND NOT EXISTS (SELECT FROM lrdb.bus_cursors AS c WHERE c.topic = t.topic))
"""

_JOIN = """
INSERT INTO lrdb.bus_cursors ("group", topic, position)
SELECT %(group)s, topic, 0 FROM unnest(%(topics)s::text[]) AS topic
ON CONFLICT DO NOTHING
"""
_BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"

# After a reconnect: what this subscription still holds gets its new backend as the holder.
_ADOPT = """
UPDATE lrdb.bus_claims AS c SET holder_pid = %(pid)s, holder_start = %(start)s
FROM unnest(%(held_topics)s::text[], %(held_offsets)s::bigint[]) AS h (topic, "offset")
WHERE c."group" = %(group)s AND c.topic = h.topic AND c."offset" = h."offset"
  AND c.holder_pid = %(old_pid)s AND c.holder_start = %(old_start)s
"""

# Only one member of a group at a time; the statements that follow see what the member before has done.
_LOCK_CURSORS = """
SELECT FROM lrdb.bus_cursors WHERE "group" = %(group)s AND topic = ANY(%(topics)s) ORDER BY topic FOR UPDATE
"""
# backend_start is null for sessions that this user may not look into: those count as alive.
_TAKE_ORPHANS = """
WITH orphans AS (
    SELECT topic, "offset" FROM lrdb.bus_claims AS c
    WHERE "group" = %(group)s AND topic = ANY(%(topics)s) AND NOT EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.pid = c.holder_pid AND COALESCE(a.backend_start, c.holder_start) = c.holder_start)
    ORDER BY "offset" LIMIT %(limit)s
), taken AS (
    UPDATE lrdb.bus_claims AS c SET holder_pid = %(pid)s, holder_start = %(start)s
    FROM orphans AS o WHERE c."group" = %(group)s AND c.topic = o.topic AND c."offset" = o."offset"
)
SELECT m.topic, m."offset", m.payload
FROM orphans JOIN lrdb.bus_messages AS m USING ("offset") ORDER BY m."offset"
"""
_TAKE_NEXT = """
WITH next AS (
    SELECT c.topic, m."offset", m.payload
    FROM lrdb.bus_cursors AS c, LATERAL (
        SELECT "offset", payload FROM lrdb.bus_messages
        WHERE topic = c.topic AND "offset" > c.position ORDER BY "offset" LIMIT %(limit)s
    ) AS m
    WHERE c."group" = %(group)s AND c.topic = ANY(%(topics)s)
    ORDER BY m."offset" LIMIT %(limit)s
), claimed AS (
    INSERT INTO lrdb.bus_claims ("group", topic, "offset", holder_pid, holder_start)
    SELECT %(group)s, topic, "offset", %(pid)s, %(start)s FROM next
), moved AS (
    UPDATE lrdb.bus_cursors AS c SET position = n.last
    FROM (SELECT topic, max("offset") AS last FROM next GROUP BY topic) AS n
    WHERE c."group" = %(group)s AND c.topic = n.topic
)
SELECT topic, "offset", payload FROM next ORDER BY "offset"
"""

_FINISH = """
DELETE FROM lrdb.bus_claims AS c
USING unnest(%(held_topics)s::text[], %(held_offsets)s::bigint[]) AS h (topic, "offset")
WHERE c."group" = %(group)s AND c.topic = h.topic AND c."offset" = h."offset"
  AND c.holder_pid = %(pid)s AND c.holder_start = %(start)s
"""
# Delete up to the first message that some group has not finished. Rows that another member deletes are skipped.
_PRUNE = """
WITH finished AS (
    SELECT c.topic, min(COALESCE(first."offset" - 1, c.position)) AS last
    FROM lrdb.bus_cursors AS c LEFT JOIN LATERAL (
        SELECT "offset" FROM lrdb.bus_claims
        WHERE "group" = c."group" AND topic = c.topic ORDER BY "offset" LIMIT 1
    ) AS first ON true
    WHERE c.topic = ANY(%s) GROUP BY c.topic
), gone AS (
    SELECT m."offset"
    FROM finished AS f JOIN lrdb.bus_messages AS m ON m.topic = f.topic AND m."offset" <= f.last
    ORDER BY m."offset" LIMIT 10000 FOR UPDATE OF m SKIP LOCKED
)
DELETE FROM lrdb.bus_messages WHERE "offset" IN (SELECT "offset" FROM gone)
"""


@contextmanager
def postgres_errors(doing: str) -> Iterator[None]:
    """Turn psycopg's errors into Unavailable: what PostgreSQL cannot do now, it may do later."""
    try:
        yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(f"PostgreSQL bus, {doing}: {type(error).__name__}", detail=reason) from error


@dataclass(frozen=True)
class _Session:
    """A connection, and its backend, which holds what is claimed through it."""

    connection: psycopg.Connection[TupleRow]
    pid: int
    start: datetime


class PostgresBus:
    def __init__(self, pool: ConnectionPool[psycopg.Connection[TupleRow]], url: str) -> None:
        """The caller owns the pool; schema lrdb is migrated already."""
        self._pool = pool
        self._url = url
        self._subscriptions: list[_PostgresSubscription] = []
        self._closed = False

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        if self._closed:
            raise Unavailable("the bus is closed")
        if not messages:
            return
        topics, payloads = _columns(messages)
        distinct = sorted(set(topics))
        with postgres_errors("publishing"), self._pool.connection() as connection, connection.transaction():
            connection.execute(_LOCK_TOPICS, [sorted({digest64(_CHANNEL, topic) for topic in distinct})])
            connection.execute(_INSERT, [topics, payloads])
            connection.execute(_PRUNE_UNREAD, [distinct])
            connection.execute(_NOTIFY, [_CHANNEL, distinct])

    def subscribe(self, topics: Sequence[str], group: str) -> _PostgresSubscription:
        if self._closed:
            raise Unavailable("the bus is closed")
        subscription = _PostgresSubscription(self._url, topics, group)
        self._subscriptions.append(subscription)
        return subscription

    def close(self) -> None:
        self._closed = True
        for subscription in self._subscriptions:
            subscription.close()


class _PostgresSubscription:
    def __init__(self, url: str, topics: Iterable[str], group: str) -> None:
        self._url = url
        self._topics = sorted(set(topics))
        self._group = group
        self._held: set[tuple[str, int]] = set()
        self._session: _Session | None = None
        self._closed = False
        with postgres_errors("subscribing"):
            self._connect()

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """Take messages. A wakeup for a message that another member got first uses up to a second of the wait."""
        with postgres_errors("taking"):
            while True:
                session = self._connect()
                self._hear(session, 0)  # what came before the claim is answered by it
                taken = self._claim(session, limit)
                if taken or wait_seconds <= 0:
                    return taken
                pause = min(wait_seconds, _LOOK_SECONDS)
                self._hear(session, pause)
                wait_seconds -= pause

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Finish these deliveries. Claims that another member has taken over are left to it."""
        if not deliveries:
            return
        done = [(delivery.topic, delivery.position[1]) for delivery in deliveries]
        topics, offsets = _columns(done)
        with postgres_errors("committing"):
            session = self._connect()
            finish = self._parameters(session) | {"held_topics": topics, "held_offsets": offsets}
            session.connection.execute(_FINISH, finish)
            self._held.difference_update(done)
            session.connection.execute(_PRUNE, [sorted(set(topics))])

    def close(self) -> None:
        self._closed = True
        if self._session is not None:
            self._session.connection.close()

    def _hear(self, session: _Session, seconds: float) -> None:
        """Wait for a notification of one of our topics; 0 discards those that have arrived."""
        with closing(session.connection.notifies(timeout=seconds)) as notifications:
            for notification in notifications:
                if seconds and notification.payload in self._topics:
                    return

    def _claim(self, session: _Session, limit: int) -> list[Delivery]:
        parameters = self._parameters(session)
        with session.connection.transaction():
            execute = session.connection.execute
            execute(_LOCK_CURSORS, parameters)
            rows = execute(_TAKE_ORPHANS, parameters | {"limit": limit}).fetchall()
            if len(rows) < limit:
                rows += execute(_TAKE_NEXT, parameters | {"limit": limit - len(rows)}).fetchall()
        self._held.update((topic, offset) for topic, offset, _ in rows)
        return [Delivery(topic, payload, (0, offset)) for topic, offset, payload in rows]

    def _connect(self) -> _Session:
        """Return the session, opened again if it was lost."""
        if self._closed:
            raise Unavailable("the subscription is closed")
        if self._session is None or self._session.connection.closed:
            name = f"lakerunner bus {self._group}"
            connection = psycopg.connect(self._url, autocommit=True, fallback_application_name=name, **_CONNECT)
            try:
                self._session = self._join_group(connection)
            except BaseException:
                connection.close()
                raise
        return self._session

    def _join_group(self, connection: psycopg.Connection[TupleRow]) -> _Session:
        """Join the group on this connection. The new session takes over what the one before holds."""
        for name, value in _SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        connection.execute(f"LISTEN {_CHANNEL}")
        pid, start = connection.execute(_BACKEND).fetchall()[0]
        session = _Session(connection, pid, start)
        connection.execute(_JOIN, self._parameters(session))
        if self._session is not None and self._held:
            topics, offsets = _columns(self._held)
            held = {"held_topics": topics, "held_offsets": offsets}
            old = {"old_pid": self._session.pid, "old_start": self._session.start}
            with connection.transaction():
                connection.execute(_LOCK_CURSORS, self._parameters(session))
                connection.execute(_ADOPT, self._parameters(session) | held | old)
        return session

    def _parameters(self, session: _Session) -> dict[str, Any]:
        return {"group": self._group, "topics": self._topics, "pid": session.pid, "start": session.start}


def _columns(rows: Iterable[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    first, second = zip(*rows, strict=True)
    return list(first), list(second)
