"""Chores for segments: those past their retention expire; files of replaced and expired segments are deleted after the
grace time, and so are orphans, files of segments that no row of the index names.

What always holds: a query that runs keeps its files for the grace time. A row is deleted after its files; if the
process is killed in between, the row is found again. An orphan is deleted only if it was last written before the grace
time, its segment has no row in any state at the moment of deletion, and the file is still the one that was listed.
`sweep_grace_seconds` must therefore exceed the longest job from writing to commit. If the index knows few of the files
in the store, it may be the wrong index or a restored one: orphans are then reported and not deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.index.sweep import EndedSegment, PastSegment
from lakerunner.model.failpoint import reach
from lakerunner.model.retention_policy import Cutoff, Retention, duration_text, retention_name
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.sweep.finding import (
    PAGE,
    Finding,
    FindingPage,
    Removal,
    SweepKind,
    is_unchanged,
    segment_in,
    signal_in,
)


class PastRetention:
    """Expires segments past their retention. `default` applies to organizations without a retention of their own."""

    name = "retention"

    def __init__(self, index: Index, default: Retention, page: int = PAGE) -> None:
        self._index = index
        self._default = default
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        own = self._index.retention.all()
        for organization in self._index.organizations.all():
            retention = self._default.with_rows(own.get(organization.id, {}))
            for cutoff in retention.cutoffs(now_ns):
                keep = duration_text(now_ns - cutoff.before_ns)
                for page in self._pages(organization.id, cutoff):
                    yield FindingPage(len(page), tuple(_past_finding(past, cutoff, keep) for past in page))

    def _pages(self, organization: UUID, cutoff: Cutoff) -> Iterator[list[PastSegment]]:
        last: PastSegment | None = None
        while page := self._index.sweep.past(organization, cutoff, last, self._page):
            yield page
            if len(page) < self._page:
                return
            last = page[-1]

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:
        """Expire the segments of a page, which all have one organization and cutoff."""
        reach("before-expire")
        first: PastSegment = findings[0].about[0]
        ids = [finding.about[0].id for finding in findings]
        self._index.sweep.expire(first.organization, findings[0].about[1], ids, now_ns)
        reach("after-expire")
        return Removal()


def _past_finding(past: PastSegment, cutoff: Cutoff, keep: str) -> Finding:
    what = retention_name(past.signal, past.frequency_ms)
    reason = f"kept for {keep}; its files are deleted after the grace time"
    if past.unrolled and past.due:
        reason = f"kept for {keep}; its rollup did not happen in time, so rollups lack its rows"
    elif not past.due:
        reason = f"kept for {keep}, but stays: it is not rolled up yet, and rollups are kept longer"
    return Finding(
        SweepKind.PAST,
        what,
        reason,
        past.end_ns,
        past.organization,
        (past.path,),
        past.bytes,
        goes=past.due,
        about=(past, cutoff),
    )


_ENDED_REASONS = {
    "replaced": (SweepKind.REPLACED, "replaced: another segment has its rows"),
    "expired": (SweepKind.EXPIRED, "expired: its rows are past their retention"),
}


# This many pages of rows are sorted by directory together, so that a page takes few listings.
_SORTED_PAGES = 20


class EndedSegments:
    name = "ended segments"

    def __init__(self, index: Index, store: ObjectStore, grace_ns: int, page: int = PAGE) -> None:
        self._index = index
        self._store = store
        self._grace_ns = grace_ns
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        last: EndedSegment | None = None
        while rows := self._index.sweep.ended(now_ns - self._grace_ns, last, self._page * _SORTED_PAGES):
            last = rows[-1]
            rows.sort(key=lambda one: one.path)
            for start in range(0, len(rows), self._page):
                page = rows[start : start + self._page]
                files = self._files(page)
                yield FindingPage(len(page), tuple(_ended_finding(one, files.get(one.id, ())) for one in page))

    def _files(self, page: Sequence[EndedSegment]) -> dict[UUID, list[ObjectMeta]]:
        """Return the existing files of each segment, listing each directory once."""
        wanted: dict[str, set[UUID]] = defaultdict(set)
        for one in page:
            wanted[one.path.rpartition("/")[0] + "/tbl_"].add(one.id)
        found: dict[UUID, list[ObjectMeta]] = defaultdict(list)
        for start, ids in wanted.items():
            for meta in self._store.list(start):
                if (id_ := segment_in(meta.key)) in ids:
                    found[id_].append(meta)
        return found

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - not live is not live for good
        keys = [key for finding in findings for key in finding.keys]
        reach("before-sweep")
        self._store.delete(keys)
        reach("after-sweep")
        forgotten = self._index.sweep.forget(finding.about for finding in findings)
        reach("after-forget")
        return Removal(len(keys), sum(finding.bytes for finding in findings), (("segments", forgotten),))


def _ended_finding(ended: EndedSegment, files: Sequence[ObjectMeta]) -> Finding:
    kind, reason = _ENDED_REASONS[ended.state]
    return Finding(
        kind,
        retention_name(ended.signal, ended.frequency_ms),
        reason,
        ended.ended_ns,
        ended.organization,
        tuple(sorted(meta.key for meta in files)),
        sum(meta.size for meta in files),
        about=ended.id,
    )


MOST = 100_000  # of one organization in one sweep, which bounds memory; the next sweep finds the others
FEW = 100  # segments: deleted if the index knows any at all; more must be a small part of those that it knows
_SMALL_PART = 10
_ORPHAN_REASON = "the index does not use it"
_KEPT_REASON = (
    "not used by the index, but kept: the index knows too few of the files in this "
    "store. Check that they belong together; --force deletes these files"
)


class Orphans:
    """Deletes orphans. With `force`, also if the index knows few of the files."""

    name = "orphans"

    def __init__(
        self, index: Index, store: ObjectStore, grace_ns: int, *, force: bool = False, page: int = PAGE
    ) -> None:
        self._index = index
        self._store = store
        self._grace_ns = grace_ns
        self._force = force
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        for organization in self._index.organizations.all():
            orphans: list[ObjectMeta] = []
            known = 0
            listing = self._store.list(f"{SEGMENT_PREFIX}{organization.id}/")
            while len(orphans) < MOST and (page := list(islice(listing, self._page))):
                here, strange = self._find_unknown(page, now_ns)
                orphans += strange
                known += here
                yield FindingPage(len(page))
            goes = self._force or not are_too_many(len({segment_in(meta.key) for meta in orphans}), known)
            for start in range(0, len(orphans), self._page):
                page = orphans[start : start + self._page]
                yield FindingPage(0, tuple(_orphan_finding(organization.id, meta, goes) for meta in page))

    def _find_unknown(self, page: Sequence[ObjectMeta], now_ns: int) -> tuple[int, list[ObjectMeta]]:
        """Return how many segments of the page the index knows, and the old files of the others."""
        named = [(id_, meta) for meta in page if (id_ := segment_in(meta.key))]
        known = self._index.sweep.known({id_ for id_, _ in named})
        before_ns = now_ns - self._grace_ns
        return len(known), [meta for id_, meta in named if id_ not in known and meta.modified_ns <= before_ns]

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - found old is old
        reach("before-sweep")
        metas: list[ObjectMeta] = [finding.about for finding in findings]
        unchanged = [meta for meta in metas if is_unchanged(self._store, meta)]
        known = self._index.sweep.known({id_ for meta in unchanged if (id_ := segment_in(meta.key))})
        going = [meta for meta in unchanged if segment_in(meta.key) not in known]
        self._store.delete(meta.key for meta in going)
        reach("after-sweep")
        return Removal(len(going), sum(meta.size for meta in going))


def are_too_many(orphans: int, known: int) -> bool:
    """Return whether there are too many segments without a row, compared with those that have one, to delete them."""
    return known == 0 or orphans > max(FEW, known // _SMALL_PART)


def _orphan_finding(organization: UUID, meta: ObjectMeta, goes: bool) -> Finding:
    reason = _ORPHAN_REASON if goes else _KEPT_REASON
    return Finding(
        SweepKind.ORPHAN,
        signal_in(meta.key),
        reason,
        meta.modified_ns,
        organization,
        (meta.key,),
        meta.size,
        goes=goes,
        about=meta,
    )
