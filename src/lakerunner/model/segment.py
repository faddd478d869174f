"""A segment: an immutable Parquet file of one organization, collector and signal, and its index row.

A segment id derives from the work that makes the segment, never from the clock: doing the work again gives the same
id, the same path and the same bytes. Fingerprints are 64-bit digests that are the same on every worker, machine and
release, so they may be stored and compared; one of a field stands in the index for "this segment holds field = value"
or "holds the field at all".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

from lakerunner.model.organization import RULE_PREFIX, checked_name
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.model.tier import NOTHING_EXPIRED, Expiry, Tiles
from lakerunner.model.time import HOUR_NS, TimeRange, hour_of


@dataclass(frozen=True, order=True)
class Column:
    """One Parquet column. `type` is string, int64, double, bool, bytes or json for a shredded attribute
    (`attributes.K`, `resource.K`, `scope.K`), and "" for a column that every segment of the signal has."""

    name: str
    type: str


@dataclass(frozen=True)
class Segment:
    """`frequency_ms` is 0 for raw rows, else the width of a rollup's buckets. `level` counts compactions.
    `fingerprints` prune; `statistics` inform (docs/formats/index.md). `ingested` is the segment's place in the order in
    which the index took segments in, which decides whose samples count; 0: the index has not assigned it yet. `rolled`:
    the next tier has all of its rows in its buckets (metrics). `rule_set`: the versions of rules that were evaluated
    over it, sorted: the index has their parts (docs/decisions/0030)."""

    id: UUID
    organization: UUID
    collector: str
    signal: str
    time: TimeRange
    rows: int
    bytes: int
    sort_version: int
    columns: tuple[Column, ...]
    frequency_ms: int = 0
    level: int = 0
    statistics: Mapping[str, Any] = field(default_factory=dict)
    fingerprints: tuple[int, ...] = ()
    ingested: int = field(default=0, compare=False)
    rolled: bool = field(default=False, compare=False)
    rule_set: tuple[int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        checked_name("collector", self.collector.removeprefix(RULE_PREFIX))
        if self.rows <= 0 or self.bytes <= 0:
            raise ValueError(f"a segment must have rows and bytes: {self.rows} rows, {self.bytes} bytes")

    @property
    def path(self) -> str:
        return segment_path(self.organization, self.collector, self.signal, self.time.start_ns, self.id)

    def side_path(self, name: str) -> str:
        """Return the path of a side file: `series.parquet`, `traces.parquet`, `text.bin`, `cardinality.parquet`."""
        return self.path.removesuffix("parquet") + name


@dataclass(frozen=True)
class SegmentPick:
    """What the index picked for a scan: the segments that may hold matching rows, ordered by start and id, out of
    `considered` that are live in its time range; and what of that range has expired."""

    segments: tuple[Segment, ...]
    considered: int
    expiry: Expiry = NOTHING_EXPIRED


def segment_path(organization: UUID, collector: str, signal: str, start_ns: int, id_: UUID) -> str:
    """Return the path of such a segment in the store."""
    return f"{_hour_prefix(organization, collector, signal, start_ns // HOUR_NS)}tbl_{id_}.parquet"


@lru_cache(4096)
def _hour_prefix(organization: UUID, collector: str, signal: str, hours: int) -> str:
    hour = hour_of(hours * HOUR_NS)
    return f"{SEGMENT_PREFIX}{organization}/{collector}/{hour:%Y%m%d}/{signal}/{hour:%H}/"


@dataclass(frozen=True)
class TierPick:
    """A pick over several tiers: which tier is read where, and the segments with rows there."""

    tiles: Tiles
    segments: tuple[Segment, ...]
    considered: int
    expiry: Expiry = NOTHING_EXPIRED


def segment_id(*work: str | int | Iterable[str | int]) -> UUID:
    """Return the id of the segment that this work makes: a digest of the parts, in their order."""
    hasher = blake2b(digest_size=16)
    for part in work:
        items = [part] if isinstance(part, str | int) else list(part)
        hasher.update(f"{len(items)}:".encode())
        for item in items:
            data = str(item).encode()
            hasher.update(f"{len(data)}:".encode() + data)
    return UUID(bytes=hasher.digest(), version=5)


# ---- fingerprints

# For each signal, the columns whose values have fingerprints, and the name of such a value in the statistics.
VALUES: Mapping[str, Mapping[str, str]] = {
    "logs": {"service_name": "service"},
    "metrics": {"service_name": "service", "metric_name": "metric"},
    "traces": {"service_name": "service", "name": "name"},
}


def digest64(*parts: str) -> int:
    """Return a signed 64-bit digest of the parts; ("a", "bc") and ("ab", "c") differ."""
    hasher = blake2b(digest_size=8)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return int.from_bytes(hasher.digest(), "little", signed=True)


def field_fingerprints(field: str, values: Iterable[str] = ()) -> tuple[int, ...]:
    """Return one fingerprint for the presence of the field, then one for each of its values."""
    return (digest64(field), *(digest64(field, value) for value in values))


# Stands alone where a segment has too many fields and values to list: more than MAX_FINGERPRINTS. A segment may be
# pruned for lack of a fingerprint only if it lacks this one too.
MAX_FINGERPRINTS = 2000
INCOMPLETE = digest64("fingerprints", "incomplete")
