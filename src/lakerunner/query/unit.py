"""A work unit: a leaf of one organization's query and the segments it is to be run over. What a query-worker is sent.

The wire form is JSON. Column sets, which most segments share, stand in it once. Of statistics only the sizes of side
files travel: the others, and the fingerprints, have done their work when the segments were picked.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column, Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Attribute, Condition, Contains, Equals, Present, Scan
from lakerunner.plan.sql import Leaf

_VERSION = 2
_CONDITIONS: dict[str, type[Condition]] = {kind.__name__: kind for kind in (Equals, Contains, Present)}


@dataclass(frozen=True)
class WorkUnit:
    """Every segment is the organization's own and holds the leaf's signal; they are read in this order."""

    organization: UUID
    leaf: Leaf
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        for segment in self.segments:
            if segment.organization != self.organization:
                raise ValueError(f"segment {segment.id} is not one of organization {self.organization}")
            if segment.signal != self.leaf.scan.signal:
                raise ValueError(f"{segment.path} holds {segment.signal}, the scan reads {self.leaf.scan.signal}")
        object.__setattr__(self, "segments", tuple(_bare(segment) for segment in self.segments))

    def to_bytes(self) -> bytes:
        sets = {columns: n for n, columns in enumerate({segment.columns: None for segment in self.segments})}
        unit = {
            "version": _VERSION,
            "organization": str(self.organization),
            "scan": _scan_fields(self.leaf.scan),
            "sql": self.leaf.sql,
            "steady": self.leaf.steady,
            "column_sets": [[[column.name, column.type] for column in columns] for columns in sets],
            "segments": [_segment_fields(segment, sets) for segment in self.segments],
        }
        return json.dumps(unit, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WorkUnit:
        """Corrupt if these are not the bytes of a work unit of this version, or it mixes organizations."""
        try:
            unit = json.loads(data)
            if unit["version"] != _VERSION:
                raise Corrupt(f"work unit of version {unit['version']}: this worker takes version {_VERSION}")
            sets = [tuple(Column(name, type_) for name, type_ in columns) for columns in unit["column_sets"]]
            leaf = Leaf(_scan(unit["scan"]), unit["sql"], unit["steady"])
            segments = tuple(_segment(fields, sets) for fields in unit["segments"])
            return cls(UUID(unit["organization"]), leaf, segments)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a work unit: {error}") from error


def _bare(segment: Segment) -> Segment:
    sizes = segment.statistics.get("side_bytes")
    return replace(segment, statistics={"side_bytes": sizes} if sizes else {}, fingerprints=())


def _segment_fields(segment: Segment, sets: dict[tuple[Column, ...], int]) -> dict[str, Any]:
    return {
        "id": str(segment.id),
        "organization": str(segment.organization),
        "collector": segment.collector,
        "signal": segment.signal,
        "time": [segment.time.start_ns, segment.time.end_ns],
        "rows": segment.rows,
        "bytes": segment.bytes,
        "sort_version": segment.sort_version,
        "columns": sets[segment.columns],
        "frequency_ms": segment.frequency_ms,
        "level": segment.level,
        "statistics": segment.statistics,
    }


def _segment(fields: dict[str, Any], sets: list[tuple[Column, ...]]) -> Segment:
    given = {
        "id": UUID(fields["id"]),
        "organization": UUID(fields["organization"]),
        "time": TimeRange(*fields["time"]),
        "columns": sets[fields["columns"]],
    }
    return Segment(**(fields | given))


def _scan_fields(scan: Scan) -> dict[str, Any]:
    return {
        "relation": scan.relation,
        "signal": scan.signal,
        "time": [scan.time.start_ns, scan.time.end_ns],
        "columns": scan.columns,
        "attributes": [[attribute.scope, attribute.key] for attribute in scan.attributes],
        "ids": scan.ids,
        "conditions": [{"kind": type(one).__name__, **asdict(one)} for one in scan.conditions],
    }


def _scan(fields: dict[str, Any]) -> Scan:
    return Scan(
        relation=fields["relation"],
        signal=fields["signal"],
        time=TimeRange(*fields["time"]),
        columns=tuple(fields["columns"]),
        attributes=tuple(Attribute(scope, key) for scope, key in fields["attributes"]),
        ids=tuple(fields["ids"]),
        conditions=tuple(_condition(one) for one in fields["conditions"]),
    )


def _condition(fields: dict[str, Any]) -> Condition:
    made = {name: _plain(value) for name, value in fields.items() if name != "kind"}
    return _CONDITIONS[fields["kind"]](**made)


def _plain(value: Any) -> Any:
    """Lists are tuples, and the only objects are attributes."""
    if isinstance(value, dict):
        return Attribute(**value)
    return tuple(map(_plain, value)) if isinstance(value, list) else value
