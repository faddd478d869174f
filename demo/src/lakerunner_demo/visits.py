"""The requests of a stretch of time, played through: who came, what happened, when each span began and ended.

Comes in: a schedule, a rate, a range of the shop's seconds. Goes out: per flow, arrays over its requests. A request
is known by its id, from which everything about it is drawn, so a stretch comes out the same however it is cut.
A request's spans and log lines may end up to LONGEST_NS after its start, never later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lakerunner.model.time import MINUTE_NS, SECOND_NS
from lakerunner_demo.flows import CONSUMER, FLOWS, Flow, Node, Outcome, State
from lakerunner_demo.noise import I64, SPREAD_UNIT, U64, below, draw, spread, wave
from lakerunner_demo.schedule import FULL, Schedule
from lakerunner_demo.services import resource_codes, service_named

LONGEST_NS = 15 * SECOND_NS
MOST_PER_SECOND = 1 << 20
_MOST_BITS = 20
_TIMEOUT_US = 1_000_000  # a failure that takes this long is a timeout: it takes that long, not about that long
FLOW_NODES = {flow.name: flow.nodes() for flow in FLOWS}


@dataclass(frozen=True)
class Played:
    """One node in every request of a flow: its span's times, State and pod. Absent ones have times, too. Half of
    `own_ns` passes before the node's first call, half after its last."""

    node: Node
    start_ns: I64
    end_ns: I64
    own_ns: I64
    state: NDArray[np.uint8]
    resource: I64
    span_id: U64


@dataclass(frozen=True)
class Visits:
    """The requests of one flow."""

    schedule: Schedule
    flow: Flow
    ids: U64
    start_ns: I64
    outcome: I64

    @cached_property
    def intensity(self) -> I64:
        return self.schedule.intensity(self.start_ns)

    @cached_property
    def trace_id(self) -> NDArray[np.uint8]:
        world = self.schedule.world
        halves = np.stack((draw(world, "trace high", self.ids), draw(world, "trace low", self.ids)), axis=1)
        return halves.view(np.uint8).reshape(-1, 16)

    @cached_property
    def played(self) -> tuple[Played, ...]:
        """Return one Visits value for each node of the flow, in order."""
        nodes = FLOW_NODES[self.flow.name]
        states = [np.array(node.states, np.uint8)[self.outcome] for node in nodes]
        own = [self._own_ns(node, state) for node, state in zip(nodes, states, strict=True)]
        spent = [time.copy() for time in own]
        for node in reversed(nodes):
            if node.parent >= 0 and node.kind != CONSUMER:
                spent[node.parent] += spent[node.index]
        starts: list[I64] = []
        ahead = [time // 2 for time in own]
        for node in nodes:
            starts.append(self._start_ns(node, starts, ahead, spent))
        return tuple(
            Played(node, start, start + time, alone, state, self.resources(node.service), self._span_ids(node))
            for node, start, time, alone, state in zip(nodes, starts, spent, own, states, strict=True)
        )

    def _start_ns(self, node: Node, starts: list[I64], ahead: list[I64], spent: list[I64]) -> I64:
        if node.parent < 0:
            return self.start_ns
        if node.kind == CONSUMER:
            waits = below(draw(self.schedule.world, "queue", self.ids), 400) * 1_000_000
            return starts[node.parent] + spent[node.parent] + waits
        start = starts[node.parent] + ahead[node.parent]
        ahead[node.parent] = ahead[node.parent] + spent[node.index]
        return start

    def _own_ns(self, node: Node, state: NDArray[np.uint8]) -> I64:
        bits = draw(self.schedule.world, f"{self.flow.name} {node.index} takes", self.ids)
        median = np.array([node.own_us, node.own_us, node.error_us, 0], np.int64)[state]
        slow = FULL * 10 + service_named(node.service).slowdown * self.intensity
        usual = median * 1000 * spread(bits) // SPREAD_UNIT * slow // (FULL * 10)
        usual += (bits & np.uint64(0x3FF)).astype(np.int64) * (state != State.ABSENT)
        if node.error_us < _TIMEOUT_US:
            return usual
        timed_out = median * 1000 + (bits & np.uint64(0xFFFFFF)).astype(np.int64)
        return np.where(state == State.ERROR, timed_out, usual)

    def resources(self, service: str) -> I64:
        """Choose the pods: a request uses one pod of a service throughout, of the release that served when it began."""
        releases = self.schedule.releases(service, self.start_ns)
        pods = below(draw(self.schedule.world, f"{service} pod", self.ids), service_named(service).pods)
        return resource_codes(service, releases, pods)

    def _span_ids(self, node: Node) -> U64:
        return draw(self.schedule.world, f"span {node.index}", self.ids) | np.uint64(1)


def visits(schedule: Schedule, rate: float, first: int, end: int) -> Iterator[Visits]:
    """Yield the requests that begin in the shop's seconds first <= s < end, flow by flow."""
    ids = _request_ids(schedule, rate, first, end)
    second = (ids >> np.uint64(_MOST_BITS)).astype(np.int64)
    within = below(draw(schedule.world, "arrives", ids), SECOND_NS)
    start_ns = schedule.start_ns + second * SECOND_NS + within
    shares = np.cumsum([flow.weight for flow in FLOWS])
    chosen = np.searchsorted(shares, below(draw(schedule.world, "flow", ids), int(shares[-1])), side="right")
    for index, flow in enumerate(FLOWS):
        rows = np.flatnonzero(chosen == index)
        if len(rows):
            outcome = _outcomes(schedule, flow, ids[rows], start_ns[rows])
            yield Visits(schedule, flow, ids[rows], start_ns[rows], outcome)


def _request_ids(schedule: Schedule, rate: float, first: int, end: int) -> U64:
    """Return the second of each request and its number within it. Traffic varies by a seventh around the rate."""
    seconds = np.arange(max(0, first), max(0, end), dtype=np.int64)
    swell = wave(schedule.world, "traffic", seconds * SECOND_NS, 4 * MINUTE_NS)
    chance = below(draw(schedule.world, "count", seconds.astype(np.uint64)), 1000)
    counts = np.floor(rate * (857 + swell * 286 // 1000) / 1000 + chance / 1000).astype(np.int64)
    counts = np.minimum(counts, MOST_PER_SECOND)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    number = np.arange(len(before), dtype=np.int64) - before
    return ((np.repeat(seconds, counts) << _MOST_BITS) | number).astype(np.uint64)


def _outcomes(schedule: Schedule, flow: Flow, ids: U64, start_ns: I64) -> I64:
    luck = below(draw(schedule.world, "outcome", ids), 10_000) * FULL
    intensity = schedule.intensity(start_ns)
    outcome = np.zeros(len(ids), np.int64)
    bound = np.zeros(len(ids), np.int64)
    for kind in Outcome:
        usual, incident = flow.usual.get(kind, 0), flow.incident.get(kind, 0)
        weight = usual * FULL + (incident - usual) * intensity
        outcome[(luck >= bound) & (luck < bound + weight)] = kind
        bound = bound + weight
    return outcome
