"""The connection to PostgreSQL: a pool, transactions, named queries, and psycopg's errors translated to ours.

Comes in: a URL. Goes out: rows of the named queries of queries/*.sql, where a section starts with `-- name: NAME` and
its key is `FILE.NAME`.

What always holds: a `transaction` is committed when its block ends and rolled back when the block raises. No message
has the password, and none that a client may see has the server's address. A broken connection, a deadlock or a
serialization failure is Unavailable, so the caller repeats the whole transaction later. Once a wait for the server was
in vain, no other caller waits until it answers again; callers with a waiting client use `hurried`, which gives up a
frozen server (both reach.py).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import cache, partial
from importlib.resources import files
from typing import Any

import orjson
import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

from lakerunner.index.reach import PROBE_AFTER, Patience, PatientConnection, Reach, patient, server_answers
from lakerunner.model.errors import Conflict, Corrupt, LakerunnerError, NotFound, Unavailable, UserError

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_queries() -> Mapping[str, bytes]:
    """Return every query by its key. Text in a file before its first name is a comment on the file."""
    queries: dict[str, bytes] = {}
    for file in (files("lakerunner.index") / "queries").iterdir():
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            key = f"{file.name.removesuffix('.sql')}.{name}"
            if key in queries:
                raise ValueError(f"query {key} appears twice in {file.name}")
            queries[key] = text.strip().encode()
    return queries


Connection = psycopg.Connection[TupleRow]
Rows = list[TupleRow]

_WAIT_SECONDS = 10.0  # for a starting server, and for a free connection
_PROBE_SECONDS = 2.0

# Keepalives detect a machine that is gone within about half a minute.
_CONNECT: dict[str, Any] = {
    "connect_timeout": int(_WAIT_SECONDS),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
    "application_name": "lakerunner",
}


class Transaction:
    """An open transaction. Only Database.transaction creates it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._queries = load_queries()

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> Rows:
        return self.connection.execute(self._queries[query], parameters).fetchall()

    def run(self, query: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Run the statement; return how many rows it wrote."""
        return self.connection.execute(self._queries[query], parameters).rowcount

    def run_each(self, query: str, parameters: Sequence[Mapping[str, Any]]) -> int:
        """Run the statement once for each parameter set, in one round trip; return how many rows all of them wrote."""
        with self.connection.cursor() as cursor:
            cursor.executemany(self._queries[query], parameters)
            return cursor.rowcount


def arrays_of(items: Sequence[Any], **fields: str) -> dict[str, list[Any]]:
    """Return fields of the items as arrays, by the names that a query has for these."""
    return {name: [getattr(item, field) for item in items] for name, field in fields.items()}


def publish_later(transaction: Transaction, messages: Sequence[tuple[str, bytes]]) -> None:
    """Put (topic, payload) messages into the outbox; the relay publishes them after the commit."""
    if messages:
        topics, payloads = (list(column) for column in zip(*messages, strict=True))
        transaction.run("outbox.insert", {"topics": topics, "payloads": payloads})
        transaction.rows("outbox.notify")


def _parse_json(text: str | bytes) -> Any:
    """Parse with orjson, because Python's own parser would take as long as everything else that is done for a segment.
    Only Python's reads names with lone surrogates."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


class Database:
    """The server. `address` is host, port and database name, for messages; `clock` counts seconds."""

    def __init__(
        self, url: str, address: str, pool: ConnectionPool[Connection], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = url
        self.address = address
        self.pool = pool
        self._clock = clock
        self._hurries = False
        self._reach = Reach(lambda: server_answers(url, _PROBE_SECONDS, clock), clock, f"PostgreSQL at {address}")

    @classmethod
    def open(cls, url: str, connections: int) -> Database:
        """Connect, waiting for a server that does not answer yet; one that refuses us is Unavailable at once."""
        if connections < 2:
            raise UserError(
                f"database_connections must be 2 or more, one to relay and one to publish, not {connections}"
            )
        address = _parse_address(url)
        pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            kwargs=_CONNECT,
            connection_class=PatientConnection,
            min_size=1,
            max_size=connections,
            open=False,
            check=ConnectionPool.check_connection,
            configure=partial(set_json_loads, _parse_json),
            timeout=_WAIT_SECONDS,
            # Its pauses between tries double: with the default of minutes, a returned server would be found as late.
            reconnect_timeout=_WAIT_SECONDS,
            name="index",
        )
        database = cls(url, address, pool)
        database._wait_for_server()
        return database

    def _wait_for_server(self) -> None:
        try:
            psycopg.connect(self.url, **_CONNECT).close()
        except psycopg.Error as error:
            refusal = _one_line(error)
            if isinstance(error, errors.ConnectionTimeout) or server_answers(self.url, _WAIT_SECONDS, self._clock):
                raise Unavailable(f"cannot use PostgreSQL at {self.address}: {refusal}") from None
        else:
            refusal = "it has just stopped answering"
        try:
            self.pool.open(wait=True, timeout=_WAIT_SECONDS)
        except psycopg.Error:
            self.pool.close()
            raise Unavailable(
                f"PostgreSQL at {self.address} does not answer within {_WAIT_SECONDS:g} s: {refusal}"
            ) from None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction. Unavailable at once while the server is known to be away."""
        self._reach.check()
        patience = patient(Patience(self._reach.missed, self._clock)) if self._hurries else nullcontext()
        with self.errors(), patience:
            connection = self._connection()
            try:
                with connection:
                    yield Transaction(connection)
            finally:
                self.pool.putconn(connection)

    def hurried(self) -> Database:
        """Return the same server and pool for callers with a waiting client: a frozen server is given up within two
        seconds, while loops wait for it."""
        other = copy(self)
        other._hurries = True
        return other

    def _connection(self) -> Connection:
        """Take a connection from the pool. If hurried, try again while the server answers and all are in use."""
        if not self._hurries:
            return self.pool.getconn()
        end = self._clock() + self.pool.timeout
        while True:
            try:
                return self.pool.getconn(min(PROBE_AFTER, self.pool.timeout))
            except PoolTimeout:
                if self._clock() >= end or not self._reach.missed():
                    raise

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> Rows:
        """Run one query in its own transaction."""
        with self.transaction() as transaction:
            return transaction.rows(query, parameters)

    def run(self, query: str, parameters: Mapping[str, Any] | None = None) -> int:
        with self.transaction() as transaction:
            return transaction.run(query, parameters)

    def connect(self) -> Connection:
        """Open a connection outside the pool, in autocommit, which the caller closes."""
        with self.errors():
            return psycopg.connect(self.url, autocommit=True, **_CONNECT)

    def close(self) -> None:
        self.pool.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate psycopg's errors to ours; others are mistakes in our own SQL and pass unchanged."""
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError) as error:
            is_busy = isinstance(error, PoolTimeout) and self._reach.missed()
            translated = _translate_error(error, self.address, is_busy=is_busy)
            if translated is None:
                raise
            raise translated from error


