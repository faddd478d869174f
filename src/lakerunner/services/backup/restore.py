"""`lakerunner restore`: create a lake from a backup.

Comes in: settings of a lake that does not exist yet, a store with backups. Goes out: the lake as it was at the dump of
the backup.

What always holds: nothing that exists is changed. The index comes last, and no service starts on it before it is
complete. Every object has the digest that it was backed up with. Raw objects that were ingested are recorded with the
etags of the new store, so none is ingested twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lakerunner.bus.topics import arrivals, ingest_boxes
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.index.migrate import load_migrations
from lakerunner.model.display import plural
from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import arm, reach
from lakerunner.model.source import SIGNAL_NAMES
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.backup.copying import SEGMENT, Catalog, Copying, Entry, at_once
from lakerunner.services.backup.manifest import CATALOG, DUMP, Manifest, check_file, find_manifest
from lakerunner.services.ground import store_address, without_secrets
from lakerunner.services.home import POSTGRES, RESTORING, make_private
from lakerunner.settings import Settings

Say = Callable[[str], None]


def run_restore(settings: Settings, source: ObjectStore, name: str | None, say: Say) -> Manifest:
    """Create the lake of these settings from the newest complete backup, or from the one with this name."""
    arm(settings.failpoint)
    manifest = find_manifest(source, name)
    _refuse_newer(manifest)
    if manifest.index_only and not settings.store:
        raise UserError(
            f"backup {manifest.name} contains the index only: name the store with its objects with --store URL"
        )
    with _staging(settings, say) as staged, TemporaryDirectory(prefix="lakerunner-restore-") as at:
        target = open_store(store_address(staged))
        if not manifest.index_only:
            _refuse_used(target, settings)
        Restore(staged, source, target, Path(at)).run(manifest, say)
    return manifest


@dataclass(frozen=True)
class Restore:
    settings: Settings
    source: ObjectStore
    target: ObjectStore
    work: Path

    def run(self, manifest: Manifest, say: Say) -> None:
        copying = Copying(self.source, self.target, self.work)
        for name in (DUMP, CATALOG):
            copying.fetch(manifest.at + name, self.work / name)
            check_file(manifest, name, self.work / name)
        with closing(Catalog(self.work / CATALOG)) as catalog, self._index() as index:
            index.restore.refuse_used()
            self._copy(catalog, copying, manifest, say)
            reach("before-load")
            say("loading the index")
            index.restore.load(self.work / DUMP)
            self._record_places(catalog, index, manifest)
            index.restore.end()
            index.migrate()

    def _copy(self, catalog: Catalog, copying: Copying, manifest: Manifest, say: Say) -> None:
        total, done = manifest.files + manifest.raw_objects, 0
        for page in catalog.copied():
            moves = at_once(lambda entry: self._restore(copying, entry), page)
            catalog.move(move for move in moves if move)
            done += len(page)
            say(f"restored {done} of {plural(total, 'object')}")

    def _restore(self, copying: Copying, entry: Entry) -> tuple[str, str, str, int] | None:
        """Restore an object; for a raw object, return its key, old etag, new etag and new time."""
        copying.back(entry)
        if entry.kind == SEGMENT:
            return None
        meta = self.target.head(entry.key)
        return entry.key, entry.etag or "", meta.etag or "", meta.modified_ns

    def _record_places(self, catalog: Catalog, index: Index, manifest: Manifest) -> None:
        """Record raw objects in the index with the etags and times of the new store."""
        bucket = self.target.bucket
        if bucket != manifest.bucket:
            index.restore.take_bucket(manifest.bucket, bucket)
        for page in catalog.moves():
            index.restore.take_places(bucket, page)
        if bucket != manifest.bucket or catalog.changed_etags():
            # Messages on their way have the old etags: their objects would be ingested beside those that are announced
            # with the new ones.
            topics = [topic(signal) for signal in SIGNAL_NAMES for topic in (arrivals, ingest_boxes)]
            index.restore.announce_again(topics)

    @contextmanager
    def _index(self) -> Iterator[Index]:
        url = self.settings.database_url
        server = None if url else EmbeddedPostgres(self.settings.home / POSTGRES)
        try:
            with closing(Index.open(url or (server.start() if server else ""), connections=2)) as index:
                yield index
        finally:
            if server is not None:
                server.stop()


@contextmanager
def _staging(settings: Settings, say: Say) -> Iterator[Settings]:
    """Yield the settings with a home inside the intended one; its content is moved up when all is done, the index last.
    It is inside because the home may be a mount point, which cannot be replaced by a rename."""
    if settings.database_url and settings.store:  # the home holds nothing of the lake
        yield settings
        return
    home, embedded = settings.home.resolve(), not settings.database_url
    staging = home / RESTORING
    _refuse_used_home(home)
    make_private(home, embedded=embedded)
    make_private(staging, embedded=embedded)
    with _lock(staging):
        _remove_left_over(staging, say)
        try:
            yield replace(settings, home=staging)
            reach("after-load")
            for entry in sorted(staging.iterdir(), reverse=True):  # store, then postgres
                entry.rename(home / entry.name)
                reach("after-move")
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _refuse_used_home(home: Path) -> None:
    if not home.exists():
        return
    if not home.is_dir():
        raise UserError(f"{home} is not a directory: restore into a new --home")
    names = {entry.name for entry in home.iterdir()} - {"lost+found"}
    if RESTORING not in names and names:
        raise UserError(f"{home} is not empty: restore into a new --home")
    if others := sorted(names - {RESTORING}):
        raise UserError(
            f"{home} contains {', '.join(others)} beside {RESTORING}, left by a restore that was "
            "killed: remove everything in it, and restore again"
        )


@contextmanager
def _lock(staging: Path) -> Iterator[None]:
    """Hold the lock of this directory. UserError if another process restores into it. The lock ends with the
    process."""
    lock = os.open(staging, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another restore into {staging.parent} is running: wait for it, or stop it") from None
        yield
    finally:
        os.close(lock)


def _remove_left_over(staging: Path, say: Say) -> None:
    """Remove what a killed restore left: copies of the backup, and perhaps a server that still runs."""
    if not any(staging.iterdir()):
        return
    say(f"removing files of an interrupted restore in {staging}")
    EmbeddedPostgres(staging / POSTGRES).stop_left_over()
    for entry in staging.iterdir():
        shutil.rmtree(entry)


def _refuse_used(target: ObjectStore, settings: Settings) -> None:
    if any(True for _ in target.list("")):
        raise UserError(
            f"store {without_secrets(settings.store_url)} is not empty: restore into a new store, "
            "or empty it if an interrupted restore wrote these objects"
        )


def _refuse_newer(manifest: Manifest) -> None:
    known = [migration.name for migration in load_migrations()]
    if manifest.migration not in known:
        raise UserError(
            f"backup {manifest.name} was made by a newer Lakerunner: its index has migration "
            f"{manifest.migration}, the last one of this version is {known[-1]}. Restore it with "
            "that version"
        )
