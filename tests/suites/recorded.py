"""What an index has recorded of a bucket, for tests of doors."""

from __future__ import annotations

from uuid import UUID, uuid4

from lakerunner.index.index import Index
from lakerunner.model.organization import Organization
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore

ACME = Organization(UUID("aaaaaaaa-0000-4000-8000-000000000001"), "acme")
Recorded = dict[str, tuple[str, str, str]]


def memory_store() -> ObjectStore:
    """An empty store in memory, with a bucket name of its own."""
    return open_store(StoreAddress(f"memory://{uuid4().hex}"))


def recorded(index: Index, store: ObjectStore) -> Recorded:
    """Key to (organization's name, collector, state) of every source of the store's bucket. A key that is recorded
    twice fails."""
    with index.pool.connection() as connection:
        rows = connection.execute(
            "SELECT s.key, coalesce(o.name, '?'), s.collector, s.state FROM lrdb.source_objects AS s "
            "LEFT JOIN lrdb.organizations AS o ON o.id = s.organization WHERE s.bucket = %s",
            (store.bucket,),
        ).fetchall()
    found = {key: (organization, collector, state) for key, organization, collector, state in rows}
    assert len(found) == len(rows), f"recorded twice: {sorted(rows)}"
    return found


def asked_for(index: Index, store: ObjectStore) -> list[str]:
    """The keys of the store's bucket that wait in the outbox, sorted."""
    with index.pool.connection() as connection:
        rows = connection.execute(
            "SELECT convert_from(payload, 'UTF8')::json -> 'source' ->> 'key' FROM lrdb.outbox "
            "WHERE convert_from(payload, 'UTF8')::json -> 'source' ->> 'bucket' = %s",
            (store.bucket,),
        ).fetchall()
    return sorted(key for (key,) in rows)
