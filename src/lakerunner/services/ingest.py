"""Ingest: take a box, run its Spark job, commit segments and sources in one transaction, acknowledge the box.

If the process is killed at any point, the box comes again: objects that were committed are left out, the others give
the same segments with the same ids. If two workers have overlapping boxes, the commit lets one win, and the other does
the rest of its box. An object that kills the worker that reads it is found by halving the box (`cut`) and set aside.

What always holds: a box that was taken is kept until each of its objects has ended, also while store, index or bus are
away.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.bus.topics import IngestBox, ObjectArrived, arrivals, encode, ingest_boxes
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival, Attempts, Identity
from lakerunner.model.display import plural
from lakerunner.model.errors import Conflict, Crashed, Unavailable
from lakerunner.model.failpoint import reach
from lakerunner.model.signal import SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.time import SECOND_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ingest import BoxResult, IngestLimits, ingest_box
from lakerunner.pipeline.job import probe_workers
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.pipeline.session import Sessions
from lakerunner.pipeline.transcode.columns import NO_MAPPINGS, Mappings
from lakerunner.services import meters
from lakerunner.services.boxer import readable
from lakerunner.services.logs import Log
from lakerunner.services.outbox import commit_messages
from lakerunner.services.rule_results import end_rules

_NONE = Attempts(0, 0)
_ANY = 1 << 31
log = Log("ingest")
_WAIT_SECONDS = 0.5


@dataclass(frozen=True)
class IngestParts:
    index: Index
    spark: Sessions
    address: StoreAddress
    limits: IngestLimits
    max_attempts: int
    mappings: Mappings = NO_MAPPINGS


class Ingest:
    def __init__(self, spec: SignalSpec, bus: Bus, parts: IngestParts) -> None:
        self._parts = parts
        self._sources = parts.index.sources
        self._subscription: Subscription = bus.subscribe([ingest_boxes(spec.name)], "ingest")
        self._in_hand: Delivery | None = None

    def step(self) -> None:
        if self._in_hand is None:
            self._in_hand = next(iter(self._subscription.take(1, _WAIT_SECONDS)), None)
        if self._in_hand is None:
            return
        box = readable(self._in_hand, IngestBox)
        if box is None or self._try(box):
            self._subscription.commit([self._in_hand])
            reach("after-ingest")
            self._in_hand = None

    def close(self) -> None:
        self._subscription.close()

    def _try(self, box: IngestBox) -> bool:
        """Do what is left of the box; return False if some of it may still be left."""
        left = self._unfinished(box)
        if not left:
            return True
        attempts = self._sources.attempts([source.identity for source in left])
        found = cut(left, attempts, self._parts.max_attempts)
        book = self._read_rules(box)
        ended = [self._ingest(replace(box, sources=group), book) for group in found.groups]
        if found.given_up:
            ended.append(self._give_up(box, found.given_up))
        return all(ended)

    def _read_rules(self, box: IngestBox) -> RuleBook:
        """Return the rules to evaluate over the box. One that is added, changed or dropped meanwhile is no conflict: a
        segment records which versions cover it."""
        index = self._parts.index
        versions = index.metric_rules.active(box.organization, box.signal)
        return RuleBook(versions, index.organizations.stream_rules(box.organization)) if versions else NO_RULES

    def _ingest(self, box: IngestBox, book: RuleBook) -> bool:
        """Run one job and commit it. Return False if a worker died of it and other workers live, since then the box may
        be to blame (if the JVM is gone, it is not), or if another worker committed some of it first."""
        started = time.monotonic()
        log.debug("box taken", signal=box.signal, collector=box.collector, objects=len(box.sources))
        parts, identities = self._parts, [source.identity for source in box.sources]
        self._sources.begin(identities)
        try:
            with parts.spark() as session:
                try:
                    result = ingest_box(session, box, parts.address, parts.limits, parts.mappings, book)
                except Crashed as error:
                    probe_workers(session)
                    log.warning("a worker died while processing a box", objects=len(box.sources), error=str(error))
                    return False
        except Unavailable:
            self._sources.give_back(identities)
            raise
        reach("before-commit")
        if not self._commit(box, result):
            return False
        reach("after-commit")
        end_rules(parts.index.metric_rules, book, result.rule_counts, result.stops, log)
        _report(box, result, time.monotonic() - started)
        return True

    def _commit(self, box: IngestBox, result: BoxResult) -> bool:
        commit = Commit(
            result.segments,
            result.done,
            result.failed,
            messages=commit_messages((*result.segments, *result.parts)),
            findings=result.findings,
            rerouted=_reroute(box, result),
            parts=result.parts,
        )
        try:
            self._parts.index.commit(commit)
        except Conflict:
            self._sources.give_back([source.identity for source in box.sources])
            log.debug("another worker committed first; processing the rest of the box", objects=len(box.sources))
            return False
        return True

    def _give_up(self, box: IngestBox, sources: tuple[SourceObject, ...]) -> bool:
        reason = (
            f"{plural(self._parts.max_attempts, 'worker')} that read it alone died of it (out of memory, or a fault "
            "in a library): give the executors more memory, then `lakerunner objects --retry`"
        )
        result = BoxResult((), (), tuple((source, reason) for source in sources))
        if not self._commit(replace(box, sources=sources), result):
            return False
        _report(box, result, 0.0)
        return True

    def _unfinished(self, box: IngestBox) -> list[SourceObject]:
        settled = self._sources.settled([source.identity for source in box.sources], box.signal)
        return [source for source in box.sources if source.identity not in settled]


def _reroute(box: IngestBox, result: BoxResult) -> tuple[Arrival, ...]:
    """Return the arrivals of objects that turned out to have another signal, announced with that one."""
    return tuple(
        Arrival(source, box.organization, box.collector, signal, arrivals(signal), encode(message))
        for source, signal in result.rerouted
        for message in [ObjectArrived(box.organization, box.collector, signal, source)]
    )


def _report(box: IngestBox, result: BoxResult, seconds: float) -> None:
    rows = sum(segment.rows for segment in result.segments)
    stored = sum(segment.bytes for segment in result.segments)
    raw = sum(source.size for source in result.done)
    partial = [(source, found.rejects) for source, found in result.findings if found.rejects]
    rejected = sum(rejects.count for _, rejects in partial)
    meters.ROWS.labels(box.signal).inc(rows)
    meters.SEGMENTS.labels(box.signal).inc(len(result.segments))
    meters.SEGMENT_BYTES.labels(box.signal).inc(stored)
    meters.RAW_BYTES.labels(box.signal).inc(raw)
    meters.REJECTED.labels(box.signal).inc(rejected)
    meters.ENDED.labels(box.signal, "done").inc(len(result.done) - len(partial))
    meters.ENDED.labels(box.signal, "partial").inc(len(partial))
    meters.ENDED.labels(box.signal, "failed").inc(len(result.failed))
    meters.BOX_SECONDS.labels(box.signal).observe(seconds)
    now_ns = time.time_ns()
    for source in result.done:
        meters.INGEST_LAG.labels(box.signal).observe(max(0, now_ns - source.modified_ns) / SECOND_NS)
    log.debug(
        "box ingested",
        signal=box.signal,
        collector=box.collector,
        objects=len(result.done),
        failed=len(result.failed),
        rows=rows,
        rejected_lines=rejected,
        segments=len(result.segments),
        raw_bytes=raw,
        stored_bytes=stored,
        seconds=round(seconds, 3),
    )
    for source, rejects in partial:
        log.warning(
            "object read in part", key=source.key, lines=rejects.lines, rejected=rejects.count, first=str(rejects)
        )
    for source, signal in result.rerouted:
        log.info("object has another signal, announced again", key=source.key, signal=signal)
    for source, reason in result.failed:
        log.warning("object set aside", key=source.key, reason=reason)


@dataclass(frozen=True)
class Cut:
    """Groups of objects, each for a job of its own, and the objects that are given up."""

    groups: tuple[tuple[SourceObject, ...], ...]
    given_up: tuple[SourceObject, ...]


def cut(sources: Sequence[SourceObject], attempts: Mapping[Identity, Attempts], limit: int) -> Cut:
    """Return which objects of a box are tried together, after some of them may have cost a worker its life.

    Comes in: the objects of a box that are not finished, and how often each was begun without an end, in a job of how
    many (its company). The same objects with the same attempts give the same groups. An object is begun `limit` times
    in one company, then in half of it, and given up after as many times alone. So a box of n objects with one that
    kills its worker costs at most limit * (log2(n) + 1) workers, and its neighbours get through. A company never grows:
    what failed is not put together with more again.
    """
    by_company: dict[int, list[SourceObject]] = {}
    given_up = []
    for source in sorted(sources):
        tried = attempts.get(source.identity, _NONE)
        if tried.company == 1 and tried.count >= limit:
            given_up.append(source)
        else:
            by_company.setdefault(_next_company(tried, limit), []).append(source)
    groups = [
        tuple(members[start : start + company])
        for company, members in sorted(by_company.items())
        for start in range(0, len(members), company)
    ]
    return Cut(tuple(groups), tuple(given_up))


def _next_company(tried: Attempts, limit: int) -> int:
    """Return how many objects the next job may hold."""
    if tried.company == 0:
        return _ANY
    return tried.company if tried.count < limit else (tried.company + 1) // 2
