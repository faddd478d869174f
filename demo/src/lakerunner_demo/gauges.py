"""Metrics of pods besides their requests: memory, CPU, connections, queues.

Comes in: a schedule, a pod and an instant. Goes out: readings. They wander slowly around what is usual for the service,
and tell of the incident: payment's connections run out, its memory climbs while the bad release runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from lakerunner.model.time import MINUTE_NS, SECOND_NS
from lakerunner_demo.noise import wave
from lakerunner_demo.schedule import FULL, Schedule
from lakerunner_demo.services import BAD_PAYMENT_VERSION, SERVICE_INDEX, Pod

POOL_SIZE = 50
_MIB = 1 << 20
_POOLED = ("payment", "catalog")


class Kind(Enum):
    """Kind of the points of an instrument. Only database durations are deltas, all others are cumulative."""

    GAUGE = "gauge"
    UP_DOWN = "sum that may fall"
    COUNTER = "monotonic sum"
    HISTOGRAM = "histogram with explicit bounds"
    EXPONENTIAL = "exponential histogram, delta"


@dataclass(frozen=True)
class Instrument:
    name: str
    kind: Kind
    unit: str
    description: str


MEMORY = Instrument("process.memory.usage", Kind.UP_DOWN, "By", "The amount of physical memory in use.")
CPU = Instrument("process.cpu.utilization", Kind.GAUGE, "1", "Share of the pod's processors in use.")
CONNECTIONS = Instrument(
    "db.client.connection.count", Kind.UP_DOWN, "{connection}", "Connections of the pool by state."
)
QUEUE = Instrument("shop.queue.length", Kind.GAUGE, "{message}", "Orders whose confirmation is not sent yet.")


@dataclass(frozen=True)
class Reading:
    instrument: Instrument
    value: int | float
    attributes: Mapping[str, str] = field(default_factory=dict)


def readings(schedule: Schedule, pod: Pod, at_ns: int) -> Iterator[Reading]:
    intensity = int(schedule.intensity(np.array([at_ns]))[0])
    hit = intensity if pod.service.slowdown else 0
    leak = 0
    if pod.version == BAD_PAYMENT_VERSION:
        since = schedule.release_time(pod.service.name, pod.release).start_ns
        leak = (at_ns - since) * _MIB * 2 // (5 * SECOND_NS)
    usual = (110 + 37 * SERVICE_INDEX[pod.service.name] % 240) * _MIB
    yield Reading(MEMORY, usual + leak + _wander(schedule, pod, "memory", at_ns) * _MIB // 16)
    busy = 40 + _wander(schedule, pod, "cpu", at_ns) // 4 + hit * pod.service.slowdown // 50
    yield Reading(CPU, busy / 1000)
    if pod.service.name in _POOLED:
        used = 4 + _wander(schedule, pod, "pool", at_ns) // 90
        if pod.service.name == "payment":
            used += (POOL_SIZE - used) * intensity // FULL
        yield Reading(CONNECTIONS, used, {"state": "used"})
        yield Reading(CONNECTIONS, POOL_SIZE - used, {"state": "idle"})
    if pod.service.name == "email":
        yield Reading(QUEUE, _wander(schedule, pod, "queue", at_ns) // 70)


def _wander(schedule: Schedule, pod: Pod, what: str, at_ns: int) -> int:
    """0 to 1000."""
    at = np.array([at_ns - schedule.start_ns], np.int64)
    return int(wave(schedule.world, f"{what} of {pod.service.name} {pod.release} {pod.ordinal}", at, 3 * MINUTE_NS)[0])
