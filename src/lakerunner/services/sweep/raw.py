"""Raw objects, where `raw_retention` says that they go: those that were ingested, just as they are in the store, that
long ago. Failed ones, ones on their way and ones that nobody announced never go.

What always holds: their rows in `source_objects` stay, so content that comes back under its key is not ingested again.
Doors look for raw objects of the last 24 hours (docs/decisions/0002): a shorter retention is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from lakerunner.api.keep import REMEMBERED_SECONDS
from lakerunner.index.index import Index
from lakerunner.index.sweep import Listed
from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import reach
from lakerunner.model.source import Routes
from lakerunner.model.time import SECOND_NS, duration_ns
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.sweep.finding import PAGE, Finding, Found, Gone, Kind, is_unchanged

_LEAST_NS = int(REMEMBERED_SECONDS) * SECOND_NS


class RawObjects:
    name = "raw objects"

    def __init__(self, index: Index, store: ObjectStore, routes: Routes, keep_ns: int, page: int = PAGE) -> None:
        self._index = index
        self._store = store
        self._routes = routes
        self._keep_ns = keep_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[Found]:
        before_ns = now_ns - self._keep_ns
        for root in self._routes.roots:
            listing = self._store.list(root)
            while page := list(islice(listing, self._page)):
                old = {
                    Listed(meta.key, meta.etag or "", meta.size, meta.modified_ns): meta
                    for meta in page
                    if meta.modified_ns <= before_ns and self._routes.route_of(meta.key)
                }
                done = self._index.sweep.done_sources(self._store.bucket, list(old), before_ns) if old else []
                yield Found(len(page), tuple(self._finding(old[one]) for one in done))

    def _finding(self, meta: ObjectMeta) -> Finding:
        route = self._routes.route_of(meta.key)
        what = route.signal if route else ""
        reason = "ingested longer ago than raw_retention"
        return Finding(Kind.RAW, what, reason, meta.modified_ns, None, (meta.key,), meta.size, about=meta)

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:  # noqa: ARG002 - done is done for good
        reach("before-sweep")
        going = [finding.about for finding in findings if is_unchanged(self._store, finding.about)]
        self._store.delete(meta.key for meta in going)
        reach("after-sweep")
        return Gone(len(going), sum(meta.size for meta in going))


def raw_retention_ns(text: str) -> int | None:
    """None for "": raw objects are not touched."""
    if not text:
        return None
    found = duration_ns(text)
    if found is None:
        raise UserError(
            f"setting raw_retention: {text!r} is not a duration: write 36h, 7d or 4w; empty: raw objects stay"
        )
    if found < _LEAST_NS:
        raise UserError(
            f"setting raw_retention: {text} is less than 24h: duplicates of pushed requests are "
            "detected by raw objects of the last 24 hours"
        )
    return found
