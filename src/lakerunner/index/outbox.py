"""The outbox: what transactions left to be said. The relay publishes it at least once, then forgets it.

A message is deleted in a transaction that is committed only after `publish` has returned: if publishing
fails, or the process dies before the commit, it is still there, and is published again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from lakerunner.index.database import Connection, Database
from lakerunner.index.queries import load_queries

Publish = Callable[[Sequence[tuple[str, bytes]]], None]


class Outbox:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._listener: Connection | None = None
        self._lock = Lock()  # over the listener: one waits at a time

    def relay(self, publish: Publish, limit: int = 500) -> int:
        """Publish up to limit messages, oldest first; how many. What another relay holds is left to it. If
        publish raises, its error goes up and the messages stay."""
        with self._database.transaction() as transaction:
            rows = sorted(transaction.rows("outbox.take", {"limit": limit}))
            if rows:
                publish([(topic, payload) for _, topic, payload in rows])
        return len(rows)

    def wait(self, seconds: float) -> None:
        """Until something may have come into the outbox, at most so long. What came since the last wait
        counts; the first wait, and one after an Unavailable, returns at once, as nobody listened before
        it."""
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
