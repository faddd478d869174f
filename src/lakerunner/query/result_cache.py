"""A cache of whole answers in memory.

Answers are cached as they are read, under the organization, the plan and the segments they were made of. So an answer
is never stale: when the data changes, other segments are picked. Failed, partial and degraded answers are not cached,
nor those that were not read to their end.

Bounded: `max_bytes` of Arrow IPC for all answers, an eighth of it for one; the least recently used go first. While a
query runs, its answer is held too, up to that eighth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

import pyarrow as pa

from lakerunner.model.lru import LruCache
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Plan
from lakerunner.query.answer import Answer, FixedAnswer
from lakerunner.query.contract.account import Account

_SHARE = 8  # one answer may take this fraction of the cache


def result_key(organization: UUID, plan: Plan, segments: Sequence[Sequence[Segment]]) -> bytes:
    """Return the key of an answer; `segments` are those of each leaf."""
    ids = [[str(segment.id) for segment in leaf] for leaf in segments]
    return blake2b(repr((organization, plan, ids)).encode(), digest_size=32).digest()


@dataclass(frozen=True)
class _Result:
    data: pa.Buffer
    account: Account
    made: float


class ResultCache:
    """Safe to use from many threads. `clock` counts seconds; a result older than `seconds` is dropped."""

    def __init__(self, max_bytes: int, seconds: float, clock: Callable[[], float]) -> None:
        self.max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._results: LruCache[_Result] = LruCache(max_bytes)

    @property
    def size(self) -> int:
        """Return the bytes of all results."""
        return self._results.size

    def find(self, key: bytes, before: Account) -> Answer | None:
        """Return the cached answer; `before` accounts for what was done already: planning and picking segments."""
        result = self._results.get(key)
        if result is None:
            return None
        if self._clock() - result.made >= self._seconds:
            self._results.drop(key)
            return None
        # The work was done once: a cached answer fetches and runs nothing.
        free = replace(result.account, bytes_fetched=0, bytes_cached=0, workers={}, from_cache=True)
        now = replace(free, seconds=before.seconds, degraded=before.degraded, warnings=before.warnings)
        rows = pa.ipc.open_stream(result.data)
        return FixedAnswer(rows.schema, iter(rows), now)

    def keep(
        self, key: bytes, schema: pa.Schema, batches: Iterator[pa.RecordBatch], account: Callable[[], Account]
    ) -> Iterator[pa.RecordBatch]:
        """Pass the batches on; once they have been read to the end, store them."""
        sink: pa.BufferOutputStream | None = pa.BufferOutputStream()
        writer = pa.ipc.new_stream(sink, schema)
        for batch in batches:
            if sink is not None:
                writer.write_batch(batch)
                if sink.tell() > self.max_bytes // _SHARE:
                    sink = writer = None
            yield batch
        if sink is not None:
            writer.close()
            self.put(key, sink.getvalue(), account())

    def put(self, key: bytes, data: pa.Buffer, account: Account) -> None:
        if len(data) > self.max_bytes // _SHARE or not account.complete or account.degraded:
            return
        self._results.put(key, _Result(data, account, self._clock()), len(data))
