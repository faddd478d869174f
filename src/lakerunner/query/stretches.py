"""Segments cut into stretches of time, for a query that is worked out round after round.

Comes in: the segments picked for a scan, and the plan's rounds. Goes out: the segments of each round, in the order of
the rounds. What always holds: each segment is in one round; no bucket has rows in two rounds; all rows of a round lie
before those of the next, or after them if rounds descend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.plan import Rounds

Stretch = tuple[Segment, ...]

# The first round is small, so that its rows come early; the next ones grow, as each costs some ten milliseconds.
FIRST_BYTES = 8 << 20
_GROWTH = 32  # a round of full size is this many first ones, or more
_MOST = 48  # rounds of full size; those that grow come on top
_OPENING_BYTES = 256 << 10  # what it costs to open a segment, as bytes read


def cut(segments: Sequence[Segment], time: TimeRange, rounds: Rounds, first_bytes: int = FIRST_BYTES) -> list[Stretch]:
    """At least one stretch, which is empty if there are no segments. What lies outside `time` does not matter."""
    clusters = list(_clusters(segments, time, rounds))
    if rounds.descending:
        clusters.reverse()
    return list(_grouped(clusters, first_bytes)) or [()]


def _clusters(segments: Sequence[Segment], time: TimeRange, rounds: Rounds) -> Iterator[Stretch]:
    """The smallest stretches, ascending."""

    def bucket(ns: int) -> int:
        return (ns - rounds.origin_ns) // rounds.bucket_ns

    spans = [(max(s.time.start_ns, time.start_ns), min(s.time.end_ns, time.end_ns) - 1, s) for s in segments]
    cluster: list[Segment] = []
    last = 0
    for first_ns, last_ns, segment in sorted(spans, key=lambda span: span[:2]):
        if cluster and bucket(first_ns) > last:
            yield tuple(cluster)
            cluster = []
        last = max(last, bucket(last_ns)) if cluster else bucket(last_ns)
        cluster.append(segment)
    if cluster:
        yield tuple(cluster)


def _grouped(clusters: Sequence[Stretch], first_bytes: int) -> Iterator[Stretch]:
    """Neighbours put together until they are worth a round."""
    weights = [sum(segment.bytes + _OPENING_BYTES for segment in cluster) for cluster in clusters]
    full = max(_GROWTH * first_bytes, sum(weights) // _MOST)
    enough = first_bytes
    group: list[Segment] = []
    weight = 0
    for cluster, more in zip(clusters, weights, strict=True):
        group += cluster
        weight += more
        if weight >= enough:
            yield tuple(group)
            group, weight, enough = [], 0, min(2 * enough, full)
    if group:
        yield tuple(group)
