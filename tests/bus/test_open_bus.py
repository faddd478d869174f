"""The bus that the settings name."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.open import open_bus
from lakerunner.bus.postgres import PostgresBus
from lakerunner.model.errors import UserError

POOL: ConnectionPool[Any] = ConnectionPool("", open=False)


@pytest.mark.parametrize(
    ("bus", "kind"),
    [
        ("postgres", PostgresBus),
        ("kafka://127.0.0.1:1", KafkaBus),
        ("kafka://one.example:9092,two:9093", KafkaBus),
        ("kafka://[::1]:9092", KafkaBus),
    ],
)
def test_known_kinds(bus: str, kind: type) -> None:
    opened = open_bus(bus, pool=POOL, url="", topic_prefix="lake.")
    assert type(opened) is kind
    opened.close()


@pytest.mark.parametrize(
    "bus",
    ["", "memory", "Postgres", "kafka", "kafka://", "kafka://host", "kafka://a:1,", "kafka://a:b", "kafka://a:1/t"],
)
def test_unknown_kinds_are_refused(bus: str) -> None:
    with pytest.raises(UserError, match=r"write postgres, or kafka://host:port\[,host:port\]"):
        open_bus(bus, pool=POOL, url="", topic_prefix="")


@pytest.mark.parametrize("prefix", ["a b", "lake/", "x" * 101, "ü"])
def test_prefixes_that_kafka_would_refuse_are_refused(prefix: str) -> None:
    with pytest.raises(UserError, match="bus_topic_prefix"):
        open_bus("kafka://127.0.0.1:1", pool=POOL, url="", topic_prefix=prefix)
