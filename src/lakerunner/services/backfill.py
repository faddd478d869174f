"""Announce the objects that already exist below a prefix of the lake's store.

Comes in: a prefix, bounds on the time of change, and optionally whose the objects are, against their keys. Goes out:
counts. Objects that the index knows are not announced again, so a backfill that was interrupted can be run again. The
messages go to the outbox, and any relay publishes them, now or later.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from lakerunner.model.display import plural
from lakerunner.model.errors import UserError
from lakerunner.model.organization import DEFAULT_COLLECTOR, DEFAULT_ORGANIZATION, checked_name
from lakerunner.model.source import SEGMENT_PREFIX, Route, Routes, signal_of
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.model.time_argument import moment_ns
from lakerunner.objects.store import ObjectMeta
from lakerunner.services.announce import Announcer, Newcomers, is_unsettled
from lakerunner.services.sweep.finding import listing_pages


@dataclass(frozen=True)
class BackfillCounts:
    """Counts of the listed objects: outside the bounds of time or too young; not raw telemetry; known; new (in a dry
    run: would be new); set aside because their organization or collector is invalid."""

    listed: int = 0
    outside: int = 0
    strays: int = 0
    known: int = 0
    new: int = 0
    set_aside: int = 0

    def sentence(self, *, dry_run: bool) -> str:
        new = "would be announced" if dry_run else "announced"
        return (
            f"{plural(self.listed, 'object')} listed: {self.new} {new}, {self.known} known, {self.outside} outside the "
            f"requested time, {self.strays} not raw telemetry, {self.set_aside} set aside"
        )


@dataclass(frozen=True)
class RouteOverride:
    """Whose the objects are, and of which signal, according to the caller; None leaves it to their keys."""

    organization: str | None = None
    collector: str | None = None
    signal: str | None = None

    def __post_init__(self) -> None:
        if self.collector is not None:
            checked_name("collector", self.collector)

    def route_of(self, routes: Routes) -> Callable[[str], Route | None]:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            return routes.route_of

        def route_of(key: str) -> Route | None:
            name = key.rpartition("/")[2]
            if key.startswith(SEGMENT_PREFIX) or not name or name.startswith("."):
                return None
            unrouted = Route(str(DEFAULT_ORGANIZATION.id), DEFAULT_COLLECTOR, signal_of(name))
            routed = routes.route_of(key)
            return replace(routed if routed and not routed.misplaced else unrouted, **given)

        return route_of


class Backfill:
    def __init__(
        self, newcomers: Newcomers, announcer: Announcer, prefix: str, changed: TimeRange, *, dry_run: bool
    ) -> None:
        self._newcomers = newcomers
        self._announcer = announcer
        self._prefix = prefix
        self._changed = changed
        self._dry_run = dry_run

    def run(self, now_ns: int, settle_ns: int) -> Generator[BackfillCounts, None, None]:
        """List once; yield the counts so far after every page, and at the end."""
        counts = BackfillCounts()
        for batch in listing_pages(self._newcomers.store.list(self._prefix)):
            raw = [meta for meta in batch if self._announcer.route_of(meta.key)]
            due = [meta for meta in raw if self._is_due(meta, now_ns, settle_ns)]
            unknown = self._newcomers.select(due, touch=not self._dry_run)
            new, set_aside, strays = len(unknown), 0, len(batch) - len(raw)
            if not self._dry_run:
                announced = self._announcer.metas(unknown)
                new, set_aside, strays = announced.new, announced.set_aside, strays + announced.passed_over
            counts = BackfillCounts(
                counts.listed + len(batch),
                counts.outside + len(raw) - len(due),
                counts.strays + strays,
                counts.known + len(due) - len(unknown),
                counts.new + new,
                counts.set_aside + set_aside,
            )
            yield counts
        yield counts

    def _is_due(self, meta: ObjectMeta, now_ns: int, settle_ns: int) -> bool:
        within = self._changed.start_ns <= meta.modified_ns < self._changed.end_ns
        return within and not is_unsettled(meta, now_ns, settle_ns)


def prefix_of(url: str, store_url: str) -> str:
    """Return the prefix of our keys that a URL in the lake's store names; text that is not a URL is the prefix
    itself."""
    if "://" not in url:
        return url.lstrip("/")
    named, ours = urlsplit(url), urlsplit(store_url)
    if (named.scheme, named.netloc) != (ours.scheme, ours.netloc):
        raise UserError(
            f"{url} is not in the store of this lake, {ours.scheme}://{ours.netloc}: copy the "
            "objects there, or set --store"
        )
    top = unquote(ours.path).strip("/")
    path = unquote(named.path).lstrip("/")
    if top and not f"{path}/".startswith(f"{top}/"):
        raise UserError(f"{url} is not below the store of this lake, {store_url}")
    return path[len(top) :].lstrip("/") if top else path


def changed_between(since: str | None, until: str | None, now_ns: int) -> TimeRange:
    start = moment_ns("--since", since, now_ns) if since else ALL_TIME.start_ns
    end = moment_ns("--until", until, now_ns) if until else ALL_TIME.end_ns
    if start >= end:
        raise UserError(f"--since {since} must be before --until {until or 'the end of time'}")
    return TimeRange(start, end)
