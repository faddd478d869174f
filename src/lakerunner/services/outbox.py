"""Messages of commits: what a commit of segments asks the boxer for, and the relay that publishes it from the outbox.

Metrics are rolled up first, and become candidates for compaction once the next tier has their rows, which the commit of
that tier announces. A segment that is full, or of the last level, asks for nothing. The relay publishes at least once,
and any number of processes may run one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lakerunner.bus.bus import Bus
from lakerunner.bus.topics import ROLLUP_CANDIDATES, Candidate, SegmentsCommitted, compact_candidates, encode
from lakerunner.index.index import Index
from lakerunner.model.failpoint import reach
from lakerunner.model.merging import LEVELS
from lakerunner.model.segment import Segment
from lakerunner.model.tier import next_tier
from lakerunner.services import meters

Messages = tuple[tuple[str, bytes], ...]
_AT_ONCE = 10_000  # segments of one message: about 1 MB


def commit_messages(segments: Sequence[Segment]) -> Messages:
    """Return the messages for new segments, however they were made."""
    unrolled = [one for one in segments if is_to_roll(one)]
    return (*to_roll(unrolled), *to_merge([one for one in segments if not is_to_roll(one)]))


def is_to_roll(segment: Segment) -> bool:
    return segment.signal == "metrics" and next_tier(segment.frequency_ms) is not None and not segment.rolled


def to_roll(segments: Sequence[Segment]) -> Messages:
    return _messages(ROLLUP_CANDIDATES, [(one, 0) for one in segments])


def to_merge(segments: Sequence[Segment], level: int | None = None) -> Messages:
    """Return the messages for candidates of compaction, at this level or each at its own."""
    levelled = [(one, one.level if level is None else level) for one in segments]
    signals = sorted({one.signal for one, _ in levelled})
    return tuple(
        message
        for signal in signals
        for message in _messages(
            compact_candidates(signal),
            [(one, at) for one, at in levelled if one.signal == signal and at < len(LEVELS)],
        )
    )


def _messages(topic: str, levelled: Sequence[tuple[Segment, int]]) -> Messages:
    groups = defaultdict(list)
    for one, level in levelled:
        groups[one.organization, one.collector, one.signal, one.frequency_ms, level].append(one)
    return tuple(
        (topic, encode(SegmentsCommitted(*group, tuple(_candidate(one) for one in some))))
        for group, members in groups.items()
        for some in (members[start : start + _AT_ONCE] for start in range(0, len(members), _AT_ONCE))
    )


def _candidate(segment: Segment) -> Candidate:
    return Candidate(segment.id, segment.time.start_ns, segment.bytes)


_WAIT_SECONDS = 1.0


class Relay:
    def __init__(self, index: Index, bus: Bus) -> None:
        self._index = index
        self._bus = bus

    def step(self) -> None:
        def publish(messages: Sequence[tuple[str, bytes]]) -> None:
            reach("before-relay")
            self._bus.publish(messages)
            reach("after-relay")

        sent = self._index.outbox.relay(publish)
        if sent:
            meters.RELAYED.inc(sent)
        else:
            self._index.outbox.wait(_WAIT_SECONDS)
