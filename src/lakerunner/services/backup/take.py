"""`lakerunner backup`: copy the index at one moment and every object that it names, while the lake runs.

Comes in: settings of a lake, a store, what to leave out. Goes out: a manifest, written last.

What always holds: raw objects are listed before the index is dumped, so the dump knows of every pushed request in them
and none can count twice after a restore. Objects are copied after the dump. If one is gone by then, its segment was
replaced and swept: the index is dumped again and only what is new is copied. So a backup with a manifest is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lakerunner.index.index import Index
from lakerunner.index.snapshot import NamedObject, Snapshot
from lakerunner.model.display import plural
from lakerunner.model.errors import Absent, Corrupt, Unavailable
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.objects.open import shared_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.backup.copying import (
    PAGE,
    RAW,
    RAW_AT,
    SEGMENT,
    SEGMENTS_AT,
    WAITING,
    Catalog,
    Copying,
    Entry,
    at_once,
    file_digest,
)
from lakerunner.services.backup.manifest import (
    CATALOG,
    DUMP,
    Manifest,
    forget_manifest,
    list_backups,
    new_name,
    place_of,
    write_manifest,
)
from lakerunner.services.ground import inspected, store_address
from lakerunner.settings import Settings

_TRIES = 5  # at a dump whose objects all still exist
_MANY = 10_000  # missing objects: it is not worth continuing with this dump
Say = Callable[[str], None]


@dataclass(frozen=True)
class BackupRequest:
    """What to back up. `without_raw`: only raw objects that are not ingested yet. `prune`: remove earlier backups, and
    objects that this one does not name."""

    without_raw: bool = False
    index_only: bool = False
    prune: bool = False


def run_backup(settings: Settings, target: ObjectStore, request: BackupRequest, say: Say) -> Manifest:
    with inspected(settings) as index, TemporaryDirectory(prefix="lakerunner-backup-") as at:
        store = shared_store(store_address(settings))
        return Backup(settings, index, store, target, Path(at)).take(request, say)


@dataclass(frozen=True)
class Backup:
    settings: Settings
    index: Index
    store: ObjectStore
    target: ObjectStore
    work: Path

    def take(self, request: BackupRequest, say: Say) -> Manifest:
        """Take the backup. Unavailable if objects are swept before they are copied; Corrupt if the lake itself lacks
        some."""
        name = new_name(datetime.now(UTC))
        earlier = self._last_catalog()
        absent: set[str] = set()
        for attempt in range(_TRIES):
            with closing(Catalog(self.work / f"{attempt}.sqlite")) as catalog:
                moment = self._dump(catalog, request, say)
                gone = set() if request.index_only else self._copy(catalog, earlier, say)
                lost = _leave_out(catalog, gone & absent)
                if gone <= absent:
                    manifest = self._manifest(catalog, name, moment, request, lost)
                    self._finish(catalog, manifest, say, prune=request.prune)
                    return manifest
            absent |= gone
            earlier = [*earlier, catalog.path]
            say(f"{plural(len(gone), 'object')} swept before the copy: the index is dumped again")
        raise Unavailable(
            f"objects were swept before they were copied, in each of {_TRIES} attempts: raise "
            f"sweep_grace_seconds, now {self.settings.sweep_grace_seconds:g}, above the time that "
            "a backup takes"
        )

    def _last_catalog(self) -> list[Path]:
        """Return the catalog of the last complete backup in this store, if there is one."""
        last = list_backups(self.target).last
        if last is None:
            return []
        path = self.work / "last.sqlite"
        Copying(self.target, self.target, self.work).fetch(place_of(last) + CATALOG, path)
        return [path]

    def _dump(self, catalog: Catalog, request: BackupRequest, say: Say) -> dict[str, Any]:
        """Dump the index; return its time and versions, which are fields of the manifest."""
        if not request.index_only:
            say("listing raw objects")
            for root in self.settings.routes.roots:
                catalog.add(Entry(m.key, RAW, m.size, m.etag, m.modified_ns) for m in self.store.list(root))
        with self.index.snapshot() as snapshot:
            time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            say("dumping the index")
            snapshot.dump(self.work / DUMP)
            if not request.index_only:
                self._name(catalog, snapshot, without_raw=request.without_raw)
            return {"time": time, "postgres": snapshot.postgres, "migration": snapshot.migration}

    def _name(self, catalog: Catalog, snapshot: Snapshot, *, without_raw: bool) -> None:
        bucket = self.store.bucket
        if without_raw:
            for page in catalog.raw():
                catalog.drop(snapshot.ingested(bucket, [NamedObject(o.key, o.size, o.modified_ns) for o in page]))
        catalog.add(Entry(one.key, SEGMENT, one.size) for one in snapshot.segment_files())
        catalog.add(Entry(one.key, WAITING, one.size, modified_ns=one.modified_ns) for one in snapshot.waiting(bucket))

    def _copy(self, catalog: Catalog, earlier: list[Path], say: Say) -> set[str]:
        """Copy what is missing in the backup; return the keys of objects that the index names and the store does not
        have."""
        say("copying objects")
        for place in (SEGMENTS_AT, RAW_AT):
            catalog.see((meta.key, meta.size) for meta in self.target.list(place))
        for path in earlier:
            catalog.adopt(path)
        catalog.forget_absent()
        copying = Copying(self.store, self.target, self.work)
        files, file_bytes, raws, raw_bytes = catalog.totals("digest IS NULL")
        done, done_bytes, gone = 0, 0, set[str]()
        for page in catalog.to_copy():
            there = catalog.there(page)
            copied = at_once(partial(_copy_entry, copying, there), page)
            catalog.finish(entry for entry in copied if entry.digest)
            absent = [entry for entry in copied if not entry.digest]
            catalog.drop(entry.key for entry in absent if entry.kind == RAW)  # it was deleted after ingest
            gone |= {entry.key for entry in absent if entry.kind != RAW}
            if len(gone) > _MANY:
                break
            done, done_bytes = done + len(page), done_bytes + sum(entry.size for entry in page)
            say(f"copied {done} of {plural(files + raws, 'object')}, {done_bytes} of {file_bytes + raw_bytes} bytes")
        return gone

    def _manifest(
        self, catalog: Catalog, name: str, moment: dict[str, Any], request: BackupRequest, lost: int
    ) -> Manifest:
        files, file_bytes, raws, raw_bytes = catalog.totals()
        dump = self.work / DUMP
        return Manifest(
            name=name,
            **moment,
            bucket=self.store.bucket,
            index_only=request.index_only,
            without_raw=request.without_raw,
            files=files,
            file_bytes=file_bytes,
            raw_objects=raws,
            raw_bytes=raw_bytes,
            lost=lost,
            dump_bytes=dump.stat().st_size,
            dump_sha256=file_digest(dump),
            catalog_bytes=catalog.path.stat().st_size,
            catalog_sha256=file_digest(catalog.path),
        )

    def _finish(self, catalog: Catalog, manifest: Manifest, say: Say, *, prune: bool) -> None:
        self.target.put_file(manifest.at + DUMP, self.work / DUMP)
        self.target.put_file(manifest.at + CATALOG, catalog.path)
        write_manifest(self.target, manifest)
        if prune:
            say("removing earlier backups")
            self._prune(catalog, manifest.name)

    def _prune(self, catalog: Catalog, name: str) -> None:
        """Remove all other backups. Manifests go first, so that a half removed backup does not count as complete."""
        found = list_backups(self.target)
        for other in (*found.whole, *found.broken):
            if other != name:
                forget_manifest(self.target, other)
                self.target.delete([meta.key for meta in self.target.list(place_of(other))])
        for place in (SEGMENTS_AT, RAW_AT):
            keys = (meta.key for meta in self.target.list(place))
            while page := list(islice(keys, PAGE)):
                self.target.delete(catalog.unnamed(page))


def _copy_entry(copying: Copying, there: set[str], entry: Entry) -> Entry:
    """Copy an object and return the entry with its digest, without one if the object is gone. `there` are the keys that
    were copied before."""
    try:
        return copying.segment(entry, is_there=entry.key in there) if entry.kind == SEGMENT else copying.raw(entry)
    except Absent:
        return entry


def _leave_out(catalog: Catalog, missing: set[str]) -> int:
    """Drop raw objects that the lake itself lacks: they were gone when the index, which still names them, was dumped.
    Return how many. Corrupt if a file of a segment is missing: such a lake cannot be backed up completely."""
    for key in sorted(missing):
        if key.startswith(SEGMENT_PREFIX):
            raise Corrupt(f"object {key} of a live segment is missing from the store: run `lakerunner fsck`")
    catalog.drop(missing)
    return len(missing)
