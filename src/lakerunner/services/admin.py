"""Organizations and keys, straight in the index: whoever reaches the database is its administrator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID, uuid4

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.caller import Share
from lakerunner.model.errors import NotFound, UserError
from lakerunner.model.organization import Organization
from lakerunner.services.ground import open_index
from lakerunner.services.home import POSTGRES, make_private, refuse_half_restored, require_lake
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings


@contextmanager
def administered(settings: Settings, *, create: bool = False) -> Iterator[Index]:
    """The index, to be changed: DATABASE_URL's, or that of the embedded server, whether `up` runs it now or not. NoLake
    where there is none, unless `create` says that it is to be made."""
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
    """The index of a lake that is there, to be read: nothing is made or migrated. Where `up` does not run, the embedded
    server runs as long as this does."""
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
    """A name that reads as an id would be taken for another organization's wherever either may stand."""
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
    """Its limits after this: None leaves one as it is, 0 gives it back to the settings."""
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
