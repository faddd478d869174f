from __future__ import annotations

import re
import traceback
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit, urlunsplit

import pytest

import lakerunner.index
from index.index_values import ACME, OTHER
from lakerunner.index.database import Database, load_queries
from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError, Unavailable, UserError

SECRET = "very-secret-word"


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{password}@{parts.hostname}:{parts.port}"))


def open_fails(url: str) -> tuple[LakerunnerError, str]:
    """The error, and all that a traceback of it would print."""
    with pytest.raises(LakerunnerError) as caught:
        Index.open(url)
    return caught.value, "".join(traceback.format_exception(caught.value))


def test_a_wrong_password_is_told_at_once_and_without_it(database_url: str) -> None:
    start = monotonic()
    error, printed = open_fails(with_password(database_url, SECRET))
    assert monotonic() - start < 8
    assert isinstance(error, Unavailable)
    assert f"127.0.0.1:{urlsplit(database_url).port}" in str(error)
    assert "password authentication failed" in str(error)
    assert SECRET not in printed


def test_a_database_that_is_not_there_is_told_at_once(database_url: str) -> None:
    error, _ = open_fails(urlunsplit(urlsplit(database_url)._replace(path="/nowhere")))
    assert 'database "nowhere" does not exist' in str(error)


@pytest.mark.slow
def test_a_server_that_is_not_there_is_unavailable_after_ten_seconds() -> None:
    start = monotonic()
    error, printed = open_fails(f"postgresql://u:{SECRET}@127.0.0.1:1/x")
    assert 5 < monotonic() - start < 20
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:1/x does not answer within 10 s" in str(error)
    assert SECRET not in printed


@pytest.mark.parametrize(
    "url", [f"mysql://u:{SECRET}@h/x", SECRET, f"postgresql://u:{SECRET} x@h/x", f"postgresql://u:%zz{SECRET}@h/x"]
)
def test_what_is_not_a_postgresql_url_is_not_repeated(url: str) -> None:
    error, printed = open_fails(url)
    assert isinstance(error, UserError)
    assert "database_url is not a PostgreSQL URL" in str(error)
    assert SECRET not in printed.replace(__file__, "")


def test_one_connection_is_too_few(database_url: str) -> None:
    with pytest.raises(UserError, match=r"database_connections must be 2 or more, .* not 1"):
        Index.open(database_url, connections=1)


def test_lost_connections_are_replaced(index: Index) -> None:
    with index.pool.connection() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    for _ in range(20):
        assert index.organizations.all() == [ACME, OTHER]


def test_a_closed_index_is_unavailable_and_closes_twice(database_url: str) -> None:
    index = Index.open(database_url)
    index.migrate()
    index.close()
    index.close()
    with pytest.raises(Unavailable):
        index.organizations.all()


def test_a_serialization_failure_and_a_deadlock_are_unavailable(database_url: str) -> None:
    database = Database.open(database_url, 2)
    for code in ("40001", "40P01", "53300", "57P01", "25006"):
        raising = f"DO $$ BEGIN RAISE EXCEPTION 'told' USING ERRCODE = '{code}'; END $$"
        with (
            pytest.raises(Unavailable, match="PostgreSQL cancelled the statement") as refused,
            database.transaction() as transaction,
        ):
            transaction.connection.execute(raising.encode())
        assert "told" in refused.value.detail
    database.close()


def test_a_database_where_we_may_not_write_is_the_users_matter(index: Index) -> None:
    database = Database.open(index.url, 2)
    with pytest.raises(UserError, match="denied access"), database.transaction() as transaction:
        transaction.connection.execute("CREATE ROLE reader; SET LOCAL ROLE reader; SELECT * FROM lrdb.api_keys")
    database.close()


def test_every_query_is_used_and_has_the_shape_of_one() -> None:
    folder = Path(lakerunner.index.__file__).parent
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    used = set(re.findall(r'"(\w+\.\w+)"', code)) & set(load_queries())
    assert used == set(load_queries())
    assert all(text and not text.endswith(b";") for text in load_queries().values())
