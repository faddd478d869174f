"""Ingest: take a box, run its Spark job, commit segments and sources in one transaction, give up the box.

Killed at any point, the box comes again: what was committed is left out, what was not is made again under the same
ids. Two workers with overlapping boxes: the commit lets one win, the other redoes its box without what is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from lakerunner.bus.bus import Bus, Subscription
from lakerunner.bus.topics import IngestBox, SegmentsCommitted, compact_candidates, encode, ingest_boxes
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict
from lakerunner.model.signal import SignalSpec
from lakerunner.model.source import SourceState
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box
from lakerunner.services import meters
from lakerunner.services.boxer import readable
from lakerunner.services.logs import Log

log = Log("ingest")
_WAIT_SECONDS = 0.5


@dataclass(frozen=True)
class IngestParts:
    index: Index
    spark: SparkSession
    address: StoreAddress
    limits: IngestLimits


class Ingest:
    def __init__(self, spec: SignalSpec, bus: Bus, parts: IngestParts) -> None:
        self._parts = parts
        self._subscription: Subscription = bus.subscribe([ingest_boxes(spec.name)], "ingest")

    def step(self) -> None:
        for delivery in self._subscription.take(1, _WAIT_SECONDS):
            box = readable(delivery, IngestBox)
            while box is not None and not self._try(box):
                log.info(
                    "another worker was first, doing the box again without what is done",
                    objects=len(box.sources),
                )
            self._subscription.commit([delivery])

    def close(self) -> None:
        self._subscription.close()

    def _try(self, box: IngestBox) -> bool:
        """Do what is left of the box; False if another worker finished some of it meanwhile."""
        started = time.monotonic()
        left = self._unfinished(box)
        if not left.sources:
            return True
        log.info("box taken", signal=box.signal, collector=box.collector, objects=len(left.sources))
        result = ingest_box(self._parts.spark, left, self._parts.address, self._parts.limits)
        try:
            self._parts.index.commit(_commit(left, result))
        except Conflict:
            return False
        _report(left, result, time.monotonic() - started)
        return True

    def _unfinished(self, box: IngestBox) -> IngestBox:
        states = self._parts.index.sources.states([source.identity for source in box.sources])
        left = tuple(s for s in box.sources if states.get(s.identity, SourceState.SEEN) is SourceState.SEEN)
        return replace(box, sources=left)


def _commit(box: IngestBox, result: BoxResult) -> Commit:
    follow_up = SegmentsCommitted(
        box.organization, box.collector, box.signal, 0, 0, tuple(segment.id for segment in result.segments)
    )
    messages = ((compact_candidates(box.signal), encode(follow_up)),) if result.segments else ()
    return Commit(result.segments, result.done, result.failed, messages=messages)


def _report(box: IngestBox, result: BoxResult, seconds: float) -> None:
    rows = sum(segment.rows for segment in result.segments)
    stored = sum(segment.bytes for segment in result.segments)
    raw = sum(source.size for source in result.done)
    meters.ROWS.labels(box.signal).inc(rows)
    meters.SEGMENTS.labels(box.signal).inc(len(result.segments))
    meters.SEGMENT_BYTES.labels(box.signal).inc(stored)
    meters.RAW_BYTES.labels(box.signal).inc(raw)
    meters.ENDED.labels(box.signal, "done").inc(len(result.done))
    meters.ENDED.labels(box.signal, "failed").inc(len(result.failed))
    meters.BOX_SECONDS.labels(box.signal).observe(seconds)
    log.info(
        "box ingested",
        signal=box.signal,
        collector=box.collector,
        objects=len(result.done),
        failed=len(result.failed),
        rows=rows,
        segments=len(result.segments),
        raw_bytes=raw,
        stored_bytes=stored,
        seconds=round(seconds, 3),
    )
    for source, reason in result.failed:
        log.warning("object set aside", key=source.key, reason=reason)
