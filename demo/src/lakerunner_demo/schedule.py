"""What happens when: the hourly incident of payment, and the releases of every service.

Comes in: a world and the shop's opening time. Goes out: times in ns since the epoch, and per-row answers for arrays of
times. Hours and minutes are the shop's own, counted from its opening; everything here falls on a whole minute.

    deploy ----- 2 min ----- begin ===== 5 to 7 min ===== end
                                               rollback --^  (1 min before the end)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.model.time import HOUR_NS, MINUTE_NS, TimeRange
from lakerunner_demo.noise import I64, below, draw

ROLLOUT_NS = 4 * HOUR_NS  # interval between releases of every service except payment
FULL = 1000  # intensity at the height of an incident


@dataclass(frozen=True)
class Incident:
    """Payment's new release exhausts its connection pool. All times in ns since the epoch."""

    deploy_ns: int
    begin_ns: int
    rollback_ns: int
    end_ns: int

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.begin_ns, self.end_ns)


@dataclass(frozen=True)
class Schedule:
    world: int
    start_ns: int

    def incident(self, hour: int) -> Incident:
        """Return the incident of an hour of the shop, counted from 0."""
        deploy, begin, rollback, end = (
            self.start_ns + int(time[0]) for time in self._times(np.array([hour], np.int64))
        )
        return Incident(deploy, begin, rollback, end)

    def incidents(self, time: TimeRange) -> tuple[Incident, ...]:
        """Return the incidents that overlap this time."""
        first = max(0, (time.start_ns - self.start_ns) // HOUR_NS)
        last = (time.end_ns - 1 - self.start_ns) // HOUR_NS
        found = (self.incident(hour) for hour in range(first, last + 1))
        return tuple(incident for incident in found if incident.time.overlaps(time))

    def intensity(self, at_ns: I64) -> I64:
        """Return the intensity, 0 to FULL; it rises for a minute and falls after the rollback."""
        at = at_ns - self.start_ns
        _, begin, rollback, end = self._times(at // HOUR_NS)
        climb = (at - begin) * FULL // MINUTE_NS
        fall = (end - at) * FULL // (end - rollback)
        intensity: I64 = np.clip(np.minimum(climb, fall), 0, FULL)
        return intensity

    def releases(self, service: str, at_ns: I64) -> I64:
        """Return the number of the release that serves at this time. Payment's odd releases are the bad ones."""
        at = at_ns - self.start_ns
        if service != "payment":
            return at // ROLLOUT_NS
        hour = at // HOUR_NS
        deploy, _, rollback, _ = self._times(hour)
        return 2 * hour + (at >= deploy) + (at >= rollback)

    def release_time(self, service: str, release: int) -> TimeRange:
        """Return the time range in which this release serves new requests."""
        if service != "payment":
            begin = self.start_ns + release * ROLLOUT_NS
            return TimeRange(begin, begin + ROLLOUT_NS)
        incident = self.incident(release // 2)
        if release % 2:
            return TimeRange(incident.deploy_ns, incident.rollback_ns)
        begin = self.incident(release // 2 - 1).rollback_ns if release else self.start_ns
        return TimeRange(begin, incident.deploy_ns)

    def _times(self, hours: I64) -> tuple[I64, I64, I64, I64]:
        """Deploy, begin, rollback and end of each hour's incident, since the opening."""
        if len(hours) and (hours == hours[0]).all():
            hours = hours[:1]
        bits = hours.astype(np.uint64)
        deploy = hours * HOUR_NS + (14 + below(draw(self.world, "deploy", bits), 7)) * MINUTE_NS
        begin = deploy + 2 * MINUTE_NS
        end = begin + (5 + below(draw(self.world, "lasts", bits), 3)) * MINUTE_NS
        return deploy, begin, end - MINUTE_NS, end
