"""Uploads that never ended: what a store keeps of an object whose writer died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from lakerunner.model.failpoint import reach
from lakerunner.objects.uploads import Upload, Uploads
from lakerunner.services.sweep.finding import PAGE, Finding, Found, Gone, Kind


class AbandonedUploads:
    name = "uploads"

    def __init__(self, uploads: Uploads, grace_ns: int, page: int = PAGE) -> None:
        self._uploads = uploads
        self._grace_ns = grace_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[Found]:
        listing = self._uploads.list()
        before_ns = now_ns - self._grace_ns
        while page := list(islice(listing, self._page)):
            old = (upload for upload in page if upload.started_ns <= before_ns)
            yield Found(len(page), tuple(map(_finding, old)))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:  # noqa: ARG002 - an upload is begun once
        reach("before-sweep")
        for finding in findings:
            self._uploads.abort(finding.about)
        reach("after-sweep")
        return Gone(len(findings), sum(finding.bytes for finding in findings))


def _finding(upload: Upload) -> Finding:
    reason = "started before the grace time and never finished"
    return Finding(Kind.UPLOAD, "", reason, upload.started_ns, None, (upload.key,), upload.bytes, about=upload)
