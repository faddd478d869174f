"""Segments on their way to a worker. Column sets, which most segments share, stand there once. Of statistics only the
sizes of side files travel: the others, and the fingerprints, have done their work when the segments were picked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from lakerunner.model.segment import Column, Segment
from lakerunner.model.time import TimeRange


def own_segments(organization: UUID, signal: str, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """ValueError unless all are the organization's and hold the signal."""
    checked = tuple(segments)
    for segment in checked:
        if segment.organization != organization:
            raise ValueError(f"segment {segment.id} is not one of organization {organization}")
        if segment.signal != signal:
            raise ValueError(f"{segment.path} holds {segment.signal}, the scan reads {signal}")
    return checked


def segments_json(segments: Iterable[Segment]) -> dict[str, Any]:
    segments = tuple(segments)
    sets = {columns: n for n, columns in enumerate({segment.columns: None for segment in segments})}
    return {
        "column_sets": [[[column.name, column.type] for column in columns] for columns in sets],
        "segments": [_segment_fields(segment, sets) for segment in segments],
    }


def segments_from(given: Mapping[str, Any]) -> tuple[Segment, ...]:
    sets = [tuple(Column(name, type_) for name, type_ in columns) for columns in given["column_sets"]]
    return tuple(_segment(fields, sets) for fields in given["segments"])


def _segment_fields(segment: Segment, sets: dict[tuple[Column, ...], int]) -> dict[str, Any]:
    sizes = segment.statistics.get("side_bytes")
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
        "statistics": {"side_bytes": sizes} if sizes else {},
        "ingested": segment.ingested,
    }


def _segment(fields: dict[str, Any], sets: list[tuple[Column, ...]]) -> Segment:
    given = {
        "id": UUID(fields["id"]),
        "organization": UUID(fields["organization"]),
        "time": TimeRange(*fields["time"]),
        "columns": sets[fields["columns"]],
    }
    return Segment(**(fields | given))
