"""Spans counted the way an SDK's instruments count them: per series, since the process of the pod started.

Comes in: traffic and an instant. Goes out: counts per bucket and sums per series. A point at T counts the spans that
ended before T. Sums are whole nanoseconds, so their order does not matter. What was counted for a block of time is
kept, because every later point of a counter needs it again; it could be counted again at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lakerunner.model.time import MINUTE_NS, SECOND_NS, TimeRange
from lakerunner_demo.flows import CONSUMER, SERVER, Node
from lakerunner_demo.noise import I64, U64
from lakerunner_demo.services import Pod
from lakerunner_demo.stream import Traffic, chunks
from lakerunner_demo.visits import FLOW_NODES

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_BOUNDS_NS = np.array([round(bound * SECOND_NS) for bound in BOUNDS_S], np.int64)
_BLOCK_NS = 2 * MINUTE_NS
_LAST_BREATH_NS = 30 * SECOND_NS  # a pod of a replaced release still ends requests and exports for this time
_STATE_BITS, _OPERATION_BITS = 2, 8


def _measured(node: Node) -> bool:
    return node.kind in (SERVER, CONSUMER) or node.call.system in ("postgresql", "redis")


OPERATIONS = tuple(
    dict.fromkeys(
        (node.call.service, node.call.operation, node.call.system)
        for nodes in FLOW_NODES.values()
        for node in nodes
        if _measured(node)
    )
)
_INDEX = {(service, operation): index for index, (service, operation, _) in enumerate(OPERATIONS)}


@dataclass(frozen=True)
class Series:
    """One pod, one operation (a server's or a database's), one State."""

    resource: int
    operation: str
    system: str
    state: int

    @classmethod
    def of(cls, code: int) -> Series:
        _, operation, system = OPERATIONS[code >> _STATE_BITS & ((1 << _OPERATION_BITS) - 1)]
        return cls(code >> _STATE_BITS + _OPERATION_BITS, operation, system, code & ((1 << _STATE_BITS) - 1))


@dataclass(frozen=True)
class Ended:
    """Measured spans in the order of their ends; `code` names the series."""

    code: I64
    end_ns: I64
    duration_ns: I64
    trace_id: NDArray[np.uint8]
    span_id: U64

    def between(self, time: TimeRange) -> Ended:
        rows = slice(*np.searchsorted(self.end_ns, (time.start_ns, time.end_ns)))
        return self.take(rows)

    def take(self, rows: slice | I64) -> Ended:
        return Ended(
            self.code[rows], self.end_ns[rows], self.duration_ns[rows], self.trace_id[rows], self.span_id[rows]
        )


@dataclass(frozen=True)
class Tally:
    """Series in the order of their codes; counts[series] has one more bucket than there are bounds."""

    code: I64
    counts: I64
    sum_ns: I64


def ended(traffic: Traffic, time: TimeRange) -> Ended:
    parts = [_empty()]
    for chunk in chunks(traffic, time):
        for rows in chunk.spans():
            node, at = rows.played.node, rows.source
            if _measured(node):
                kind = _INDEX[node.call.service, node.call.operation] << _STATE_BITS | rows.state
                code = rows.played.resource[at] << _STATE_BITS + _OPERATION_BITS | kind
                took = rows.end_ns - rows.played.start_ns[at]
                parts.append(Ended(code, rows.end_ns, took, rows.visits.trace_id[at], rows.played.span_id[at]))
    spans = Ended(
        np.concatenate([part.code for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        np.concatenate([part.duration_ns for part in parts]),
        np.concatenate([part.trace_id for part in parts]),
        np.concatenate([part.span_id for part in parts]),
    )
    return spans.take(np.lexsort((spans.span_id, spans.end_ns)))


def _empty() -> Ended:
    none = np.empty(0, np.int64)
    return Ended(none, none, none, np.empty((0, 16), np.uint8), np.empty(0, np.uint64))


def tally(spans: Ended) -> Tally:
    codes, series = np.unique(spans.code, return_inverse=True)
    buckets = len(BOUNDS_S) + 1
    bucket = np.searchsorted(_BOUNDS_NS, spans.duration_ns, side="left")  # a bound belongs to the bucket below
    counts = np.bincount(series * buckets + bucket, minlength=len(codes) * buckets).reshape(-1, buckets)
    sums = np.zeros(len(codes), np.int64)
    np.add.at(sums, series, spans.duration_ns)
    return Tally(codes, counts.astype(np.int64), sums)


def merged(parts: Sequence[Tally]) -> Tally:
    codes, series = np.unique(np.concatenate([part.code for part in parts]), return_inverse=True)
    counts = np.zeros((len(codes), len(BOUNDS_S) + 1), np.int64)
    np.add.at(counts, series, np.concatenate([part.counts for part in parts]))
    sums = np.zeros(len(codes), np.int64)
    np.add.at(sums, series, np.concatenate([part.sum_ns for part in parts]))
    return Tally(codes, counts, sums)


def totals(traffic: Traffic, at_ns: int) -> Tally:
    """Return every series that is still exported at this instant, counted since its pod started."""
    opening = traffic.schedule.start_ns
    oldest = min(_live_since(traffic, at_ns), at_ns)
    first, last = (oldest - opening) // _BLOCK_NS, (at_ns - opening) // _BLOCK_NS
    parts = [_block(traffic, block) for block in range(first, last)]
    rest = opening + last * _BLOCK_NS
    if rest < at_ns:
        parts.append(tally(ended(traffic, TimeRange(rest, at_ns))))
    return still_live(traffic, merged(parts or [tally(_empty())]), at_ns)


@lru_cache(maxsize=512)
def _block(traffic: Traffic, block: int) -> Tally:
    start = traffic.schedule.start_ns + block * _BLOCK_NS
    return tally(ended(traffic, TimeRange(start, start + _BLOCK_NS)))


def _live_since(traffic: Traffic, at_ns: int) -> int:
    """Return when the oldest release that is still exported at this instant started."""
    earlier = np.array([max(traffic.schedule.start_ns, at_ns - _LAST_BREATH_NS)], np.int64)
    releases = ((name, int(traffic.schedule.releases(name, earlier)[0])) for name in {o[0] for o in OPERATIONS})
    return min(traffic.schedule.release_time(name, release).start_ns for name, release in releases)


def still_live(traffic: Traffic, counted: Tally, at_ns: int) -> Tally:
    """Drop the series of releases that were replaced too long ago."""
    resources = counted.code >> _STATE_BITS + _OPERATION_BITS
    codes = np.unique(resources)
    ends = np.array([release_of(traffic, code).end_ns for code in codes.tolist()], np.int64)
    keep = np.isin(resources, codes[ends + _LAST_BREATH_NS > at_ns])
    return Tally(counted.code[keep], counted.counts[keep], counted.sum_ns[keep])


@lru_cache(maxsize=1024)
def release_of(traffic: Traffic, resource: int) -> TimeRange:
    """Return the time range in which the release of this pod serves new requests."""
    pod = Pod.of(traffic.schedule.world, resource)
    return traffic.schedule.release_time(pod.service.name, pod.release)
