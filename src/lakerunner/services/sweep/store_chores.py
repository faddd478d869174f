"""Chores for other objects of the store: raw objects past `raw_retention`, and uploads that were never finished.

Raw objects are deleted if they were ingested exactly as they are in the store. Failed ones, pending ones and ones that
were never announced stay. What always holds: their rows in `source_objects` stay, so content that comes back under its
key is not ingested again. Doors look for raw objects of the last 24 hours (docs/decisions/0002), so a shorter retention
is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from lakerunner.api.push.push_store import REMEMBERED_SECONDS
from lakerunner.index.index import Index
from lakerunner.index.sweep import ListedObject
from lakerunner.model.errors import UserError
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
