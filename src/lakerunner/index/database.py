"""The way to PostgreSQL: a pool, transactions, named queries, and psycopg's errors told as ours.

Comes in: a URL. Goes out: rows of named queries (queries.py). What always holds: a `transaction` is committed
when its block ends and rolled back when the block raises; no message names the password, and none that a client may see
the server's address; trouble with the connection, a deadlock or a serialization failure is Unavailable, so the caller
does the whole transaction again later. Once a wait for the server was in vain nobody else waits until it answers again
(reach.py); who has a client waiting asks through `hurried`, which gives a frozen server up (patience.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from typing import Any

import orjson
import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

from lakerunner.index.patience import PROBE_AFTER, Patience, PatientConnection, patient
from lakerunner.index.queries import load_queries
from lakerunner.index.reach import Reach, server_answers
from lakerunner.model.errors import Conflict, Corrupt, LakerunnerError, NotFound, Unavailable, UserError

Connection = psycopg.Connection[TupleRow]
Rows = list[TupleRow]

_WAIT_SECONDS = 10.0  # for a server that is starting, and for a free connection
_PROBE_SECONDS = 2.0

# A server whose machine is gone is noticed within about half a minute.
_CONNECT: dict[str, Any] = {
    "connect_timeout": int(_WAIT_SECONDS),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
    "application_name": "lakerunner",
}


class Transaction:
    """One open transaction. Only Database.transaction makes it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._queries = load_queries()

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> Rows:
        return self.connection.execute(self._queries[query], parameters).fetchall()

    def run(self, query: str, parameters: Mapping[str, Any] | None = None) -> int:
        """How many rows the statement wrote."""
        return self.connection.execute(self._queries[query], parameters).rowcount

    def run_each(self, query: str, parameters: Sequence[Mapping[str, Any]]) -> int:
        """The statement once for each parameter set, in one round trip; how many rows all of them wrote."""
        with self.connection.cursor() as cursor:
            cursor.executemany(self._queries[query], parameters)
            return cursor.rowcount


def _json(text: str | bytes) -> Any:
    """What the index says of a segment is JSON; Python's own reader takes as long for it as all else that is done for
    the segment, and is for what only it reads: names with half a character in them."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


class Database:
    """`address` is host, port and database name, for messages; `clock` counts seconds."""

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
        """Waits for a server that does not answer yet; one that turns us away is Unavailable at once."""
        if connections < 2:
            raise UserError(
                f"database_connections must be 2 or more, one to relay and one to publish, not {connections}"
            )
        address = _address_of(url)
        pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            kwargs=_CONNECT,
            connection_class=PatientConnection,
            min_size=1,
            max_size=connections,
            open=False,
            check=ConnectionPool.check_connection,
            configure=partial(set_json_loads, _json),
            timeout=_WAIT_SECONDS,
            # Its pauses between tries double: left at minutes, a server that is back would be found as late.
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
            refusal = _line(error)
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
        """Unavailable at once while the server is known to be away."""
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
        """The same server and pool, for those with a client that waits: a server that is frozen is given up within two
        seconds, where the work of loops waits for it."""
        other = copy(self)
        other._hurries = True
        return other

    def _connection(self) -> Connection:
        """From the pool. In a hurry it is tried for again where the server is there and only all are in use."""
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
        """One query in a transaction of its own."""
        with self.transaction() as transaction:
            return transaction.rows(query, parameters)

    def run(self, query: str, parameters: Mapping[str, Any] | None = None) -> int:
        with self.transaction() as transaction:
            return transaction.run(query, parameters)

    def connect(self) -> Connection:
        """A connection of the caller's own, outside the pool, in autocommit."""
        with self.errors():
            return psycopg.connect(self.url, autocommit=True, **_CONNECT)

    def close(self) -> None:
        self.pool.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """psycopg's errors as ours; what is left is a mistake in our own SQL and stays as it is."""
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError) as error:
            is_busy = isinstance(error, PoolTimeout) and self._reach.missed()
            told = _told(error, self.address, is_busy=is_busy)
            if told is None:
                raise
            raise told from error


def _told(error: psycopg.Error | UnicodeEncodeError, address: str, *, is_busy: bool) -> LakerunnerError | None:
    match error:
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            return Unavailable(
                "the database has no tables of this version: start a service of this version, which creates them",
                detail=f"PostgreSQL at {address}: {_line(error)}",
            )
        case errors.InsufficientPrivilege():
            return UserError(f"PostgreSQL denied access: {_line(error)}")
        case errors.ForeignKeyViolation():
            return NotFound(f"no such row in the index: {error.diag.message_detail or _line(error)}")
        case errors.UniqueViolation():
            return Conflict(f"it exists already: {error.diag.message_detail or _line(error)}")
        case psycopg.DataError() | UnicodeEncodeError():
            return Corrupt(f"PostgreSQL cannot store this value: {_line(error)}")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.ReadOnlySqlTransaction():
            detail = f"PostgreSQL at {address}: {_line(error) or type(error).__name__}"
            return Unavailable(f"PostgreSQL is busy: {_line(error)}" if is_busy else _public(error), detail=detail)
    return None


def _public(error: psycopg.Error) -> str:
    """What a client may read: libpq's own texts of a lost connection name host, port, user and database."""
    return (
        f"PostgreSQL cancelled the statement: {type(error).__name__}"
        if error.sqlstate
        else "PostgreSQL does not answer"
    )


def _address_of(url: str) -> str:
    """Host, port and database that the URL names. Its text, which may hold a password, is in no message."""
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


def _line(error: Exception) -> str:
    """The error's text on one line."""
    return " ".join(str(error).split())
