"""A work unit: one query of one organization, with the segments each of its scans reads. What a query-worker is sent.

The wire form is JSON. Column sets, which most segments share, stand in it once. Statistics and fingerprints do not
travel: they have done their work when the segments were picked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column, Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.sql import Attribute, Scan

_VERSION = 1


@dataclass(frozen=True)
class ScanInput:
    """A scan and the segments it reads, in the order they are read."""

    scan: Scan
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        for segment in self.segments:
            if segment.signal != self.scan.signal:
                raise ValueError(f"{segment.path} holds {segment.signal}, the scan reads {self.scan.signal}")
        plain = tuple(replace(segment, statistics={}, fingerprints=()) for segment in self.segments)
        object.__setattr__(self, "segments", plain)


@dataclass(frozen=True)
class WorkUnit:
    """`sql` names only the relations of the inputs' scans. Every segment is the organization's own."""

    organization: UUID
    sql: str
    inputs: tuple[ScanInput, ...]

    def __post_init__(self) -> None:
        for segment in self.segments:
            if segment.organization != self.organization:
                raise ValueError(f"segment {segment.id} is not one of organization {self.organization}")

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Each segment once."""
        every = {segment.id: segment for input_ in self.inputs for segment in input_.segments}
        return tuple(every.values())

    def to_bytes(self) -> bytes:
        sets = {columns: n for n, columns in enumerate({segment.columns: None for segment in self.segments})}
        unit = {
            "version": _VERSION,
            "organization": str(self.organization),
            "sql": self.sql,
            "column_sets": [[[column.name, column.type] for column in columns] for columns in sets],
            "segments": {str(segment.id): _segment_fields(segment, sets) for segment in self.segments},
            "inputs": [
                {"scan": _scan_fields(i.scan), "segments": [str(s.id) for s in i.segments]} for i in self.inputs
            ],
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
            segments = {id_: _segment(id_, fields, sets) for id_, fields in unit["segments"].items()}
            inputs = tuple(
                ScanInput(_scan(i["scan"]), tuple(segments[id_] for id_ in i["segments"])) for i in unit["inputs"]
            )
            return cls(UUID(unit["organization"]), unit["sql"], inputs)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a work unit: {error}") from error


def _segment_fields(segment: Segment, sets: dict[tuple[Column, ...], int]) -> dict[str, Any]:
    return {
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
    }


def _segment(id_: str, fields: dict[str, Any], sets: list[tuple[Column, ...]]) -> Segment:
    given = {
        "organization": UUID(fields["organization"]),
        "time": TimeRange(*fields["time"]),
        "columns": sets[fields["columns"]],
    }
    return Segment(id=UUID(id_), **(fields | given))


def _scan_fields(scan: Scan) -> dict[str, Any]:
    return {
        "relation": scan.relation,
        "signal": scan.signal,
        "time": [scan.time.start_ns, scan.time.end_ns],
        "columns": scan.columns,
        "attributes": [[attribute.scope, attribute.key] for attribute in scan.attributes],
        "ids": scan.ids,
    }


def _scan(fields: dict[str, Any]) -> Scan:
    return Scan(
        relation=fields["relation"],
        signal=fields["signal"],
        time=TimeRange(*fields["time"]),
        columns=tuple(fields["columns"]),
        attributes=tuple(Attribute(scope, key) for scope, key in fields["attributes"]),
        ids=tuple(fields["ids"]),
    )
