"""The objects of one backup, as an SQLite file: what the lake calls each, and where it is in the backup.

What always holds: memory does not grow with the number of objects. An object without a digest is not in the backup, or
not yet. Files of segments never change and keep their keys; a raw object may be written again under its key, so raw
objects are named by their digests, and those of an earlier backup stay what they were.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakerunner.model.errors import Corrupt

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
# What an earlier catalog knows of the same object: listings of local files have no etag, their time has to do.
_ADOPT = f"""
UPDATE main.objects AS o SET digest = b.digest, etag = b.etag
FROM earlier.objects AS b
WHERE b.key = o.key AND b.size = o.size AND b.digest IS NOT NULL AND o.digest IS NULL
  AND (o.kind = '{SEGMENT}' OR (b.modified_ns = o.modified_ns AND (o.etag IS NULL OR o.etag = b.etag)))
"""


@dataclass(frozen=True)
class Entry:
    """`kind`: a file of a segment, a raw object that a listing showed, or one that waits to be ingested."""

    key: str
    kind: str
    size: int
    etag: str | None = None
    modified_ns: int = 0
    digest: str | None = None

    @property
    def place(self) -> str:
        """Where the backup has it; of a raw object, once its digest is known."""
        return SEGMENTS_AT + self.key if self.kind == SEGMENT else raw_place(self.digest or "")


def raw_place(digest: str) -> str:
    return f"{RAW_AT}{digest[:2]}/{digest}"


class Catalog:
    """Used by one thread. Every change is on disk when its call returns."""

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
        """Those that are new; of a raw object that was listed and waits, that it waits."""
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
        """(place, size) of what the backup's store holds."""
        self._file.executemany("INSERT OR REPLACE INTO present VALUES (?, ?)", places)
        self._file.commit()

    def adopt(self, earlier: Path) -> None:
        """Take the digests of objects that an earlier backup, or an earlier try at this one, has copied."""
        self._file.execute("ATTACH DATABASE ? AS earlier", (str(earlier),))
        self._file.execute(_ADOPT)
        self._file.commit()
        self._file.execute("DETACH DATABASE earlier")

    def forget_absent(self) -> None:
        """Of what was adopted, what is in the backup's store no more is to be copied again."""
        self._file.execute(
            f"UPDATE objects SET digest = NULL WHERE digest IS NOT NULL "
            f"AND NOT EXISTS (SELECT 1 FROM present WHERE place = {_PLACE} AND present.size = objects.size)"
        )
        self._file.commit()

    def there(self, page: list[Entry]) -> set[str]:
        """The keys of those files of segments that the backup's store had, whole, when it was listed."""
        query = "SELECT count(*) FROM present WHERE place = ? AND size = ?"
        return {one.key for one in page if one.kind == SEGMENT and self._one(query, one.place, one.size)}

    def finish(self, entries: Iterable[Entry]) -> None:
        """These are in the backup, with the size, etag, time and digest that they were copied with."""
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
        """Raw objects that a listing showed."""
        return self._pages(f"kind = '{RAW}'")

    def _pages(self, condition: str) -> Iterator[list[Entry]]:
        """Entries in the order of their keys; they may be changed and dropped meanwhile."""
        after = ""
        query = f"SELECT {_COLUMNS} FROM objects WHERE key > ? AND {condition} ORDER BY key LIMIT ?"
        while page := [Entry(*row) for row in self._file.execute(query, (after, PAGE))]:
            yield page
            after = page[-1].key

    def unnamed(self, places: list[str]) -> list[str]:
        """Those of at most PAGE places that no entry has."""
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
        """(segments' files, their bytes, raw objects, their bytes)."""
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
