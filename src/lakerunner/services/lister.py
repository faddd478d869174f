"""The lister: finds raw objects by looking, for stores that do not notify, and what notifications missed.

A poll lists the raw prefix and announces what the index does not know. What it saw unchanged in an earlier poll costs
nothing; after a restart the index says in batches what is known. A local file that is still young may still be being
written: it is left for the next poll.
"""

from __future__ import annotations

from lakerunner.index.index import Index
from lakerunner.model.errors import Absent
from lakerunner.model.source import RAW_PREFIX, SourceObject, route_of
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.announce import Announcer

_BATCH = 1000
_REMEMBERED = 1_000_000


class Lister:
    def __init__(self, index: Index, store: ObjectStore, announcer: Announcer, settle_ns: int) -> None:
        self._index = index
        self._store = store
        self._announcer = announcer
        self._settle_ns = settle_ns
        self._seen: dict[str, tuple[int, int]] = {}

    def poll(self, now_ns: int) -> int:
        """Look once; how many new objects were announced."""
        new = 0
        batch: list[ObjectMeta] = []
        for meta in self._store.list(RAW_PREFIX):
            if not self._is_news(meta, now_ns):
                continue
            batch.append(meta)
            if len(batch) == _BATCH:
                new += self._announce(batch)
                batch = []
        return new + self._announce(batch)

    def _is_news(self, meta: ObjectMeta, now_ns: int) -> bool:
        if self._seen.get(meta.key) == (meta.size, meta.modified_ns) or route_of(meta.key) is None:
            return False
        local = meta.etag is None
        return not (local and now_ns - meta.modified_ns < self._settle_ns)

    def _announce(self, batch: list[ObjectMeta]) -> int:
        if not batch:
            return 0
        triples = [(meta.key, meta.size, meta.modified_ns) for meta in batch]
        unknown = set(self._index.sources.unknown(self._store.bucket, triples))
        found = [self._whole(meta) for meta in batch if (meta.key, meta.size, meta.modified_ns) in unknown]
        new = self._announcer.metas(self._without_known([meta for meta in found if meta is not None]))
        if len(self._seen) > _REMEMBERED:  # a bound on memory; the index still knows
            self._seen.clear()
        self._seen.update({key: (size, modified) for key, size, modified in triples})
        return new

    def _whole(self, meta: ObjectMeta) -> ObjectMeta | None:
        """With its etag; None if the object went away since it was listed."""
        if meta.etag is not None:
            return meta
        try:
            return self._store.head(meta.key)
        except Absent:
            return None

    def _without_known(self, metas: list[ObjectMeta]) -> list[ObjectMeta]:
        """Objects whose content is recorded already under another time of change are only touched."""
        sources = {
            meta.key: SourceObject(self._store.bucket, meta.key, meta.etag or "", meta.size, meta.modified_ns)
            for meta in metas
        }
        known = self._index.sources.states([source.identity for source in sources.values()])
        for source in sources.values():
            if source.identity in known:
                self._index.sources.touch(source)
        return [meta for meta in metas if sources[meta.key].identity not in known]
