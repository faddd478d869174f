"""Orphans: files of segments that no row of the index names. Work that died after writing and before its commit leaves
them.

What always holds: a file goes only if it was last written before the grace time, its segment has no row, in any state,
at the moment of deletion, and it is still the file that was listed. Work that takes longer from writing to commit than
the grace time would lose its files: `sweep_grace_seconds` exceeds the longest job. Where the index knows too little of
what is there, it may be the wrong index, or a restored one: nothing goes, and a person is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.model.failpoint import reach
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.sweep.finding import PAGE, Finding, Found, Gone, Kind, is_unchanged
from lakerunner.services.sweep.names import segment_in, signal_in

MOST = 100_000  # of one organization in one sweep, which bounds memory; the next sweep takes others
FEW = 100  # segments: so many are taken wherever the index knows any; more must be a small part of what it knows
_PART = 10
_REASON = "the index does not use it"
_HELD = (
    "not used by the index, but kept: the index knows too few of the files in this "
    "store. Check that they belong together; --force deletes these files"
)


class Orphans:
    """`force`: however little the index knows."""

    name = "orphans"

    def __init__(
        self, index: Index, store: ObjectStore, grace_ns: int, *, force: bool = False, page: int = PAGE
    ) -> None:
        self._index = index
        self._store = store
        self._grace_ns = grace_ns
        self._force = force
        self._page = page

    def find(self, now_ns: int) -> Iterator[Found]:
        for organization in self._index.organizations.all():
            orphans: list[ObjectMeta] = []
            known = 0
            listing = self._store.list(f"{SEGMENT_PREFIX}{organization.id}/")
            while len(orphans) < MOST and (page := list(islice(listing, self._page))):
                here, strange = self._sorted_out(page, now_ns)
                orphans += strange
                known += here
                yield Found(len(page))
            goes = self._force or not are_too_many(len({segment_in(meta.key) for meta in orphans}), known)
            for start in range(0, len(orphans), self._page):
                page = orphans[start : start + self._page]
                yield Found(0, tuple(_finding(organization.id, meta, goes) for meta in page))

    def _sorted_out(self, page: Sequence[ObjectMeta], now_ns: int) -> tuple[int, list[ObjectMeta]]:
        """How many segments the index knows, and the old files of others."""
        named = [(id_, meta) for meta in page if (id_ := segment_in(meta.key))]
        known = self._index.sweep.known({id_ for id_, _ in named})
        before_ns = now_ns - self._grace_ns
        return len(known), [meta for id_, meta in named if id_ not in known and meta.modified_ns <= before_ns]

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:  # noqa: ARG002 - found old is old
        reach("before-sweep")
        metas: list[ObjectMeta] = [finding.about for finding in findings]
        unchanged = [meta for meta in metas if is_unchanged(self._store, meta)]
        known = self._index.sweep.known({id_ for meta in unchanged if (id_ := segment_in(meta.key))})
        going = [meta for meta in unchanged if segment_in(meta.key) not in known]
        self._store.delete(meta.key for meta in going)
        reach("after-sweep")
        return Gone(len(going), sum(meta.size for meta in going))


def are_too_many(orphans: int, known: int) -> bool:
    """Segments without a row, beside those with one that the same listing showed."""
    return known == 0 or orphans > max(FEW, known // _PART)


def _finding(organization: UUID, meta: ObjectMeta, goes: bool) -> Finding:
    reason = _REASON if goes else _HELD
    return Finding(
        Kind.ORPHAN,
        signal_in(meta.key),
        reason,
        meta.modified_ns,
        organization,
        (meta.key,),
        meta.size,
        goes=goes,
        about=meta,
    )
