"""The boxer: take arrivals, group them, put boxes on the bus, and only then give up the arrivals.

What always holds: an arrival that was taken is in an open box, in a closed one that waits for the bus, or passed over,
until it is given up; while the bus is away nothing more is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakerunner.bus.boxes import Boxes, BoxLimits, ClosedBox
from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.bus.topics import ObjectArrived, arrivals, decode, encode, ingest_boxes
from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import reach
from lakerunner.model.signal import SignalSpec
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.settings import Settings

log = Log("boxer")
_TAKE = 1000
_LONGEST_WAIT = 0.5
M = TypeVar("M")


class Boxer:
    """One signal's boxer. `clock` is monotonic seconds."""

    def __init__(self, spec: SignalSpec, bus: Bus, limits: BoxLimits, clock: Callable[[], float]) -> None:
        self._spec = spec
        self._bus = bus
        self._clock = clock
        self._boxes = Boxes(limits)
        self._closed: list[ClosedBox] = []  # taken from the boxes, and not given up
        self._passed_over: list[Delivery] = []
        self._subscription: Subscription = bus.subscribe([arrivals(spec.name)], "boxer")

    def step(self) -> None:
        if not self._closed and not self._passed_over:
            self._take()
        if self._passed_over:
            self._subscription.commit(self._passed_over)
            self._passed_over = []
        if self._closed:
            self._send()

    def close(self) -> None:
        self._subscription.close()

    def _take(self) -> None:
        wait = min(_LONGEST_WAIT, self._boxes.seconds_until_due(self._clock()))
        for delivery in self._subscription.take(_TAKE, wait):
            message = readable(delivery, ObjectArrived)
            if message is None:
                self._passed_over.append(delivery)
            else:
                self._boxes.add(delivery, message, self._clock())
        self._closed = self._boxes.take_due(self._clock())

    def _send(self) -> None:
        """Again, if the bus was away: a box that comes twice changes nothing."""
        topic = ingest_boxes(self._spec.name)
        reach("before-box")
        self._bus.publish([(topic, encode(one.box)) for one in self._closed])
        reach("after-box")
        self._subscription.commit([delivery for one in self._closed for delivery in one.deliveries])
        reach("after-arrivals")
        meters.BOXES.labels(self._spec.name).inc(len(self._closed))
        for one in self._closed:
            log.info(
                "box closed",
                signal=self._spec.name,
                collector=one.box.collector,
                objects=len(one.box.sources),
                bytes=sum(source.size for source in one.box.sources),
            )
        self._closed = []


def readable(delivery: Delivery, kind: type[M]) -> M | None:
    """The delivery's message; None, said loudly, if this version cannot understand it. The objects it names stay
    recorded as seen, and the reminder announces them again."""
    try:
        message = decode(delivery.payload)
        if not isinstance(message, kind):
            raise Corrupt(f"a {type(message).__name__} where {kind.__name__} belongs")
    except Corrupt as error:
        meters.UNREADABLE.labels(delivery.topic).inc()
        log.error("a message cannot be understood and is passed over", topic=delivery.topic, error=str(error))
        return None
    return message


def box_limits(settings: Settings) -> BoxLimits:
    return BoxLimits(settings.box_max_seconds, settings.box_max_bytes, settings.box_max_objects, settings.box_max_held)
