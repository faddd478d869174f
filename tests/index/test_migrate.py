from __future__ import annotations

import pytest

from index.index_values import at_once, count
from lakerunner.index.database import Database
from lakerunner.index.index import Index
from lakerunner.index.migrate import Migration, load_migrations, migrate
from lakerunner.model.errors import Unavailable, UserError

NAMES = [migration.name for migration in load_migrations()]


def test_the_first_run_applies_all_and_the_second_nothing(database_url: str) -> None:
    index = Index.open(database_url)
    assert index.migrate() == NAMES
    assert index.migrate() == []
    assert count(index, "SELECT count(*) FROM lrdb.migrations") == len(NAMES)
    index.close()


def test_of_four_that_start_at_once_one_migrates(database_url: str) -> None:
    indexes = [Index.open(database_url) for _ in range(4)]
    results = at_once(index.migrate for index in indexes)
    assert sorted(results, key=str) == sorted([NAMES, [], [], []], key=str)
    for index in indexes:
        index.close()


def test_a_newer_database_is_refused(index: Index) -> None:
    with index.pool.connection() as connection:
        connection.execute("INSERT INTO lrdb.migrations (name, checksum) VALUES ('9999_from_the_future', 'x')")
    with pytest.raises(UserError, match=r"newer than this Lakerunner.*9999_from_the_future"):
        index.migrate()


def test_another_text_of_an_applied_migration_is_refused(index: Index) -> None:
    with index.pool.connection() as connection:
        connection.execute("UPDATE lrdb.migrations SET checksum = 'edited' WHERE name = '0001_foundation'")
    with pytest.raises(UserError, match=r"migration 0001_foundation differs from the one"):
        index.migrate()


def test_migrations_go_in_order_and_a_failure_leaves_nothing(database_url: str) -> None:
    database = Database.open(database_url, 2)
    first = Migration("0001_a", "CREATE TABLE lrdb.a (x int)")
    second = Migration("0002_b", "ALTER TABLE lrdb.a ADD y int")
    broken = Migration("0003_c", "CREATE TABLE lrdb.c (x int); SELECT 1/0")
    assert migrate(database, [first]) == ["0001_a"]
    with pytest.raises(Exception, match="division by zero"):
        migrate(database, [first, second, broken])
    assert migrate(database, [first, second]) == ["0002_b"]
    with pytest.raises(UserError, match=r"has migration 0002_b but not 0001_z before it"):
        migrate(database, [first, Migration("0001_z", "SELECT 1"), second])
    database.close()


def test_a_database_that_was_never_migrated_says_so(database_url: str) -> None:
    index = Index.open(database_url)
    with pytest.raises(Unavailable, match="has no tables of this version"):
        index.organizations.all()
    index.close()


def test_line_endings_do_not_change_a_checksum() -> None:
    assert all("\r" not in migration.text for migration in load_migrations())
    assert load_migrations()[0].name == "0001_foundation"