def _translate_error(
    error: psycopg.Error | UnicodeEncodeError, address: str, *, is_busy: bool
) -> LakerunnerError | None:
    match error:
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            return Unavailable(
                "the database has no tables of this version: start a service of this version, which creates them",
                detail=f"PostgreSQL at {address}: {_one_line(error)}",
            )
        case errors.InsufficientPrivilege():
            return UserError(f"PostgreSQL denied access: {_one_line(error)}")
        case errors.ForeignKeyViolation():
            return NotFound(f"no such row in the index: {error.diag.message_detail or _one_line(error)}")
        case errors.UniqueViolation():
            return Conflict(f"it exists already: {error.diag.message_detail or _one_line(error)}")
        case psycopg.DataError() | UnicodeEncodeError():
            return Corrupt(f"PostgreSQL cannot store this value: {_one_line(error)}")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.ReadOnlySqlTransaction():
            detail = f"PostgreSQL at {address}: {_one_line(error) or type(error).__name__}"
            return Unavailable(
                f"PostgreSQL is busy: {_one_line(error)}" if is_busy else _public_text(error), detail=detail
            )
    return None


def _public_text(error: psycopg.Error) -> str:
    """Return what a client may read: libpq's messages about a lost connection name host, port, user and database."""
    return (
        f"PostgreSQL cancelled the statement: {type(error).__name__}"
        if error.sqlstate
        else "PostgreSQL does not answer"
    )


def _parse_address(url: str) -> str:
    """Return host, port and database of the URL. The URL itself may hold a password and is in no message."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise UserError(
            "setting database_url is not a PostgreSQL URL: write "
            "postgresql://user:password@host:5432/database, with special characters "
            "percent-encoded"
        ) from None
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def _one_line(error: Exception) -> str:
    """Return the error's text on one line."""
    return " ".join(str(error).split())
