"""Announcing raw objects: from a key in the store to a recorded source and a message in the outbox.

Every door (lister, webhook, OTLP) comes through here. An object announced ten times is recorded once and sent once:
the index decides. What cannot be placed, because its organization is not known, is set aside with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakerunner.bus.topics import ObjectArrived, arrivals, encode
from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival, SourceRecord
from lakerunner.model.errors import Absent
from lakerunner.model.organization import Organization
from lakerunner.model.signal import signal_named
from lakerunner.model.source import Route, SourceObject, route_of
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services import meters
from lakerunner.services.logs import Log

log = Log("announce")


class Announcer:
    """Safe between threads."""

    def __init__(self, index: Index, store: ObjectStore) -> None:
        self._index = index
        self._store = store
        self._organizations: dict[str, Organization] = {}
        self._skipped: set[str] = set()

    def keys(self, keys: Iterable[str]) -> int:
        """Announce objects by key. One that is gone already is passed over: there is nothing to lose."""
        found = []
        for key in keys:
            try:
                found.append(self._store.head(key))
            except Absent:
                log.warning("an announced object is not there", key=key)
        return self.metas(found)

    def metas(self, metas: Sequence[ObjectMeta]) -> int:
        """Announce objects as the store shows them, etags included; how many were new."""
        ready: list[Arrival] = []
        for meta in metas:
            route = route_of(meta.key)
            if route is None or self._not_ingested(route):
                continue
            source = self._source(meta)
            organization = self._organization(route.organization)
            if organization is None:
                self._set_aside(source, route)
            else:
                ready.append(arrival_of(source, organization, route))
        new = self._index.sources.announce(ready) if ready else 0
        if new:
            meters.ANNOUNCED.labels("logs").inc(new)
            log.info("objects announced", new=new, known=len(ready) - new)
        return new

    def again(self, failed: Sequence[SourceRecord]) -> int:
        """Send set-aside objects again, with what is known now; how many went."""
        return self._index.sources.retry(self._arrivals(failed))

    def remind(self, seconds: float) -> int:
        """Send again what was announced so long ago and has not ended, in case the bus lost it; how many went."""
        overdue = self._index.sources.overdue(seconds)
        sent = self._index.sources.remind(self._arrivals(overdue), seconds)
        if sent:
            log.warning("objects are overdue and announced again", objects=sent, seconds=seconds)
        return sent

    def _arrivals(self, records: Sequence[SourceRecord]) -> list[Arrival]:
        routed = [(record.source, route_of(record.source.key)) for record in records]
        placed = [(source, route, self._organization(route.organization)) for source, route in routed if route]
        return [arrival_of(source, found, route) for source, route, found in placed if found]

    def _source(self, meta: ObjectMeta) -> SourceObject:
        etag = meta.etag or self._store.head(meta.key).etag or ""
        return SourceObject(self._store.bucket, meta.key, etag, meta.size, meta.modified_ns)

    def _organization(self, id_or_name: str) -> Organization | None:
        known = self._organizations.get(id_or_name)
        if known is None:
            known = self._index.organizations.find(id_or_name)
            if known is not None:  # an organization is never taken back, so what was found stays true
                self._organizations[id_or_name] = known
        return known

    def _not_ingested(self, route: Route) -> bool:
        if signal_named(route.signal).ingested:
            return False
        meters.SKIPPED.labels(route.signal).inc()
        if route.signal not in self._skipped:
            self._skipped.add(route.signal)
            log.warning("raw objects of this signal stay where they are: it is not ingested yet", signal=route.signal)
        return True

    def _set_aside(self, source: SourceObject, route: Route) -> None:
        reason = (
            f"organization {route.organization!r} is not known: create it with `lakerunner orgs create`, "
            "then `lakerunner objects --retry`"
        )
        self._index.sources.set_aside(source, reason, collector=route.collector, signal=route.signal)
        meters.ENDED.labels(route.signal, "failed").inc()
        log.warning("object set aside", key=source.key, reason=reason)


def arrival_of(source: SourceObject, organization: Organization, route: Route) -> Arrival:
    message = ObjectArrived(organization.id, route.collector, route.signal, source)
    return Arrival(source, organization.id, route.collector, route.signal, arrivals(route.signal), encode(message))
