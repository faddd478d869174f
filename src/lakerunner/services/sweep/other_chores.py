"""Chores for what is not a segment: raw objects past `raw_retention`, uploads that were never finished, and in the
index pushed requests that are too old to be recognized as duplicates, and failed work whose segments are all gone or
done.

Raw objects are deleted if they were ingested exactly as they are in the store. Failed ones, pending ones and ones that
were never announced stay. What always holds: their rows in `source_objects` stay, so content that comes back under its
key is not ingested again. Doors look for raw objects of the last 24 hours (docs/decisions/0002), so a shorter retention
is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from lakerunner.api.push.push_store import REMEMBERED_SECONDS
from lakerunner.bus.topics import CompactBox, RollupBox, decode
from lakerunner.index.index import Index
from lakerunner.index.sweep import FailedBox, ListedObject
from lakerunner.model.errors import Corrupt, UserError
from lakerunner.model.failpoint import reach
from lakerunner.model.source import Routes
from lakerunner.model.time import SECOND_NS, duration_ns
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.objects.uploads import Upload, Uploads
from lakerunner.services.sweep.finding import PAGE, Finding, FindingPage, Removal, SweepKind, is_unchanged

_LEAST_NS = int(REMEMBERED_SECONDS) * SECOND_NS


class RawObjects:
    name = "raw objects"

    def __init__(self, index: Index, store: ObjectStore, routes: Routes, keep_ns: int, page: int = PAGE) -> None:
        self._index = index
        self._store = store
        self._routes = routes
        self._keep_ns = keep_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        before_ns = now_ns - self._keep_ns
        for root in self._routes.roots:
            listing = self._store.list(root)
            while page := list(islice(listing, self._page)):
                old = {
                    ListedObject(meta.key, meta.etag or "", meta.size, meta.modified_ns): meta
                    for meta in page
                    if meta.modified_ns <= before_ns and self._routes.route_of(meta.key)
                }
                done = self._index.sweep.done_sources(self._store.bucket, list(old), before_ns) if old else []
                yield FindingPage(len(page), tuple(self._finding(old[one]) for one in done))

    def _finding(self, meta: ObjectMeta) -> Finding:
        route = self._routes.route_of(meta.key)
        what = route.signal if route else ""
        reason = "ingested longer ago than raw_retention"
        return Finding(SweepKind.RAW, what, reason, meta.modified_ns, None, (meta.key,), meta.size, about=meta)

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - done is done for good
        reach("before-sweep")
        going = [finding.about for finding in findings if is_unchanged(self._store, finding.about)]
        self._store.delete(meta.key for meta in going)
        reach("after-sweep")
        return Removal(len(going), sum(meta.size for meta in going))


def raw_retention_ns(text: str) -> int | None:
    """Parse the setting `raw_retention`; None if it is empty: raw objects are kept."""
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


class AbandonedUploads:
    name = "uploads"

    def __init__(self, uploads: Uploads, grace_ns: int, page: int = PAGE) -> None:
        self._uploads = uploads
        self._grace_ns = grace_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        listing = self._uploads.list()
        before_ns = now_ns - self._grace_ns
        while page := list(islice(listing, self._page)):
            old = (upload for upload in page if upload.started_ns <= before_ns)
            yield FindingPage(len(page), tuple(map(_upload_finding, old)))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - an upload is begun once
        reach("before-sweep")
        for finding in findings:
            self._uploads.abort(finding.about)
        reach("after-sweep")
        return Removal(len(findings), sum(finding.bytes for finding in findings))


def _upload_finding(upload: Upload) -> Finding:
    reason = "started before the grace time and never finished"
    return Finding(SweepKind.UPLOAD, "", reason, upload.started_ns, None, (upload.key,), upload.bytes, about=upload)


class OldPushes:
    """Forgets old pushed requests. Doors do so too, a few with every batch that they store; this is for idle doors."""

    name = "pushes"

    def __init__(self, index: Index, page: int = PAGE) -> None:
        self._index = index
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        count, oldest_ns = self._index.sweep.old_pushes(now_ns - _LEAST_NS)
        if oldest_ns is not None:
            reason = "requests received more than 24 h ago: duplicates of them are no longer detected"
            yield FindingPage(count, (Finding(SweepKind.PUSH, "", reason, oldest_ns, count=count),))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - the index knows which
        forgotten = 0
        while batch := self._index.sweep.forget_pushes(now_ns - _LEAST_NS, self._page):
            forgotten += batch
            if batch < self._page:
                break
        reach("after-forget")
        return Removal(rows=(("push_objects", forgotten), ("pushes", forgotten)))


class VoidWork:
    """Forgets failed work that has nothing left to do: no retry can help it, and nothing needs it. A merge needs a live
    segment, a rollup a live one that is not rolled up."""

    name = "failed work"

    def __init__(self, index: Index, page: int = PAGE) -> None:
        self._index = index
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:  # noqa: ARG002 - void is not a matter of time
        last: FailedBox | None = None
        while page := self._index.sweep.failed_work(last, self._page):
            yield FindingPage(len(page), tuple(_void(box) for box in page if self._is_void(box)))
            if len(page) < self._page:
                return
            last = page[-1]

    def _is_void(self, failed: FailedBox) -> bool:
        try:
            box = decode(failed.payload)
        except Corrupt:  # written by another version, which may be able to read it
            return False
        if not isinstance(box, CompactBox | RollupBox):
            return False
        live = self._index.sweep.live(box.segments)
        return not live or (isinstance(box, RollupBox) and all(live.values()))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002
        forgotten = self._index.sweep.forget_work([finding.about for finding in findings])
        reach("after-forget")
        return Removal(rows=(("failed_work", forgotten),))


def _void(box: FailedBox) -> Finding:
    reason = "none of its segments waits for this work any more"
    return Finding(SweepKind.WORK, box.topic, reason, box.first_ns, box.organization, about=box)
