"""One process at a time: a lock of the server that its holder keeps by a connection of its own.

What always holds: when the holder's process, machine or connection is gone, so is the lock. A holder that checks `held`
before each step continues no longer than the server knows it. The server is reached directly, or through a pooler that
keeps sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from lakerunner.index.database import Connection, Database, load_queries

_NAME_BYTES = 63  # PostgreSQL truncates longer names


class Singleton:
    """A lock that is held. For one thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def held(self) -> bool:
        """Ask the server whether the lock is held. False for good once it does not answer."""
        try:
            self.connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


@contextmanager
def singleton(database: Database, name: str, holder: str) -> Iterator[Singleton | None]:
    """Hold the lock of this name until the block ends; None if another process has it. `holder` names us for people."""
    with database.errors():
        connection = database.connect()
    try:
        with database.errors():
            queries = load_queries()
            shown = f"{name} {holder}".encode()[:_NAME_BYTES].decode(errors="ignore")
            connection.execute(queries["singleton.introduce"], {"holder": shown})
            row = connection.execute(queries["singleton.take"], {"name": name}).fetchone()
        yield Singleton(connection) if row and row[0] else None
    finally:
        connection.close()


def holder_of(database: Database, name: str) -> str:
    """Return who holds it and since when they are connected; "" if nobody does."""
    rows = database.rows("singleton.holder", {"name": name})
    return " ".join(str(part) for part in rows[0] if part) if rows else ""
