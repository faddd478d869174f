"""The boxer takes messages of one topic, groups them, puts boxes on another, and only then acknowledges the messages.

What always holds: until it is acknowledged, a message is in an open box, in a closed box that waits for the bus, or
skipped. While the bus is away, no more messages are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakerunner.bus.boxes import ARRIVALS, COMPACTION, ROLLUP, Boxes, BoxLimits, ClosedBox
from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.bus.topics import (
    ROLLUP_BOXES,
    ROLLUP_CANDIDATES,
    CompactBox,
    IngestBox,
    Message,
    ObjectArrived,
    SegmentsCommitted,
    arrivals,
    compact_boxes,
    compact_candidates,
    decode,
    encode,
    ingest_boxes,
)
from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import reach
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.settings import Settings

log = Log("boxer")
_TAKE = 1000
_LONGEST_WAIT = 0.5
M = TypeVar("M")


@dataclass(frozen=True)
class Lane(Generic[M]):
    """Which messages a boxer takes, how it groups them, and where its boxes go. `signal` and `work` are for meters."""

    signal: str
    work: str
    source: str
    kind: type[M]
    boxes: Boxes[M]
    target: str

    @property
    def name(self) -> str:
        return f"boxer {self.signal}" if self.work == "ingest" else f"boxer {self.signal} {self.work}"


def ingest_lane(signal: str, settings: Settings) -> Lane[ObjectArrived]:
    limits = BoxLimits(
        settings.box_max_seconds, settings.box_max_bytes, settings.box_max_objects, settings.box_max_held
    )
    return Lane(signal, "ingest", arrivals(signal), ObjectArrived, Boxes(ARRIVALS, limits), ingest_boxes(signal))


def compact_lane(signal: str, settings: Settings) -> Lane[SegmentsCommitted]:
    boxes = Boxes(COMPACTION, _segment_limits(settings, settings.compact_max_seconds))
    return Lane(signal, "compact", compact_candidates(signal), SegmentsCommitted, boxes, compact_boxes(signal))


def rollup_lane(settings: Settings) -> Lane[SegmentsCommitted]:
    boxes = Boxes(ROLLUP, _segment_limits(settings, settings.rollup_max_seconds))
    return Lane("metrics", "rollup", ROLLUP_CANDIDATES, SegmentsCommitted, boxes, ROLLUP_BOXES)


def _segment_limits(settings: Settings, seconds: float) -> BoxLimits:
    return BoxLimits(seconds, settings.compact_target_bytes, settings.compact_max_segments, settings.box_max_held)


class Boxer(Generic[M]):
    """The loop of one lane. `clock` returns monotonic seconds."""

    def __init__(self, lane: Lane[M], bus: Bus, clock: Callable[[], float]) -> None:
        self._lane = lane
        self._bus = bus
        self._clock = clock
        self._closed: list[ClosedBox] = []  # of closed boxes, not acknowledged yet
        self._passed_over: list[Delivery] = []
        self._subscription: Subscription = bus.subscribe([lane.source], "boxer")

    def step(self) -> None:
        if not self._closed and not self._passed_over:
            boxes = self._lane.boxes
            wait = min(_LONGEST_WAIT, boxes.seconds_until_due(self._clock()))
            for delivery in self._subscription.take(_TAKE, wait):
                message = readable(delivery, self._lane.kind)
                if message is None:
                    self._passed_over.append(delivery)
                else:
                    boxes.add(delivery, message, self._clock())
            self._closed = boxes.take_due(self._clock())
        if self._passed_over:
            self._subscription.commit(self._passed_over)
            self._passed_over = []
        if self._closed:
            self._send()

    def close(self) -> None:
        self._subscription.close()

    def _send(self) -> None:
        """Publish closed boxes, again if the bus was away: a box that comes twice changes nothing."""
        made = [one.box for one in self._closed if one.box is not None]
        if made:
            reach("before-box")
            self._bus.publish([(self._lane.target, encode(box)) for box in made])
            reach("after-box")
        self._subscription.commit([delivery for one in self._closed for delivery in one.deliveries])
        if made:
            reach("after-arrivals")
        meters.BOXES.labels(self._lane.signal, self._lane.work).inc(len(made))
        for box in made:
            log.debug("box closed", work=self._lane.work, signal=self._lane.signal, **_size(box))
        self._closed = []


def _size(box: Message) -> dict[str, str | int]:
    match box:
        case IngestBox():
            size = {"objects": len(box.sources), "bytes": sum(source.size for source in box.sources)}
        case CompactBox():
            size = {"frequency_ms": box.frequency_ms, "merge_level": box.level, "segments": len(box.segments)}
        case _:
            size = {"frequency_ms": getattr(box, "frequency_ms", 0), "segments": len(getattr(box, "segments", ()))}
    return {"collector": box.collector, **size}


def readable(delivery: Delivery, kind: type[M]) -> M | None:
    """Return the message of a delivery; None, with an error in the log, if this version cannot read it. The objects
    that it names stay recorded as seen, and the reminder announces them again."""
    try:
        message = decode(delivery.payload)
        if not isinstance(message, kind):
            raise Corrupt(f"got a {type(message).__name__}, expected {kind.__name__}")
    except Corrupt as error:
        meters.UNREADABLE.labels(delivery.topic).inc()
        log.error("unreadable message skipped", topic=delivery.topic, error=str(error))
        return None
    return message
