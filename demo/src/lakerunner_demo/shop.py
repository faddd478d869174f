"""The shop: its telemetry for any stretch of time, as OTLP export requests, and the truth about it.

Comes in: a seed, the opening time, a rate; then time ranges. Goes out: batches of bytes as a collector writes them,
many pods of several services in each. The same shop and range always give the same bytes. Whichever way time is cut
into calls, each log record (by its time), span (by its end) and data point comes exactly once; cut on the grid of
`per_batch_seconds` from the opening, the batches are the same too. Before its opening the shop has no telemetry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from lakerunner.model.errors import UserError
from lakerunner.model.segment import digest64
from lakerunner.model.signal import LOGS, METRICS, signal_named
from lakerunner.model.time import MAX_NS, SECOND_NS, TimeRange
from lakerunner_demo import metrics, stream
from lakerunner_demo.records import joined, request_of
from lakerunner_demo.schedule import Incident, Schedule
from lakerunner_demo.stream import Traffic
from lakerunner_demo.truth import Truth, tell_truth
from lakerunner_demo.visits import MOST_PER_SECOND

__all__ = ["Batch", "Incident", "Shop", "Truth"]


@dataclass(frozen=True)
class Batch:
    """One OTLP export request, not compressed. Its records (data points for metrics) lie in [start_ns, end_ns)."""

    signal: str
    start_ns: int
    end_ns: int
    records: int
    data: bytes


@dataclass(frozen=True)
class Shop:
    """`rate` is requests per second; each leaves about thirteen spans and eight log records."""

    seed: int
    start_ns: int
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MOST_PER_SECOND / 2:
            raise UserError(f"the rate of the shop must be above 0 and at most {MOST_PER_SECOND // 2}, not {self.rate}")
        if not 0 <= self.start_ns < MAX_NS:
            raise UserError(f"the shop cannot open at {self.start_ns} ns since 1970")

    @cached_property
    def traffic(self) -> Traffic:
        """Return the traffic. The opening time is part of the world, so two openings share no ids."""
        world = digest64(str(self.seed), str(self.start_ns))
        return Traffic(Schedule(world, self.start_ns), self.rate)

    def incidents(self, start_ns: int, end_ns: int) -> tuple[Incident, ...]:
        """Return the incidents that overlap [start_ns, end_ns)."""
        time = self._open(start_ns, end_ns)
        return self.traffic.schedule.incidents(time) if time else ()

    def batches(self, signal: str, start_ns: int, end_ns: int, *, per_batch_seconds: float = 10) -> Iterator[Batch]:
        """Yield the exports of [start_ns, end_ns), one batch per `per_batch_seconds`; empty ones are left out."""
        name = signal_named(signal).name
        per_batch_ns = round(per_batch_seconds * SECOND_NS)
        if per_batch_ns <= 0:
            raise UserError(f"per_batch_seconds is {per_batch_seconds}: it must be above 0")
        time = self._open(start_ns, end_ns)
        if time is None:
            return iter(())
        windows = self._windows(time, per_batch_ns)
        return self._metrics(time, windows) if name == METRICS.name else self._records(name, time, windows)

    def bulk_logs(self, records: int, *, per_file: int) -> Iterator[Batch]:
        """Yield exactly this many log records from the opening on, as fast as possible; their times follow the rate."""
        if records < 0 or per_file <= 0:
            raise UserError(f"{records} records in files of {per_file} cannot be made")
        held, left = joined([]), records
        for _, complete in stream.records(self.traffic, LOGS.name, TimeRange(self.start_ns, MAX_NS)):
            held = joined([held, complete])
            while left and len(held) >= min(per_file, left):
                taken, held = held.divide(min(per_file, left))
                left -= len(taken)
                data = request_of(self.traffic.schedule.world, LOGS.name, taken)
                first, last = int(taken.time_ns[0]), int(taken.time_ns[-1])
                yield Batch(LOGS.name, first, last + 1, len(taken), data)
            if not left:
                return

    def truth(self, start_ns: int, end_ns: int) -> Truth:
        """Return the right answers for [start_ns, end_ns)."""
        time = self._open(start_ns, end_ns)
        return tell_truth(self.traffic, time) if time else Truth(0, {}, {}, {}, (), {})

    def _open(self, start_ns: int, end_ns: int) -> TimeRange | None:
        """Return the part of the range in which the shop is open."""
        start_ns = max(start_ns, self.start_ns)
        return TimeRange(start_ns, end_ns) if start_ns < end_ns else None

    def _windows(self, time: TimeRange, per_batch_ns: int) -> Iterator[TimeRange]:
        start_ns = time.start_ns
        while start_ns < time.end_ns:
            edge = start_ns + per_batch_ns - (start_ns - self.start_ns) % per_batch_ns
            end_ns = min(edge, time.end_ns)
            yield TimeRange(start_ns, end_ns)
            start_ns = end_ns

    def _records(self, signal: str, time: TimeRange, windows: Iterator[TimeRange]) -> Iterator[Batch]:
        held = joined([])
        window = next(windows, None)
        for until_ns, complete in stream.records(self.traffic, signal, time):
            held = joined([held, complete])
            while window and window.end_ns <= until_ns:
                taken, held = held.split(window.end_ns)
                if len(taken):
                    data = request_of(self.traffic.schedule.world, signal, taken)
                    yield Batch(signal, window.start_ns, window.end_ns, len(taken), data)
                window = next(windows, None)

    def _metrics(self, time: TimeRange, windows: Iterator[TimeRange]) -> Iterator[Batch]:
        exports = metrics.exports(self.traffic, metrics.instants(self.traffic, time))
        for window in windows:
            due = len(metrics.instants(self.traffic, window))
            if due:
                request = metrics.Request(self.traffic)
                for export in islice(exports, due):
                    request.add(export)
                yield Batch(METRICS.name, window.start_ns, window.end_ns, request.points, request.data())
