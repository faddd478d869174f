"""A server that is frozen is given up by those in a hurry, and waited for by the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.reach import server_answers
from lakerunner.model.errors import Unavailable
from servers.lake import wait_until
from servers.postgres import frozen

# Two seconds are promised (docs/formats/limits.md). On a machine whose cores are all taken a thread may wait longer
# for its turn; without the promise kept it would wait for ever.
SOON = 10.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    made = EmbeddedPostgres(tmp_path_factory.mktemp("frozen") / "postgres")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def data(server: EmbeddedPostgres) -> Path:
    return server.directory / "data"


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[Database]:
    opened = Database.open(server.start(), 3)
    yield opened
    opened.close()


def one(database: Database) -> list[tuple[int]]:
    with database.transaction() as transaction:
        return transaction.connection.execute("SELECT 1").fetchall()


def answers(database: Database) -> bool:
    with suppress(Unavailable):
        return one(database) == [(1,)]
    return False


def test_in_a_hurry_a_frozen_server_is_unavailable_soon_and_found_again(database: Database, data: Path) -> None:
    hurried = database.hurried()
    assert one(hurried) == [(1,)]
    began = time.monotonic()
    with frozen(data):
        with pytest.raises(Unavailable, match="PostgreSQL"):
            one(hurried)
        assert time.monotonic() - began < SOON
        for _ in range(5):  # known to be away: one of them may begin another probe
            with pytest.raises(Unavailable, match="PostgreSQL does not answer") as refused:
                one(hurried)
            assert database.address in refused.value.detail
        assert time.monotonic() - began < SOON
    wait_until(lambda: answers(hurried), "the server is found again", 30)
    assert one(database) == [(1,)]


def test_frozen_in_the_middle_of_a_transaction(database: Database, data: Path) -> None:
    hurried = database.hurried()
    with ExitStack() as held:
        held.enter_context(pytest.raises(Unavailable))
        transaction = held.enter_context(hurried.transaction())
        assert transaction.connection.execute("SELECT 1").fetchall() == [(1,)]
        held.enter_context(frozen(data))
        transaction.connection.execute("SELECT 2")
    wait_until(lambda: answers(database), "another connection in its place", 30)


def test_many_threads_find_a_server_frozen_at_once(database: Database, data: Path) -> None:
    hurried, refusals = database.hurried(), []
    assert one(hurried) == [(1,)]

    def ask() -> None:
        try:
            one(hurried)
        except Unavailable as error:
            refusals.append(str(error))

    with frozen(data):
        began = time.monotonic()
        threads = [threading.Thread(target=ask) for _ in range(12)]  # more than there are connections
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert time.monotonic() - began < SOON
        assert len(refusals) == 12
    wait_until(lambda: answers(hurried), "the server is found again", 30)


def test_what_a_probe_takes_for_an_answer(server: EmbeddedPostgres, data: Path) -> None:
    url = server.start()
    refused = url.replace("lakerunner:", "lakerunner:not-")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        elsewhere = f"postgresql://a:b@127.0.0.1:{silent.getsockname()[1]}/c"
        assert [server_answers(one, 30.0, time.monotonic) for one in (url, refused)] == [True, True]
        assert not server_answers(elsewhere, 0.2, time.monotonic)
    assert not server_answers(elsewhere, 30.0, time.monotonic)  # nobody listens any more
    with frozen(data):
        assert not server_answers(url, 0.2, time.monotonic)
    assert server_answers(url, 30.0, time.monotonic)


def test_others_run_while_a_frozen_server_is_probed(server: EmbeddedPostgres, data: Path) -> None:
    """As they do not while libpq's own PQping waits: psycopg keeps Python's lock for it."""
    url, turns = server.start(), 0
    with frozen(data):
        probe = threading.Thread(target=server_answers, args=(url, 1.0, time.monotonic))
        probe.start()
        while probe.is_alive():
            turns += 1
            time.sleep(0.001)
    assert turns > 10


def test_slow_work_is_not_cut_while_the_server_answers_probes(database: Database) -> None:
    with database.hurried().transaction() as transaction:
        assert transaction.connection.execute("SELECT pg_sleep(2.5)::text, 7").fetchall() == [("", 7)]


def test_without_hurry_a_frozen_server_is_waited_for(database: Database, data: Path) -> None:
    """The work of the pipeline goes on where it was when the server does."""
    found: list[list[tuple[int]]] = []
    assert one(database) == [(1,)]
    with frozen(data):
        thread = threading.Thread(target=lambda: found.append(one(database)))
        thread.start()
        thread.join(3.0)
        assert thread.is_alive()
    thread.join(60)
    assert found == [[(1,)]]
