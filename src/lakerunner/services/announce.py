"""Announcing raw objects: from a key in the store to a recorded source and a message in the outbox.

Every door (lister, backfill, webhook, queues, push) comes through here. An object announced ten times is recorded once
and sent once: the index decides. What cannot be placed, because its organization is not known, and what cannot be read
by its key, is set aside with the reason: but for keys that no store could hold so many only, of one call and of one
organization, as whoever may announce could send any number of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakerunner.bus.topics import ObjectArrived, arrivals, encode
from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival, SourceRecord, storable
from lakerunner.model.errors import Absent, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.source import Route, SourceObject
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services import meters
from lakerunner.services.logs import Log

RouteOf = Callable[[str], Route | None]
_HEADS_AT_ONCE = 8
_NO_ETAG = "unread"  # of an object that the store cannot show us
UNREADABLE_AT_ONCE = 100
UNREADABLE_KEPT = 1_000  # rows of one organization

log = Log("announce")


@dataclass(frozen=True)
class Announced:
    """How many objects were new, known already, set aside; and passed over, since no route takes them."""

    new: int = 0
    known: int = 0
    set_aside: int = 0
    passed_over: int = 0


class Announcer:
    """Safe between threads. `route_of` says of a key whose it is, None if it is not raw telemetry."""

    def __init__(self, index: Index, store: ObjectStore, route_of: RouteOf) -> None:
        self.route_of = route_of
        self._index = index
        self._store = store
        self._organizations: dict[str, Organization] = {}

    def keys(self, keys: Iterable[str]) -> int:
        """Announce objects by key; how many were new. One that is gone already is passed over: there is nothing to
        lose."""
        raw = [key for key in keys if self.route_of(key) is not None]
        if len(raw) < 2:
            found = [self._head(key) for key in raw]
        else:
            with ThreadPoolExecutor(min(_HEADS_AT_ONCE, len(raw))) as pool:
                found = list(pool.map(self._head, raw))
        unreadable = [(key, one) for key, one in zip(raw, found, strict=True) if isinstance(one, UserError)]
        if unreadable:
            self._set_unreadable_aside(unreadable)
        return self.metas([one for one in found if isinstance(one, ObjectMeta)]).new

    def metas(self, metas: Sequence[ObjectMeta]) -> Announced:
        """Announce objects as the store shows them, etags included."""
        ready: dict[str, list[Arrival]] = defaultdict(list)
        set_aside = passed_over = new = 0
        for meta in metas:
            route = self.route_of(meta.key)
            if route is None:
                passed_over += 1
                continue
            source = self._source(meta)
            organization = self._organization(route.organization)
            if route.misplaced:
                set_aside += 1
                self._set_aside(source, route, route.misplaced)
            elif organization is None:
                set_aside += 1
                self._set_aside(source, route, _unknown(route))
            else:
                ready[route.signal].append(arrival_of(source, organization, route))
        for signal, arrived in ready.items():
            count = self._index.sources.announce(arrived)
            if count:
                meters.ANNOUNCED.labels(signal).inc(count)
                log.debug("objects announced", signal=signal, new=count, known=len(arrived) - count)
            new += count
        return Announced(new, sum(map(len, ready.values())) - new, set_aside, passed_over)

    def again(self, failed: Sequence[SourceRecord]) -> int:
        """Send set-aside objects again, with what is known now; how many went."""
        return self._index.sources.retry(self._arrivals(failed))

    def remind(self, seconds: float) -> int:
        """Send again what was announced so long ago and has not ended, in case the bus lost it; how many went."""
        overdue = self._index.sources.overdue(seconds)
        sent = self._index.sources.remind(self._arrivals(overdue), seconds)
        if sent:
            log.warning("overdue objects announced again", objects=sent, seconds=seconds)
        return sent

    def _arrivals(self, records: Sequence[SourceRecord]) -> list[Arrival]:
        routed = [(record.source, self._route_again(record)) for record in records]
        placed = [
            (source, route, self._organization(route.organization))
            for source, route in routed
            if route and not route.misplaced
        ]
        return [arrival_of(source, found, route) for source, route, found in placed if found]

    def _route_again(self, record: SourceRecord) -> Route | None:
        """As it was recorded, which a backfill may have chosen against the key; else as the key says."""
        if record.organization and record.collector and record.signal:
            return Route(str(record.organization), record.collector, record.signal)
        return self.route_of(record.source.key)

    def _head(self, key: str) -> ObjectMeta | UserError | None:
        """UserError, returned: stores hold keys that no client of ours can ask for, such as a//b."""
        try:
            return self._store.head(key)
        except Absent:
            log.warning("announced object not found", key=key)
        except UserError as error:
            return error
        return None

    def _set_unreadable_aside(self, unreadable: Sequence[tuple[str, UserError]]) -> None:
        room: dict[str, int] = {}  # by organization, as its route names it
        left_out = 0
        for key, error in unreadable:
            route = self.route_of(key)
            if route is None:
                continue
            if route.organization not in room:
                room[route.organization] = self._room_for_unreadable(route)
            if room[route.organization] <= 0:
                left_out += 1
                continue
            room[route.organization] -= 1
            source = SourceObject(self._store.bucket, storable(key), _NO_ETAG, 0, 0)
            self._set_aside(source, route, f"{error}. Write the object again under another key")
        if left_out:
            log.warning("too many invalid keys: the rest is not recorded", keys=left_out, one=unreadable[-1][0])

    def _room_for_unreadable(self, route: Route) -> int:
        known = self._organization(route.organization)
        kept = self._index.sources.failed_as(_NO_ETAG, known.id if known else None, UNREADABLE_KEPT)
        return min(UNREADABLE_AT_ONCE, UNREADABLE_KEPT - kept)

    def _source(self, meta: ObjectMeta) -> SourceObject:
        etag = meta.etag or self._store.head(meta.key).etag or ""
        return SourceObject(self._store.bucket, meta.key, etag, meta.size, meta.modified_ns)

    def _organization(self, id_or_name: str) -> Organization | None:
        known = self._organizations.get(id_or_name)
        if known is None and id_or_name:
            known = self._index.organizations.find(id_or_name)
            if known is not None:  # an organization is never taken back, so what was found stays true
                self._organizations[id_or_name] = known
        return known

    def _set_aside(self, source: SourceObject, route: Route, reason: str) -> None:
        known = self._organization(route.organization)
        whose = known.id if known else None
        self._index.sources.set_aside(source, reason, whose, collector=route.collector or None, signal=route.signal)
        meters.ENDED.labels(route.signal, "failed").inc()
        log.warning("object set aside", key=source.key, reason=reason)


def arrival_of(source: SourceObject, organization: Organization, route: Route) -> Arrival:
    message = ObjectArrived(organization.id, route.collector, route.signal, source)
    return Arrival(source, organization.id, route.collector, route.signal, arrivals(route.signal), encode(message))


def _unknown(route: Route) -> str:
    return (
        f"unknown organization {route.organization!r}: create it with `lakerunner orgs "
        "create`, then run `lakerunner objects --retry`"
    )
