"""A random lake to sweep, and by plain rules of its own what each sweep may leave of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.time import DAY_NS, HOUR_NS, MINUTE_NS, TimeRange
from suites.swept_lake import ACME, GRACE_NS, NOW_NS, OTHER, SweptLake, files_of

RETENTION = {"logs": "30d", "traces": "7d", "metrics": "15d", "metrics.10s": "20d", "metrics.1h": "90d"}
_KEPT_DAYS = {
    ("logs", 0): 30,
    ("traces", 0): 7,
    ("metrics", 0): 15,
    ("metrics", 10_000): 20,
    ("metrics", 3_600_000): 90,
}
# OTHER has these of its own; 0: for ever.
_OTHER_DAYS = {("logs", 0): 3, ("metrics", 10_000): 0}
_KINDS = [("logs", 0), ("traces", 0), ("metrics", 0), ("metrics", 10_000), ("metrics", 60_000), ("metrics", 3_600_000)]


@dataclass
class RandomLake:
    """`expiring` become expired by the first sweep at NOW_NS, `ending` go in it with their files, `orphans` too. All
    else stays; what expires goes in the first sweep a grace time later."""

    lake: SweptLake
    expiring: list[Segment] = field(default_factory=list)
    ending: list[Segment] = field(default_factory=list)
    staying: list[Segment] = field(default_factory=list)
    orphans: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def fill(self, seed: int) -> RandomLake:
        chance = random.Random(seed)
        self.lake.index.retention.set(OTHER.id, {("logs", 0): 3 * DAY_NS, ("metrics", 10_000): None})
        for who in (ACME, OTHER):
            self.staying.append(self.lake.segment(f"{who.name} anchor", MINUTE_NS, organization=who.id))
        for place in range(40):
            self._segment(chance, f"{seed} {place}")
        for place in range(12):
            self._file(chance, f"{seed} {place}")
        assert self.expiring
        assert self.ending
        assert self.orphans
        return self

    def _segment(self, chance: random.Random, name: str) -> None:
        who = chance.choice([ACME, OTHER])
        signal, frequency_ms = chance.choice(_KINDS)
        age_ns = chance.randrange(100 * DAY_NS)
        born_ns = chance.choice([NOW_NS - HOUR_NS, NOW_NS - 20 * DAY_NS])
        rolled = chance.random() < 0.5
        state = chance.choice(["live", "live", "live", "replaced", "expired"])
        ended_ago = chance.choice([GRACE_NS // 2, GRACE_NS + MINUTE_NS, 3 * DAY_NS])
        sides = chance.sample(["series.parquet", "text.bin", "traces.parquet"], chance.randrange(4))
        end_ns = NOW_NS - age_ns
        made = self.lake.segment(
            name,
            sides=sides,
            organization=who.id,
            signal=signal,
            frequency_ms=frequency_ms,
            time=TimeRange(end_ns - chance.choice([1, 1000, 5 * HOUR_NS]), end_ns),
            rolled=rolled,
            state=state,
            ended_ns=None if state == "live" else NOW_NS - ended_ago,
            created_ns=born_ns,
        )
        if state == "live":
            due = _is_due(who.id, signal, frequency_ms, age_ns, NOW_NS - born_ns, rolled)
            (self.expiring if due else self.staying).append(made)
        else:
            (self.ending if ended_ago > GRACE_NS else self.staying).append(made)

    def _file(self, chance: random.Random, name: str) -> None:
        who = chance.choice([ACME, OTHER])
        match chance.choice(["orphan", "orphan", "young", "stray"]):
            case "orphan":
                self.orphans.add(self.lake.orphan(name, NOW_NS - GRACE_NS - chance.randrange(DAY_NS), who.id))
            case "young":
                self.others.add(self.lake.orphan(name, NOW_NS - GRACE_NS + 1 + chance.randrange(GRACE_NS), who.id))
            case _:
                directory = chance.choice(["otel-raw/acme/c", f"db/{who.id}/c/20251124/logs/10", "elsewhere"])
                self.others.add(self.lake.put(f"{directory}/{segment_id(name)}.binpb"))

    def files(self, segments: list[Segment]) -> set[str]:
        return {key for one in segments for key in files_of(one, sides=list(one.statistics["side_bytes"]))}

    @property
    def all_files(self) -> set[str]:
        return self.files([*self.expiring, *self.ending, *self.staying]) | self.orphans | self.others

    @property
    def left(self) -> set[str]:
        """Of a sweep at NOW_NS."""
        return self.all_files - self.files(self.ending) - self.orphans


def _is_due(who: UUID, signal: str, frequency_ms: int, age_ns: int, row_age_ns: int, rolled: bool) -> bool:
    """1m, 5m and 1d are kept for ever, so of metrics all but the last tier wait for rollups."""
    kept = (signal, frequency_ms)
    days = (_KEPT_DAYS | _OTHER_DAYS if who == OTHER.id else _KEPT_DAYS).get(kept, 0)
    if not days or age_ns < days * DAY_NS:
        return False
    return signal != "metrics" or rolled or (age_ns >= (days + 7) * DAY_NS and row_age_ns >= 7 * DAY_NS)
