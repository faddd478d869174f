"""Open the index and the address of the object store from settings, and administer organizations and keys in the index.

Commands that need only the index import this and not parts.py, which loads Spark and the query engine. Who can reach
the database is its administrator: there is no further check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict, NotFound, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization, Share
from lakerunner.objects.open import StoreAddress
from lakerunner.services.home import POSTGRES, make_private, refuse_half_restored, require_lake
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

Say = Callable[[str], None]
now_ns = time.time_ns


def open_index(settings: Settings, runtime: Runtime, say: Say) -> Index:
    url = settings.database_url
    if not url:
        server = EmbeddedPostgres(settings.home / "postgres")
        say("starting PostgreSQL")
        url = server.start()
        runtime.defer("postgres", server.stop)
    index = Index.open(url, connections=settings.database_connections)
    runtime.defer("index", index.close)
    index.migrate()
    if index.organizations.find(str(DEFAULT_ORGANIZATION.id)) is None:
        with suppress(Conflict):  # another process, which starts at the same time, created it
            index.organizations.create(DEFAULT_ORGANIZATION)
    return index


def store_address(settings: Settings) -> StoreAddress:
    return StoreAddress(
        settings.store_url,
        tuple(sorted(settings.store_options.items())),
        settings.store_retries,
        settings.store_retry_seconds,
    )


def key_prefix(store_url: str) -> str:
    """Return the prefix of our keys in the bucket: `a/b/` for s3://bucket/a/b."""
    url = urlsplit(store_url)
    path = url.path.strip("/")
    return f"{path}/" if path and url.scheme != "file" else ""


def without_secrets(url: str) -> str:
    """Return an address without user and password, which may hold a slash. A local path has neither."""
    scheme, separator, rest = url.partition("://")
    return url if scheme == "file" else scheme + separator + rest.rpartition("@")[2]


@contextmanager
def administered(settings: Settings, *, create: bool = False) -> Iterator[Index]:
    """Open the index for changes: that of DATABASE_URL, or that of the embedded server, whether `up` runs it or not.
    NoLake if there is no lake, unless `create` is set."""
    if not create:
        require_lake(settings)
    running = None if settings.database_url else EmbeddedPostgres.running(settings.home / POSTGRES)
    if running:
        index = Index.open(running, connections=2)
        try:
            yield index
        finally:
            index.close()
        return
    refuse_half_restored(settings.home)
    runtime = Runtime("admin")
    if not settings.database_url:
        make_private(settings.home, embedded=True)
    try:
        yield open_index(settings, runtime, lambda _: None)
    finally:
        runtime.shut_down()


@contextmanager
def inspected(settings: Settings) -> Iterator[Index]:
    """Open the index of an existing lake for reading: nothing is created or migrated. If `up` does not run, the
    embedded server runs as long as this context."""
    url = settings.database_url
    server = None
    if not url:
        require_lake(settings)
        directory = settings.home / POSTGRES
        url = EmbeddedPostgres.running(directory) or ""
        if not url:
            server = EmbeddedPostgres(directory)
            url = server.start()
    try:
        index = Index.open(url, connections=4)
        try:
            yield index
        finally:
            index.close()
    finally:
        if server is not None:
            server.stop()


def create_organization(index: Index, name: str, id_: str | None) -> Organization:
    """Create an organization. A name in the form of an id is refused: commands take either, and could mistake it."""
    if _is_id(name):
        raise UserError(f"organization name {name!r} has the form of an id: choose a different name")
    try:
        made = Organization(UUID(id_) if id_ else uuid4(), name)
    except ValueError:
        raise UserError(f"{id_!r} is not a UUID") from None
    index.organizations.create(made)
    return made


def organization(index: Index, id_or_name: str) -> Organization:
    found = index.organizations.find(id_or_name)
    if found is None:
        known = ", ".join(one.name for one in index.organizations.all())
        raise NotFound(f"organization {id_or_name!r} not found; known organizations: {known}")
    return found


def limit_organization(index: Index, who: Organization, rate: float | None, concurrent: int | None) -> Share:
    """Set the limits of an organization and return them. None leaves a limit as it is, 0 resets it to the settings."""
    share = index.organizations.share(who.id)
    if rate is not None:
        share = replace(share, queries_per_second=rate or None)
    if concurrent is not None:
        share = replace(share, concurrent_queries=concurrent or None)
    index.organizations.limit(who.id, share)
    return share


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
