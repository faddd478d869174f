"""Announce raw objects: from a key in the store to a recorded source and a message in the outbox.

Every door (lister, backfill, webhook, queues, push) uses `Announcer`. An object that is announced ten times is recorded
once and sent once: the index decides. An object whose organization is unknown, or whose key cannot be read, is set
aside with the reason. Of keys that no store could hold only a limited number is recorded for one call and for one
organization, since anyone who may announce could send any number of them.

The lister finds raw objects by listing, for stores that do not notify and for what notifications missed. A poll lists
every prefix that routes name and announces what the index does not know. Objects that it saw unchanged in an earlier
poll cost nothing; after a restart the index tells in batches which are known. A young local file may still be being
written: it is left for the next poll. A prefix that cannot be listed does not keep the others from being listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakerunner.bus.topics import ObjectArrived, arrivals, encode
from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival, SourceRecord, storable_text
from lakerunner.model.errors import Absent, Unavailable, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.source import Route, SourceObject
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.sweep.finding import LISTING_PAGE, listing_pages

RouteOf = Callable[[str], Route | None]
_HEADS_AT_ONCE = 8
_NO_ETAG = "unread"  # of an object that the store cannot return
UNREADABLE_AT_ONCE = 100
UNREADABLE_KEPT = 1_000  # rows of one organization

log = Log("announce")


@dataclass(frozen=True)
class Announced:
    """Counts of objects: new, already known, set aside, and skipped because no route takes them."""

    new: int = 0
    known: int = 0
    set_aside: int = 0
    passed_over: int = 0


class Announcer:
    """Records objects. Threads may share it. `route_of` returns whose object a key is, None if it is not raw
    telemetry."""

    def __init__(self, index: Index, store: ObjectStore, route_of: RouteOf) -> None:
        self.route_of = route_of
        self._index = index
        self._store = store
        self._organizations: dict[str, Organization] = {}

    def keys(self, keys: Iterable[str]) -> int:
        """Announce objects by key and return how many were new. One that does not exist any more is skipped."""
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
        """Announce objects as the store lists them, with their etags."""
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
        """Send objects that were set aside again, routed by what is known now; return how many."""
        return self._index.sources.retry(self._arrivals(failed))

    def remind(self, seconds: float) -> int:
        """Send objects again that were announced this long ago and have not ended, in case the bus lost them; return
        how many."""
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
        """Return the route that was recorded, which a backfill may have chosen against the key; else that of the
        key."""
        if record.organization and record.collector and record.signal:
            return Route(str(record.organization), record.collector, record.signal)
        return self.route_of(record.source.key)

    def _head(self, key: str) -> ObjectMeta | UserError | None:
        """Look the object up; None if it does not exist. A UserError is returned, not raised: stores hold keys that no
        client of ours can request, such as a//b."""
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
            source = SourceObject(self._store.bucket, storable_text(key), _NO_ETAG, 0, 0)
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
            if known is not None:  # organizations are never deleted, so this stays true
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


BATCH = LISTING_PAGE
_REMEMBERED = 1_000_000


class Lister:
    """The loop that lists. `settle_ns` is the least age of a local file that is taken."""

    def __init__(self, newcomers: Newcomers, announcer: Announcer, roots: Sequence[str], settle_ns: int) -> None:
        self._newcomers = newcomers
        self._announcer = announcer
        self._roots = roots
        self._settle_ns = settle_ns
        self._seen: dict[str, tuple[int, int]] = {}

    def poll(self, now_ns: int) -> int:
        """List once and return how many new objects were announced."""
        new = 0
        failures: list[Unavailable] = []
        for root in self._roots:
            try:
                news = (meta for meta in self._newcomers.store.list(root) if self._is_news(meta, now_ns))
                for batch in listing_pages(news):
                    new += self._announce(batch)
            except Unavailable as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return new

    def _is_news(self, meta: ObjectMeta, now_ns: int) -> bool:
        if self._seen.get(meta.key) == (meta.size, meta.modified_ns) or self._announcer.route_of(meta.key) is None:
            return False
        return not is_unsettled(meta, now_ns, self._settle_ns)

    def _announce(self, batch: list[ObjectMeta]) -> int:
        new = self._announcer.metas(self._newcomers.select(batch)).new
        if len(self._seen) > _REMEMBERED:  # a bound on memory; the index still knows
            self._seen.clear()
        self._seen.update({meta.key: (meta.size, meta.modified_ns) for meta in batch})
        return new


class Newcomers:
    """Finds the objects of a listing that the index does not know."""

    def __init__(self, index: Index, store: ObjectStore) -> None:
        self.store = store
        self._index = index

    def select(self, batch: Sequence[ObjectMeta], *, touch: bool = True) -> list[ObjectMeta]:
        """Return the unknown ones of at most BATCH objects, with their etags. With `touch`, content that is recorded
        under another time of change gets the new time in the index, so that the next listing finds it known."""
        triples = [(meta.key, meta.size, meta.modified_ns) for meta in batch]
        unknown = set(self._index.sources.unknown(self.store.bucket, triples))
        metas = [self._with_etag(meta) for meta in batch if (meta.key, meta.size, meta.modified_ns) in unknown]
        sources = [(meta, self._source(meta)) for meta in metas if meta]
        known = self._index.sources.states([source.identity for _, source in sources])
        for _, source in sources:
            if touch and source.identity in known:
                self._index.sources.touch(source)
        return [meta for meta, source in sources if source.identity not in known]

    def _source(self, meta: ObjectMeta) -> SourceObject:
        return SourceObject(self.store.bucket, meta.key, meta.etag or "", meta.size, meta.modified_ns)

    def _with_etag(self, meta: ObjectMeta) -> ObjectMeta | None:
        """Return the object with its etag; None if it was deleted since it was listed."""
        if meta.etag is not None:
            return meta
        try:
            return self.store.head(meta.key)
        except Absent:
            return None


def is_unsettled(meta: ObjectMeta, now_ns: int, settle_ns: int) -> bool:
    """Return whether a local file may still be being written. Stores whose objects appear whole list etags."""
    return meta.etag is None and now_ns - meta.modified_ns < settle_ns
