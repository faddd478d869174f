"""Copy objects from one store to another, through a local file if neither store is local.

What always holds: no object is in memory as a whole, and a fixed number is copied at a time. A copy has the digest that
is stated for it, or it is not written.

The catalog lists the objects of a backup in an SQLite file: what the lake calls each, and where it is in the backup.
Memory does not grow with their number. An object without a digest is not in the backup, or not yet. Files of segments
never change and keep their keys; a raw object may be overwritten under its key, so raw objects are named by their
digests, and those of an earlier backup stay as they were.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from lakerunner.model.errors import Absent, Corrupt, Unavailable
from lakerunner.objects.store import ObjectMeta, ObjectStore

AT_ONCE = 8
_STEP = 8 << 20
_TRIES = 5  # for an object that is overwritten while it is read

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Copying:
    """Copies from one store to the other; `work` is a directory for temporary files."""

    source: ObjectStore
    target: ObjectStore
    work: Path

    def segment(self, entry: Entry, *, is_there: bool) -> Entry:
        """Back up a file of a segment. `is_there`: an interrupted backup has copied it without noting its digest."""
        if is_there:
            with self._file(self.target, entry.place, entry.size) as path:
                return replace(entry, digest=file_digest(path))
        with self._file(self.source, entry.key, entry.size) as path:
            digest = file_digest(path)
            self.target.put_file(entry.place, path)
        return replace(entry, digest=digest)

    def raw(self, entry: Entry) -> Entry:
        """Back up a raw object in its current state."""
        with self._consistent_copy(entry.key) as (path, meta):
            digest = file_digest(path)
            if not _has(self.target, raw_place(digest), meta.size):
                self.target.put_file(raw_place(digest), path)
        return replace(entry, size=meta.size, etag=meta.etag, modified_ns=meta.modified_ns, digest=digest)

    def back(self, entry: Entry) -> None:
        """Restore an object. Corrupt, with its name in the backup, if it is not what was backed up."""
        try:
            with self._file(self.source, entry.place, entry.size) as path:
                if file_digest(path) != entry.digest:
                    raise Corrupt(
                        f"{entry.place} of the backup is damaged: restore another backup. If the original "
                        "lake still exists, delete this object and back up again"
                    )
                self.target.put_file(entry.key, path)
        except Absent:
            raise Corrupt(f"{entry.place} of the backup is missing") from None

    def fetch(self, key: str, path: Path) -> None:
        """Write an object of the source, of any size, to this file."""
        meta = self.source.head(key)
        with path.open("wb") as out:
            _pour(self.source, key, meta.size, out.write)

    @contextmanager
    def _file(self, store: ObjectStore, key: str, size: int) -> Iterator[Path]:
        """Yield the object as a local file. Absent if it does not exist; Corrupt if it has another size."""
        path = store.local_path(key)
        if path is not None:
            try:
                found = path.stat().st_size
                if found != size:
                    raise Corrupt(f"object {key} has {found} bytes, not {size}")
                yield path
            except FileNotFoundError:  # swept meanwhile
                raise Absent(f"object {key} was deleted") from None
            return
        with NamedTemporaryFile(dir=self.work) as spool:
            _pour(store, key, size, spool.write)
            spool.flush()
            yield Path(spool.name)

    @contextmanager
    def _consistent_copy(self, key: str) -> Iterator[tuple[Path, ObjectMeta]]:
        """Yield a consistent copy of a raw object: one that was not overwritten while it was read."""
        with NamedTemporaryFile(dir=self.work) as spool:
            for _ in range(_TRIES):
                spool.seek(0)
                spool.truncate()
                before = self.source.head(key)
                try:
                    _pour(self.source, key, before.size, spool.write)
                except Absent:
                    raise
                except Corrupt:  # it has become shorter
                    continue
                spool.flush()
                after = self.source.head(key)
                if (after.size, after.etag) == (before.size, before.etag):
                    yield Path(spool.name), after
                    return
        raise Unavailable(f"raw object {key} is overwritten continuously: try again later")


def at_once(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Do the work for each of a page of things, a fixed number at a time, in threads."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(work, things))


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _has(store: ObjectStore, key: str, size: int) -> bool:
    try:
        path = store.local_path(key)
        return (store.head(key).size if path is None else path.stat().st_size) == size
    except (Absent, FileNotFoundError):
        return False


def _pour(store: ObjectStore, key: str, size: int, write: Callable[[memoryview], object]) -> None:
    for start in range(0, size, _STEP):
        write(store.get_range(key, start, min(_STEP, size - start)))


SEGMENT, RAW, WAITING = "segment", "raw", "waiting"
SEGMENTS_AT, RAW_AT = "objects/", "raw/"
PAGE = 500

_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT, modified_ns INTEGER NOT NULL, digest TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS objects_by_digest ON objects (digest);
CREATE TEMP TABLE present (place TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE moved (
    key TEXT PRIMARY KEY, etag TEXT NOT NULL, new_etag TEXT NOT NULL, modified_ns INTEGER NOT NULL
) WITHOUT ROWID;
"""
_RAW_PLACE = f"'{RAW_AT}' || substr(digest, 1, 2) || '/' || digest"
_PLACE = f"CASE kind WHEN '{SEGMENT}' THEN '{SEGMENTS_AT}' || key ELSE {_RAW_PLACE} END"
_COLUMNS = "key, kind, size, etag, modified_ns, digest"
# What an earlier catalog has for the same object. Listings of local files have no etag: their time is compared.
_ADOPT = f"""
UPDATE main.objects AS o SET digest = b.digest, etag = b.etag
FROM earlier.objects AS b
WHERE b.key = o.key AND b.size = o.size AND b.digest IS NOT NULL AND o.digest IS NULL
  AND (o.kind = '{SEGMENT}' OR (b.modified_ns = o.modified_ns AND (o.etag IS NULL OR o.etag = b.etag)))
"""


