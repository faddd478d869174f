"""The bus that the settings name: one line per kind."""

from __future__ import annotations

import re

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from lakerunner.bus.bus import Bus
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.postgres import PostgresBus
from lakerunner.model.errors import UserError

_SERVERS = re.compile(r"kafka://((?:[^\s,:/]+|\[[0-9a-fA-F:]+\]):\d+(?:,(?:[^\s,:/]+|\[[0-9a-fA-F:]+\]):\d+)*)")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")


def open_bus(bus: str, *, pool: ConnectionPool[psycopg.Connection[TupleRow]], url: str, topic_prefix: str) -> Bus:
    """Open the bus of the setting `bus`. `pool` and `url` are those of the PostgreSQL server; only Kafka has topic
    prefixes."""
    check_bus(bus, topic_prefix)
    return PostgresBus(pool, url) if bus == "postgres" else KafkaBus(kafka_servers(bus), topic_prefix)


def check_bus(bus: str, topic_prefix: str) -> None:
    """Raise UserError if the setting is invalid. Nothing is opened."""
    if bus != "postgres" and kafka_servers(bus) and not _PREFIX.fullmatch(topic_prefix):
        raise UserError(
            f"setting bus_topic_prefix {topic_prefix!r} is invalid: use at most 100 letters, digits, '.', '_' and '-'"
        )


def kafka_servers(bus: str) -> str:
    """Return the brokers that the setting names: host:port,..."""
    servers = _SERVERS.fullmatch(bus)
    if servers is None:
        raise UserError(f"setting bus {bus!r} is invalid: write postgres, or kafka://host:port[,host:port]")
    return servers[1]
