"""The backlog of the bus: what waits, and what is held, by topic and consumer group.

Comes in: the setting `bus`, and PostgreSQL's pool for its own bus. Goes out: one Backlog for each group that knows a
topic, and one without a group for a topic that has messages and no reader. Nothing is taken, committed or joined.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from lakerunner.bus.kafka_member import kafka_errors
from lakerunner.bus.open import kafka_servers
from lakerunner.bus.postgres import postgres_errors
from lakerunner.bus.topics import (
    ROLLUP_BOXES,
    ROLLUP_CANDIDATES,
    arrivals,
    compact_boxes,
    compact_candidates,
    ingest_boxes,
)
from lakerunner.model.source import SIGNAL_NAMES

_KAFKA_SECONDS = 10.0
_LOGGER = logging.getLogger(__name__)
# Which group reads which topic (docs/formats/topics.md): Kafka does not report which groups are ours.
READERS = (
    *((arrivals(signal), "boxer") for signal in SIGNAL_NAMES),
    *((ingest_boxes(signal), "ingest") for signal in SIGNAL_NAMES),
    *((compact_candidates(signal), "boxer") for signal in SIGNAL_NAMES),
    *((compact_boxes(signal), "compact") for signal in SIGNAL_NAMES),
    (ROLLUP_CANDIDATES, "boxer"),
    (ROLLUP_BOXES, "rollup"),
)

# `orphaned`: held by a session that is gone, and not taken over yet.
_POSTGRES = """
SELECT c.topic, c."group", m.waiting, h.claimed, h.orphaned,
       extract(epoch FROM now() - least(m.since, h.since))::float8
FROM lrdb.bus_cursors AS c,
LATERAL (
    SELECT count(*) AS waiting, min(published_at) AS since FROM lrdb.bus_messages
    WHERE topic = c.topic AND "offset" > c.position
) AS m,
LATERAL (
    SELECT count(*) AS claimed, min(b.published_at) AS since, count(*) FILTER (WHERE NOT EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.pid = k.holder_pid AND COALESCE(a.backend_start, k.holder_start) = k.holder_start)) AS orphaned
    FROM lrdb.bus_claims AS k JOIN lrdb.bus_messages AS b USING ("offset")
    WHERE k."group" = c."group" AND k.topic = c.topic
) AS h
UNION ALL
SELECT topic, '', count(*), 0, 0, extract(epoch FROM now() - min(published_at))::float8
FROM lrdb.bus_messages AS m WHERE NOT EXISTS (SELECT FROM lrdb.bus_cursors AS c WHERE c.topic = m.topic)
GROUP BY topic
ORDER BY 1, 2
"""


@dataclass(frozen=True)
class Backlog:
    """`group` is "" if no group has ever read the topic. `claimed`: handed out and not finished; `orphaned`: those of
    them that sessions hold that are gone. `age_seconds` is that of the oldest message that is not finished. Kafka
    reports neither claims nor ages."""

    topic: str
    group: str
    waiting: int
    claimed: int = 0
    orphaned: int = 0
    age_seconds: float | None = None


def backlog(bus: str, pool: ConnectionPool[psycopg.Connection[TupleRow]], topic_prefix: str) -> list[Backlog]:
    """Return the backlog by topic and group. Raise Unavailable if the bus does not answer."""
    if bus == "postgres":
        return _postgres(pool)
    with kafka_errors("looking at its backlog"):
        return list(_kafka(kafka_servers(bus), topic_prefix))


def _postgres(pool: ConnectionPool[psycopg.Connection[TupleRow]]) -> list[Backlog]:
    with postgres_errors("looking at its backlog"), pool.connection() as connection:
        return [Backlog(*row) for row in connection.execute(_POSTGRES).fetchall()]


def _kafka(servers: str, prefix: str) -> Iterator[Backlog]:
    for group in sorted({group for _, group in READERS}):
        # A consumer that subscribes to nothing joins no group: the members do not notice.
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 2}, logger=_LOGGER)
        try:
            there = consumer.list_topics(timeout=_KAFKA_SECONDS).topics
            for topic, reader in READERS:
                if reader == group and prefix + topic in there:
                    parts = [TopicPartition(prefix + topic, number) for number in there[prefix + topic].partitions]
                    committed = consumer.committed(parts, timeout=_KAFKA_SECONDS)
                    yield Backlog(topic, group, sum(_lag(consumer, part) for part in committed))
        finally:
            consumer.close()


def _lag(consumer: Any, part: TopicPartition) -> int:
    """Return the lag of a partition. A group that never committed starts at the oldest message."""
    low, high = consumer.get_watermark_offsets(part, timeout=_KAFKA_SECONDS, cached=False)
    return int(high - max(low, part.offset))
