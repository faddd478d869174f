"""The boxer: take arrivals, group them, put boxes on the bus, and only then give up the arrivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakerunner.bus.boxes import Boxes, BoxLimits
from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.bus.topics import ObjectArrived, arrivals, decode, encode, ingest_boxes
from lakerunner.model.errors import Corrupt
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
        self._subscription: Subscription = bus.subscribe([arrivals(spec.name)], "boxer")

    def step(self) -> None:
        wait = min(_LONGEST_WAIT, self._boxes.seconds_until_due(self._clock()))
        for delivery in self._subscription.take(_TAKE, wait):
            self._add(delivery)
        closed = self._boxes.take_due(self._clock())
        if not closed:
            return
        topic = ingest_boxes(self._spec.name)
        self._bus.publish([(topic, encode(one.box)) for one in closed])
        self._subscription.commit([delivery for one in closed for delivery in one.deliveries])
        meters.BOXES.labels(self._spec.name).inc(len(closed))
        for one in closed:
            log.info(
                "box closed",
                signal=self._spec.name,
                collector=one.box.collector,
                objects=len(one.box.sources),
                bytes=sum(source.size for source in one.box.sources),
            )

    def close(self) -> None:
        self._subscription.close()

    def _add(self, delivery: Delivery) -> None:
        message = readable(delivery, ObjectArrived)
        if message is None:
            self._subscription.commit([delivery])
        else:
            self._boxes.add(delivery, message, self._clock())


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
