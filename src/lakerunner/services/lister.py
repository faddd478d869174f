"""The lister: finds raw objects by looking, for stores that do not notify, and what notifications missed.

A poll lists every prefix that routes name and announces what the index does not know. What it saw unchanged in an
earlier poll costs nothing; after a restart the index says in batches what is known. A local file that is still young
may still be being written: it is left for the next poll. A prefix that cannot be listed does not keep the others
from being listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakerunner.index.index import Index
from lakerunner.model.errors import Absent, Unavailable
from lakerunner.model.source import SourceObject
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.services.announce import Announcer

BATCH = 1000
_REMEMBERED = 1_000_000


class Lister:
    """`settle_ns`: how old a local file is at least."""

    def __init__(self, newcomers: Newcomers, announcer: Announcer, roots: Sequence[str], settle_ns: int) -> None:
        self._newcomers = newcomers
        self._announcer = announcer
        self._roots = roots
        self._settle_ns = settle_ns
        self._seen: dict[str, tuple[int, int]] = {}

    def poll(self, now_ns: int) -> int:
        """Look once; how many new objects were announced."""
        new = 0
        failures: list[Unavailable] = []
        for root in self._roots:
            try:
                news = (meta for meta in self._newcomers.listed(root) if self._is_news(meta, now_ns))
                for batch in batches(news):
                    new += self._announce(batch)
            except Unavailable as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return new

    def _is_news(self, meta: ObjectMeta, now_ns: int) -> bool:
        if self._seen.get(meta.key) == (meta.size, meta.modified_ns) or self._announcer.route_of(meta.key) is None:
            return False
        return not is_unsettled(meta, now_ns, self._settle_ns)

    def _announce(self, batch: list[ObjectMeta]) -> int:
        new = self._announcer.metas(self._newcomers.of(batch)).new
        if len(self._seen) > _REMEMBERED:  # a bound on memory; the index still knows
            self._seen.clear()
        self._seen.update({meta.key: (meta.size, meta.modified_ns) for meta in batch})
        return new


class Newcomers:
    """Which of the objects that a listing shows the index does not know."""

    def __init__(self, index: Index, store: ObjectStore) -> None:
        self._index = index
        self._store = store

    def listed(self, prefix: str) -> Iterator[ObjectMeta]:
        return self._store.list(prefix)

    def of(self, batch: Sequence[ObjectMeta], *, touch: bool = True) -> list[ObjectMeta]:
        """Those of at most BATCH objects, with their etags. `touch`: where content is recorded already under another
        time of change, the index takes the new time, and need not be asked so again."""
        triples = [(meta.key, meta.size, meta.modified_ns) for meta in batch]
        unknown = set(self._index.sources.unknown(self._store.bucket, triples))
        metas = [self._whole(meta) for meta in batch if (meta.key, meta.size, meta.modified_ns) in unknown]
        sources = [(meta, self._source(meta)) for meta in metas if meta]
        known = self._index.sources.states([source.identity for _, source in sources])
        for _, source in sources:
            if touch and source.identity in known:
                self._index.sources.touch(source)
        return [meta for meta, source in sources if source.identity not in known]

    def _source(self, meta: ObjectMeta) -> SourceObject:
        return SourceObject(self._store.bucket, meta.key, meta.etag or "", meta.size, meta.modified_ns)

    def _whole(self, meta: ObjectMeta) -> ObjectMeta | None:
        """With its etag; None if the object went away since it was listed."""
        if meta.etag is not None:
            return meta
        try:
            return self._store.head(meta.key)
        except Absent:
            return None


def is_unsettled(meta: ObjectMeta, now_ns: int, settle_ns: int) -> bool:
    """A listing gives an etag wherever objects appear whole; a local file may be young and half."""
    return meta.etag is None and now_ns - meta.modified_ns < settle_ns


def batches(metas: Iterable[ObjectMeta]) -> Iterator[list[ObjectMeta]]:
    """What a listing gave before it failed comes out too, before it fails."""
    batch: list[ObjectMeta] = []
    failure: Unavailable | None = None
    try:
        for meta in metas:
            batch.append(meta)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except Unavailable as error:
        failure = error
    if batch:
        yield batch
    if failure:
        raise failure