@dataclass(frozen=True)
class Entry:
    """An object of a backup. `kind`: a file of a segment, a listed raw object, or one that waits to be ingested."""

    key: str
    kind: str
    size: int
    etag: str | None = None
    modified_ns: int = 0
    digest: str | None = None

    @property
    def place(self) -> str:
        """Return its key in the backup; a raw object has one once its digest is known."""
        return SEGMENTS_AT + self.key if self.kind == SEGMENT else raw_place(self.digest or "")


def raw_place(digest: str) -> str:
    return f"{RAW_AT}{digest[:2]}/{digest}"


class Catalog:
    """The list of the objects of a backup. One thread uses it. Every change is on disk when its call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = sqlite3.connect(path)
        try:
            self._file.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise Corrupt(f"cannot read the catalog of the backup: {error}") from error

    def close(self) -> None:
        self._file.close()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries. If a raw object was added as listed, note that it waits to be ingested."""
        values = ((one.key, one.kind, one.size, one.etag, one.modified_ns) for one in entries)
        self._file.executemany(
            "INSERT INTO objects (key, kind, size, etag, modified_ns) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET kind = excluded.kind",
            values,
        )
        self._file.commit()

    def drop(self, keys: Iterable[str]) -> None:
        self._file.executemany("DELETE FROM objects WHERE key = ?", ((key,) for key in keys))
        self._file.commit()

    def see(self, places: Iterable[tuple[str, int]]) -> None:
        """Note (key, size) of the objects in the backup's store."""
        self._file.executemany("INSERT OR REPLACE INTO present VALUES (?, ?)", places)
        self._file.commit()

    def adopt(self, earlier: Path) -> None:
        """Take over the digests of objects that an earlier backup, or an earlier attempt at this one, has copied."""
        self._file.execute("ATTACH DATABASE ? AS earlier", (str(earlier),))
        self._file.execute(_ADOPT)
        self._file.commit()
        self._file.execute("DETACH DATABASE earlier")

    def forget_absent(self) -> None:
        """Drop the adopted digests of objects that are no longer in the backup's store, so that they are copied
        again."""
        self._file.execute(
            f"UPDATE objects SET digest = NULL WHERE digest IS NOT NULL "
            f"AND NOT EXISTS (SELECT 1 FROM present WHERE place = {_PLACE} AND present.size = objects.size)"
        )
        self._file.commit()

    def there(self, page: list[Entry]) -> set[str]:
        """Return the keys of the segment files of this page that the backup's store had with their full size."""
        query = "SELECT count(*) FROM present WHERE place = ? AND size = ?"
        return {one.key for one in page if one.kind == SEGMENT and self._one(query, one.place, one.size)}

    def finish(self, entries: Iterable[Entry]) -> None:
        """Note that these are in the backup, with the size, etag, time and digest of their copies."""
        self._file.executemany(
            "UPDATE objects SET size = ?, etag = ?, modified_ns = ?, digest = ? WHERE key = ?",
            ((one.size, one.etag, one.modified_ns, one.digest, one.key) for one in entries),
        )
        self._file.commit()

    def to_copy(self) -> Iterator[list[Entry]]:
        return self._pages("digest IS NULL")

    def copied(self) -> Iterator[list[Entry]]:
        return self._pages("digest IS NOT NULL")

    def raw(self) -> Iterator[list[Entry]]:
        """Yield the raw objects of the listing, in pages."""
        return self._pages(f"kind = '{RAW}'")

    def _pages(self, condition: str) -> Iterator[list[Entry]]:
        """Yield pages of entries in the order of their keys; entries may be changed and dropped meanwhile."""
        after = ""
        query = f"SELECT {_COLUMNS} FROM objects WHERE key > ? AND {condition} ORDER BY key LIMIT ?"
        while page := [Entry(*row) for row in self._file.execute(query, (after, PAGE))]:
            yield page
            after = page[-1].key

    def unnamed(self, places: list[str]) -> list[str]:
        """Return those of at most PAGE keys of the backup that no entry has."""
        keys = [place.removeprefix(SEGMENTS_AT) for place in places if place.startswith(SEGMENTS_AT)]
        digests = [place.rpartition("/")[2] for place in places if place.startswith(RAW_AT)]
        found = self._file.execute(
            f"SELECT {_PLACE} FROM objects WHERE key IN ({_marks(keys)}) UNION ALL "
            f"SELECT {_PLACE} FROM objects WHERE digest IN ({_marks(digests)})",
            (*keys, *digests),
        )
        named = {place for (place,) in found}
        return [place for place in places if place not in named]

    def move(self, moves: Iterable[tuple[str, str, str, int]]) -> None:
        """Note (key, etag, etag now, modified_ns now) of raw objects that were restored."""
        self._file.executemany("INSERT OR REPLACE INTO moved VALUES (?, ?, ?, ?)", moves)
        self._file.commit()

    def moves(self) -> Iterator[list[tuple[str, str, str, int]]]:
        cursor = self._file.execute("SELECT key, etag, new_etag, modified_ns FROM moved")
        while page := cursor.fetchmany(PAGE):
            yield page

    def changed_etags(self) -> int:
        return self._one("SELECT count(*) FROM moved WHERE etag <> new_etag")

    def totals(self, condition: str = "true") -> tuple[int, int, int, int]:
        """Return (files of segments, their bytes, raw objects, their bytes)."""
        files, raws = f"FILTER (WHERE kind = '{SEGMENT}')", f"FILTER (WHERE kind <> '{SEGMENT}')"
        row = self._file.execute(
            f"SELECT count(*) {files}, coalesce(sum(size) {files}, 0), count(*) {raws}, coalesce(sum(size) {raws}, 0) "
            f"FROM objects WHERE {condition}"
        ).fetchone()
        return (row[0], row[1], row[2], row[3])

    def _one(self, query: str, *values: Any) -> int:
        return int(self._file.execute(query, values).fetchone()[0])


def _marks(values: list[str]) -> str:
    return ", ".join("?" * len(values))
