"""The index of the lake: everything in PostgreSQL, behind one object.

Comes in: a URL. Goes out: domain values. Nothing here retries: Unavailable means that the same call may work later.

The outbox holds the messages that transactions left to be published. The relay publishes them at least once. A message
is deleted in a transaction that is committed only after `publish` has returned: if publishing fails, or the process
dies before the commit, it is still there, and is published again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Lock

from psycopg_pool import ConnectionPool

from lakerunner.index.api_keys import Keys
from lakerunner.index.commit import Commit, write_commit
from lakerunner.index.commits import Commits
from lakerunner.index.database import Connection, Database, load_queries
from lakerunner.index.inspect import Inspect
from lakerunner.index.metric_rules import MetricRules
from lakerunner.index.migrate import load_migrations, migrate
from lakerunner.index.organizations import Organizations, Retentions
from lakerunner.index.pushes import Pushes
from lakerunner.index.rule_history import RuleHistory
from lakerunner.index.segments import Segments
from lakerunner.index.snapshot import RestoreTarget, Snapshot, snapshot
from lakerunner.index.sources import Sources
from lakerunner.index.sweep import Sweep
from lakerunner.index.tending import Tending

Publish = Callable[[Sequence[tuple[str, bytes]]], None]


class Outbox:
    """Messages to publish."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listener: Connection | None = None
        self._lock = Lock()  # guards the listener: one thread waits at a time

    def relay(self, publish: Publish, limit: int = 500) -> int:
        """Publish up to `limit` messages, oldest first; return how many. Messages that another relay holds are left to
        it. If `publish` raises, its error passes on and the messages stay."""
        with self._database.transaction() as transaction:
            rows = sorted(transaction.rows("outbox.take", {"limit": limit}))
            if rows:
                publish([(topic, payload) for _, topic, payload in rows])
        return len(rows)

    def wait(self, seconds: float) -> None:
        """Wait until something may have come into the outbox, at most this long. Messages since the last wait count;
        the first wait, and one after an Unavailable, returns at once, because nothing listened before it."""
        with self._lock, self._database.errors():
            if self._listener is None:
                self._listener = self._database.connect()
                self._listener.execute(load_queries()["outbox.listen"])
                return
            try:
                for _ in self._listener.notifies(timeout=seconds, stop_after=1):
                    pass
            except BaseException:
                self._forget_listener()
                raise

    def close(self) -> None:
        with self._lock:
            self._forget_listener()

    def _forget_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class Index:
    """The index. Safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.organizations = Organizations(database)
        self.keys = Keys(database)
        self.metric_rules = MetricRules(database)
        self.sources = Sources(database)
        self.segments = Segments(database)
        self.rule_history = RuleHistory(database, self.segments)
        self.commits = Commits(database, self.segments)
        self.tending = Tending(database, self.segments)
        self.pushes = Pushes(database)
        self.outbox = Outbox(database)
        self.retention = Retentions(database)
        self.sweep = Sweep(database)
        self.inspect = Inspect(database, self.segments)
        self.restore = RestoreTarget(database)

    @classmethod
    def open(cls, url: str, *, connections: int = 10) -> Index:
        """Connect. Unavailable if no server answers within about ten seconds, or if it refuses us."""
        return cls(Database.open(url, connections))

    def hurried(self) -> Index:
        """Return the same index for callers with a waiting client: Unavailable within two seconds from a frozen server.
        It shares the connections, and is closed with this one."""
        return Index(self._database.hurried())

    @property
    def pool(self) -> ConnectionPool[Connection]:
        """The pool, for the bus, which has its tables in the same database."""
        return self._database.pool

    @property
    def url(self) -> str:
        """The URL with its password: for connecting, never for a message."""
        return self._database.url

    def migrate(self) -> list[str]:
        """Bring the schema to this version; return the names of the migrations applied now. Safe from several processes
        at once. UserError if the database is newer, or was created with another text of a migration."""
        return migrate(self._database, load_migrations())

    def commit(self, commit: Commit) -> None:
        """Write all of it, or raise Conflict and write nothing."""
        with self._database.transaction() as transaction:
            write_commit(transaction, commit)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of the index at this moment, for a backup."""
        return snapshot(self._database)

    def close(self) -> None:
        """Close all connections. Closing twice is fine."""
        self.outbox.close()
        self._database.close()
