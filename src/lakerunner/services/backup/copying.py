"""Objects from one store to another, through a file of this machine where neither is one.

What always holds: no object is in memory as a whole, some are copied at once and never more; what arrives has the
digest that is stated for it, or nothing arrives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

from lakerunner.model.errors import Absent, Corrupt, Unavailable
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.backup.catalog import Entry, raw_place

AT_ONCE = 8
_STEP = 8 << 20
_TRIES = 5  # at an object that is being written again while it is read

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Copying:
    """From one store to the other; `work` is a directory for what passes through."""

    source: ObjectStore
    target: ObjectStore
    work: Path

    def segment(self, entry: Entry, *, is_there: bool) -> Entry:
        """Back up a file of a segment. `is_there`: an interrupted backup has copied it, and its digest was lost."""
        if is_there:
            with self._file(self.target, entry.place, entry.size) as path:
                return replace(entry, digest=file_digest(path))
        with self._file(self.source, entry.key, entry.size) as path:
            digest = file_digest(path)
            self.target.put_file(entry.place, path)
        return replace(entry, digest=digest)

    def raw(self, entry: Entry) -> Entry:
        """Back up a raw object as it is now."""
        with self._still(entry.key) as (path, meta):
            digest = file_digest(path)
            if not _has(self.target, raw_place(digest), meta.size):
                self.target.put_file(raw_place(digest), path)
        return replace(entry, size=meta.size, etag=meta.etag, modified_ns=meta.modified_ns, digest=digest)

    def back(self, entry: Entry) -> None:
        """Restore an object. Corrupt, by its name in the backup, if it is not what was backed up."""
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
        """Write an object of the source, whatever its size, to this file."""
        meta = self.source.head(key)
        with path.open("wb") as out:
            _pour(self.source, key, meta.size, out.write)

    @contextmanager
    def _file(self, store: ObjectStore, key: str, size: int) -> Iterator[Path]:
        """The object as a file. Absent if there is none; Corrupt if it is of another size."""
        path = store.local_path(key)
        if path is not None:
            try:
                found = path.stat().st_size
                if found != size:
                    raise Corrupt(f"object {key} has {found} bytes, not {size}")
                yield path
            except FileNotFoundError:  # swept since
                raise Absent(f"object {key} was deleted") from None
            return
        with NamedTemporaryFile(dir=self.work) as spool:
            _pour(store, key, size, spool.write)
            spool.flush()
            yield Path(spool.name)

    @contextmanager
    def _still(self, key: str) -> Iterator[tuple[Path, ObjectMeta]]:
        """A copy of a raw object that was not written again while it was read."""
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
        raise Unavailable(f"raw object {key} is being overwritten all the time: try later")


def at_once(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Some at a time, in threads; a page of things, not a whole lake."""
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
