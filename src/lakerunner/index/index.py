"""The index of the lake: everything that PostgreSQL knows, behind one object.

Comes in: a URL. Goes out: domain values. Nothing here retries: Unavailable says that the same call may work
later.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from psycopg_pool import ConnectionPool

from lakerunner.index.commit import Commit, write
from lakerunner.index.database import Connection, Database
from lakerunner.index.inspect import Inspect
from lakerunner.index.keys import Keys
from lakerunner.index.migrate import load_migrations, migrate
from lakerunner.index.organizations import Organizations, Retentions
from lakerunner.index.outbox import Outbox
from lakerunner.index.pushes import Pushes
from lakerunner.index.segments import Segments
from lakerunner.index.snapshot import Restored, Snapshot, snapshot
from lakerunner.index.sources import Sources
from lakerunner.index.sweep import Sweep
from lakerunner.index.tending import Tending


class Index:
    """Safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.organizations = Organizations(database)
        self.keys = Keys(database)
        self.sources = Sources(database)
        self.segments = Segments(database)
        self.tending = Tending(database, self.segments)
        self.pushes = Pushes(database)
        self.outbox = Outbox(database)
        self.retention = Retentions(database)
        self.sweep = Sweep(database)
        self.inspect = Inspect(database, self.segments)
        self.restored = Restored(database)

    @classmethod
    def open(cls, url: str, *, connections: int = 10) -> Index:
        """Unavailable if no server answers within about ten seconds, or if it turns us away."""
        return cls(Database.open(url, connections))

    def hurried(self) -> Index:
        """The same index for those with a client that waits: Unavailable within two seconds from a server that is
        frozen. It has the same connections, and is closed with this one."""
        return Index(self._database.hurried())

    @property
    def pool(self) -> ConnectionPool[Connection]:
        """For the bus, which has its tables in the same database."""
        return self._database.pool

    @property
    def url(self) -> str:
        """With its password: for connecting, never for a message."""
        return self._database.url

    def migrate(self) -> list[str]:
        """Bring the schema to this version; the names of the migrations applied now. Safe from several
        processes at once. UserError if the database is newer, or was made with another text of a
        migration."""
        return migrate(self._database, load_migrations())

    def commit(self, commit: Commit) -> None:
        """All of it, or Conflict and nothing of it."""
        with self._database.transaction() as transaction:
            write(transaction, commit)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The index at this moment, for a backup."""
        return snapshot(self._database)

    def close(self) -> None:
        """Closing twice is fine."""
        self.outbox.close()
        self._database.close()
