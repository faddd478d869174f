"""Find segments that are lost or damaged, and order them into units of repair.

Comes in: the live segments of an organization. Goes out: those whose files fail fsck's checks with every page read, in
the order of repair: raw rows before rollups, rollups by their tiers, and raw rows from the latest ingested to the
earliest. A merge holds neighbours in the order of ingest, so the newest raw objects that are in no segment belong to
the newest lost segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from lakerunner.index.segments import CollectorTier
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIER_NAMES
from lakerunner.model.time import TimeRange, hour_of
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.restore import PutFile
from lakerunner.pipeline.transcode.columns import Mappings
from lakerunner.services.checks.files import Harm, Trouble, troubles_of
from lakerunner.services.checks.finding import Lake


class Unrepairable(Exception):
    """Raised if a segment cannot be repaired, with the reason."""


@dataclass(frozen=True)
class Tools:
    """What repairs work with. A dry run writes nothing."""

    lake: Lake
    ingest: IngestLimits
    merge: CompactLimits
    mappings: Mappings
    dry_run: bool

    @property
    def put_file(self) -> PutFile:
        return (lambda _key, _path: None) if self.dry_run else self.lake.store.put_file


@dataclass(frozen=True)
class LostSegment:
    """A live segment, when it was committed, and what is wrong with it."""

    segment: Segment
    born: datetime
    troubles: tuple[Trouble, ...]

    @property
    def whole_file(self) -> bool:
        """Return whether the Parquet file itself is intact, and only side files are not."""
        return all(one.harm in (Harm.SIDE_MISSING, Harm.SIDE_DAMAGED) for one in self.troubles)

    @property
    def what(self) -> str:
        """Return what is wrong, in a few words: with the file, else with a side file."""
        one = next((one for one in self.troubles if one.where == self.segment.path), self.troubles[0])
        if one.where == self.segment.path:
            return str(one.harm)
        name = one.where.removeprefix(self.segment.path.removesuffix("parquet"))
        return f"{name} {one.harm.removeprefix('side file ')}"


@dataclass(frozen=True)
class RepairUnit:
    """Lost segments that are repaired together: of one tier and one commit, with overlapping times."""

    organization: Organization
    lost: tuple[LostSegment, ...]

    @property
    def first(self) -> Segment:
        return self.lost[0].segment

    @property
    def ids(self) -> tuple[UUID, ...]:
        return tuple(one.segment.id for one in self.lost)

    @property
    def rows(self) -> int:
        return sum(one.segment.rows for one in self.lost)

    @property
    def ingested(self) -> int:
        return max(one.segment.ingested for one in self.lost)

    @property
    def time(self) -> TimeRange:
        times = [one.segment.time for one in self.lost]
        return TimeRange(min(time.start_ns for time in times), max(time.end_ns for time in times))

    @property
    def tier(self) -> CollectorTier:
        one = self.first
        return CollectorTier(one.organization, one.collector, one.signal, one.frequency_ms)

    @property
    def name(self) -> str:
        tier = f" {TIER_NAMES[self.first.frequency_ms]}" if self.first.frequency_ms else ""
        hour = f"{hour_of(self.time.start_ns):%Y-%m-%d %H:%M}"
        return f"{self.first.signal}{tier} {hour} {self.organization.name}/{self.first.collector}"

    @property
    def what(self) -> str:
        count = f" ({len(self.lost)} segments)" if len(self.lost) > 1 else ""
        return self.lost[0].what + count


def find_lost(lake: Lake, organization: Organization) -> list[LostSegment]:
    """Read all files of the organization's live segments; return what is lost or damaged and still live."""
    found: list[tuple[Segment, tuple[Trouble, ...]]] = []
    total, done = lake.index.inspect.count_live(organization.id), 0
    for page in lake.index.inspect.live(organization.id):
        for segment in page:
            if troubles := tuple(troubles_of(lake, segment, deep=True)):
                found.append((segment, troubles))
            done += 1
            lake.say(f"{organization.name}: files of {done} of {total} segments")
    ids = [segment.id for segment, _ in found]
    live, born = lake.index.inspect.still_live(ids), lake.index.inspect.born(ids)
    return [LostSegment(segment, born[segment.id], troubles) for segment, troubles in found if segment.id in live]


def units_of(organization: Organization, lost: Iterable[LostSegment]) -> list[RepairUnit]:
    """Return the units in the order of repair. A segment whose Parquet file is intact is a unit of its own."""
    places: dict[object, list[LostSegment]] = {}
    for one in lost:
        segment = one.segment
        of = segment.collector, segment.signal, segment.frequency_ms, segment.sort_version
        commit = (segment.level, one.born, segment.rolled) if not segment.frequency_ms else ()
        places.setdefault((of, segment.id) if one.whole_file else (of, commit), []).append(one)
    units = [RepairUnit(organization, group) for some in places.values() for group in _overlapping(some)]
    return sorted(units, key=lambda unit: (unit.first.frequency_ms, -unit.ingested, unit.ids))


def _overlapping(lost: Iterable[LostSegment]) -> Iterator[tuple[LostSegment, ...]]:
    group: list[LostSegment] = []
    for one in sorted(lost, key=lambda one: (one.segment.time, one.segment.id)):
        if group and one.segment.time.start_ns >= max(other.segment.time.end_ns for other in group):
            yield tuple(group)
            group = []
        group.append(one)
    if group:
        yield tuple(group)
