"""The manifest of a backup, and the layout of a store with backups.

    backups/NAME/manifest.json      written last: without it the backup is incomplete
    backups/NAME/index.dump         the index, in pg_dump's custom format
    backups/NAME/objects.sqlite     the objects of the backup (copying.py)
    objects/db/...                  files of segments, shared by all backups here
    raw/ab/DIGEST                   raw objects, likewise

NAME is the time at which the backup was started, so names sort by time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import orjson

from lakerunner.model.errors import Corrupt, NotFound, UserError
from lakerunner.objects.store import ObjectStore
from lakerunner.services.backup.copying import file_digest

VERSION = 1
BACKUPS_AT = "backups/"
_MANIFEST, DUMP, CATALOG = "manifest.json", "index.dump", "objects.sqlite"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """`time` is that of the dump, `postgres` the major version of the server, `migration` the last one of the index,
    `bucket` the name of the store. `lost` counts raw objects that waited to be ingested and were not in the store."""

    name: str
    time: str
    postgres: int
    migration: str
    bucket: str
    index_only: bool
    without_raw: bool
    files: int
    file_bytes: int
    raw_objects: int
    raw_bytes: int
    lost: int
    dump_bytes: int
    dump_sha256: str
    catalog_bytes: int
    catalog_sha256: str
    version: int = VERSION

    @property
    def at(self) -> str:
        return place_of(self.name)


@dataclass(frozen=True)
class Backups:
    """Names of complete backups, and of those that were started and never finished, each in the order of time."""

    whole: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def last(self) -> str | None:
        return self.whole[-1] if self.whole else None


def new_name(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}Z"


def place_of(name: str) -> str:
    return f"{BACKUPS_AT}{name}/"


def list_backups(store: ObjectStore) -> Backups:
    keys = {meta.key for meta in store.list(BACKUPS_AT)}
    names = sorted({key.removeprefix(BACKUPS_AT).partition("/")[0] for key in keys})
    whole = tuple(name for name in names if place_of(name) + _MANIFEST in keys)
    return Backups(whole, tuple(name for name in names if name not in whole))


def write_manifest(store: ObjectStore, manifest: Manifest) -> None:
    text = orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2)
    store.put(manifest.at + _MANIFEST, text + b"\n", if_absent=True)


def forget_manifest(store: ObjectStore, name: str) -> None:
    """Delete the manifest: from now on this backup counts as incomplete."""
    store.delete([place_of(name) + _MANIFEST])


def find_manifest(store: ObjectStore, name: str | None) -> Manifest:
    """Return the newest complete backup, or the one with this name. NotFound if it does not exist or is incomplete."""
    found = list_backups(store)
    chosen = name or found.last
    known = f"complete backups: {', '.join(found.whole) or 'none'}"
    if chosen is None and not found.broken:
        raise NotFound(f"no backup found: there is nothing below {BACKUPS_AT}")
    if chosen is None or chosen in found.broken:
        broken = chosen or found.broken[-1]
        raise NotFound(f"backup {broken} is incomplete: it has no {_MANIFEST}, because it was never finished; {known}")
    if chosen not in found.whole:
        raise NotFound(f"backup {chosen} not found; {known}")
    return _read(store, chosen)


def _read(store: ObjectStore, name: str) -> Manifest:
    where = place_of(name) + _MANIFEST
    try:
        content = orjson.loads(store.get(where, max_bytes=_MOST_BYTES))
        version = content["version"]
        if version != VERSION:
            raise UserError(
                f"{where} has version {version}, this Lakerunner reads version {VERSION}: use a newer Lakerunner"
            )
        types = {field.name: field.type for field in fields(Manifest)}
        if content.keys() != types.keys() or any(type(content[key]).__name__ != types[key] for key in types):
            raise KeyError
        manifest = Manifest(**content)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise Corrupt(f"{where} is damaged: restore another backup") from None
    if manifest.name != name:
        raise Corrupt(f"{where} belongs to backup {manifest.name!r}: it was moved here from another place")
    return manifest


def check_file(manifest: Manifest, name: str, path: Path) -> None:
    """Raise Corrupt if the dump or the catalog is not the one that the manifest describes."""
    stated = manifest.dump_sha256 if name == DUMP else manifest.catalog_sha256
    if file_digest(path) != stated:
        raise Corrupt(
            f"{manifest.at}{name} is damaged: its size or digest differs from the manifest. Restore another backup"
        )
