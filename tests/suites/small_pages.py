"""All chores of a sweep with pages of two things: small lakes then take several."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.index.index import Index
from lakerunner.model.retention_policy import parse_retention
from lakerunner.model.source import Routes
from lakerunner.model.time import DAY_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.store import ObjectStore
from lakerunner.objects.uploads import open_uploads
from lakerunner.services.sweep.finding import Chore
from lakerunner.services.sweep.other_chores import AbandonedUploads, OldPushes, RawObjects, VoidWork
from lakerunner.services.sweep.segment_chores import EndedSegments, Orphans, PastRetention
from suites.swept_lake import GRACE_NS

RAW_KEEP_NS = 2 * DAY_NS


def small_chores(
    index: Index, store: ObjectStore, address: StoreAddress, retention: Mapping[str, str], *, page: int = 2
) -> tuple[Chore, ...]:
    return (
        PastRetention(index, parse_retention(retention.items()), page),
        EndedSegments(index, store, GRACE_NS, page),
        Orphans(index, store, GRACE_NS, page=page),
        AbandonedUploads(open_uploads(address, store), GRACE_NS, page),
        RawObjects(index, store, Routes(), RAW_KEEP_NS, page),
        OldPushes(index, page),
        VoidWork(index, page),
    )
