"""Segments that were replaced or expired: once the grace time of running queries has passed, their files go, all that
stand beside each other under its id, and then their rows.

What always holds: a row goes after its files. Killed in between, the row is found again, and its files are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.index.sweep import Ended
from lakerunner.model.failpoint import reach
from lakerunner.model.retention import name_of
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.sweep.finding import PAGE, Finding, Found, Gone, Kind
from lakerunner.services.sweep.names import segment_in

_REASONS = {
    "replaced": (Kind.REPLACED, "replaced: another segment has its rows"),
    "expired": (Kind.EXPIRED, "expired: its rows are past their retention"),
}


# Pages of rows that are put in the order of their directories, so that a page takes few listings.
_PAGES = 20


class EndedSegments:
    name = "ended segments"

    def __init__(self, index: Index, store: ObjectStore, grace_ns: int, page: int = PAGE) -> None:
        self._index = index
        self._store = store
        self._grace_ns = grace_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[Found]:
        last: Ended | None = None
        while rows := self._index.sweep.ended(now_ns - self._grace_ns, last, self._page * _PAGES):
            last = rows[-1]
            rows.sort(key=lambda one: one.path)
            for start in range(0, len(rows), self._page):
                page = rows[start : start + self._page]
                files = self._files(page)
                yield Found(len(page), tuple(_finding(one, files.get(one.id, ())) for one in page))

    def _files(self, page: Sequence[Ended]) -> dict[UUID, list[ObjectMeta]]:
        """What there is of each, by listing each directory once."""
        wanted: dict[str, set[UUID]] = defaultdict(set)
        for one in page:
            wanted[one.path.rpartition("/")[0] + "/tbl_"].add(one.id)
        found: dict[UUID, list[ObjectMeta]] = defaultdict(list)
        for start, ids in wanted.items():
            for meta in self._store.list(start):
                if (id_ := segment_in(meta.key)) in ids:
                    found[id_].append(meta)
        return found

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:  # noqa: ARG002 - not live is not live for good
        keys = [key for finding in findings for key in finding.keys]
        reach("before-sweep")
        self._store.delete(keys)
        reach("after-sweep")
        forgotten = self._index.sweep.forget(finding.about for finding in findings)
        reach("after-forget")
        return Gone(len(keys), sum(finding.bytes for finding in findings), (("segments", forgotten),))


def _finding(ended: Ended, files: Sequence[ObjectMeta]) -> Finding:
    kind, reason = _REASONS[ended.state]
    return Finding(
        kind,
        name_of(ended.signal, ended.frequency_ms),
        reason,
        ended.ended_ns,
        ended.organization,
        tuple(sorted(meta.key for meta in files)),
        sum(meta.size for meta in files),
        about=ended.id,
    )
