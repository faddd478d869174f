"""Organizations and keys, straight in the index: whoever reaches the database is its administrator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import NotFound, UserError
from lakerunner.model.organization import Organization
from lakerunner.services.parts import open_index
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings


@contextmanager
def administered(settings: Settings) -> Iterator[Index]:
    """The index: DATABASE_URL's, or that of the embedded server, whether `up` runs it now or not."""
    running = None if settings.database_url else EmbeddedPostgres.running(settings.home / "postgres")
    if running:
        index = Index.open(running, connections=2)
        try:
            yield index
        finally:
            index.close()
        return
    runtime = Runtime("admin")
    try:
        yield open_index(settings, runtime, lambda _: None)
    finally:
        runtime.shut_down()


def create_organization(index: Index, name: str, id_: str | None) -> Organization:
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
        raise NotFound(f"there is no organization {id_or_name!r}: known are {known}")
    return found
