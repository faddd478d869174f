"""A server that is away is waited for once, and found again by a probe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.reach import PROBE_SECONDS, Reach
from lakerunner.model.errors import Unavailable


@dataclass
class Server:
    answers: bool = True
    probes: int = 0
    now: float = 100.0

    def probe(self) -> bool:
        self.probes += 1
        return self.answers

    def reach(self) -> Reach:
        return Reach(self.probe, lambda: self.now, "at here")


def test_a_server_that_was_never_missed_is_not_probed() -> None:
    server = Server(answers=False)
    server.reach().check()
    assert server.probes == 0


def test_while_it_is_away_one_in_a_second_probes() -> None:
    server = Server(answers=False)
    reach = server.reach()
    reach.missed()
    assert server.probes == 1
    for now, probes in ((100.0, 1), (100.9, 1), (101.0, 2), (101.9, 2), (102.0, 3)):
        server.now = now
        with pytest.raises(Unavailable, match="PostgreSQL does not answer"):
            reach.check()
        assert server.probes == probes


def test_it_is_there_again_as_soon_as_it_answers_a_probe() -> None:
    server = Server(answers=False)
    reach = server.reach()
    reach.missed()
    server.answers = True
    with pytest.raises(Unavailable):
        reach.check()
    server.now += PROBE_SECONDS
    for _ in range(3):
        reach.check()
    assert server.probes == 2


def test_a_server_that_is_only_busy_is_not_away() -> None:
    server = Server()
    reach = server.reach()
    reach.missed()
    reach.check()
    assert server.probes == 1


def test_a_pool_without_a_free_connection_is_no_server_that_is_away(embedded_postgres_url: str) -> None:
    database = Database.open(embedded_postgres_url, 2)
    no_connection = pytest.raises(Unavailable, match="couldn't get a connection")
    with database.transaction(), database.transaction():
        database.pool.timeout = 0.1
        with no_connection, database.transaction():
            pass
        database.pool.timeout = 60
    with database.transaction() as free:
        assert free.connection.execute("SELECT 1").fetchall() == [(1,)]
    database.close()


def test_a_server_that_has_stopped_is_waited_for_once(tmp_path: Path) -> None:
    now = 100.0
    server = EmbeddedPostgres(tmp_path / "postgres")
    opened = Database.open(server.start(), 2)
    opened.pool.timeout = 0.2
    database = Database(opened.url, opened.address, opened.pool, lambda: now)
    server.stop()
    with pytest.raises(Unavailable, match="does not answer"), database.transaction():
        pass
    database.pool.timeout = 600  # nobody waits so long
    with pytest.raises(Unavailable, match="PostgreSQL does not answer"), database.transaction():
        pass
    now += PROBE_SECONDS
    with pytest.raises(Unavailable, match="does not answer"), database.transaction():
        pass
    database.close()
