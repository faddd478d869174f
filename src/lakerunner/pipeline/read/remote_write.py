"""Prometheus remote-write: framed messages of version 1.0 or 2.0 to Rows of metrics.

Comes in: raw objects, each a sequence of messages with their length before them. Goes out: the rows of the sound ones,
not yet copied out of their bytes, and for each damaged one its reason with the frame and the byte. Rows stand in the
order of the objects and, inside one, of its points. docs/formats/remote_write.md says what becomes of each field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.arrays import Bytes, Int32s, Records
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import names_for, number_all
from lakerunner.pipeline.read.otlp import MAX_BYTES, MAX_MEMORY, Load
from lakerunner.pipeline.read.remote_write_check import Counts, check_frames
from lakerunner.pipeline.read.remote_write_fields import V1, V2
from lakerunner.pipeline.read.remote_write_points import point_columns
from lakerunner.pipeline.read.remote_write_texts import FIRST_TYPE, ORIGIN_KEY, TYPES, constant_slices, constants
from lakerunner.pipeline.read.remote_write_walk import EMPTY, Walked, walk
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Numbers, Raw, Read, Rows
from lakerunner.pipeline.read.walk import STRING, VALUE, strings

# A series with a label, a sample, an exemplar and a histogram, and metadata, in both versions.
SAMPLES = (
    bytes.fromhex("0a1f 0a060a0161120162 12021001 1a080a060a0161120162 22075a021001620102 1a020801"),
    bytes.fromhex("2200 220161 2a1b 0a020101 12021001 1a075a021001620102 22040a020101 2a020801"),
)


@dataclass(frozen=True)
class _Part:
    """One sound object."""

    source: SourceObject
    data: Bytes
    counts: Counts

    @property
    def load(self) -> Load:
        return load_of(self.counts, len(self.data))


def load_of(counts: Counts, size: int) -> Load:
    """Return what it takes to make segments of framed messages of this size, generously: labels count as if no series
    came twice."""
    texts = counts.texts + counts.families + counts.series
    labels = counts.labels + counts.exemplar_labels
    points = counts.rows + counts.exemplars + 2 * counts.histograms
    return Load(size, 3 * size + 200 * points + 40 * labels + 50 * texts + 40 * counts.buckets)


def read_remote_write(version: int, raws: Sequence[Raw]) -> Read:
    """Return the rows of these objects, as many of them as fit."""
    parts: list[_Part] = []
    failed: list[tuple[SourceObject, str]] = []
    left: Sequence[Raw] = ()
    load = Load(0, 0)
    for number, raw in enumerate(raws):
        try:
            part = _checked(raw, version)
        except Corrupt as error:
            failed.append((raw.source, str(error)))
            continue
        load = load.plus(part.load)
        if not load.fits:
            left = raws[number:]
            break
        parts.append(part)
    done = tuple(part.source for part in parts)
    return Read(_rows(version, parts), done, tuple(failed), left, tuple(part.counts.rows for part in parts))


READ_V1: Callable[[Sequence[Raw]], Read] = partial(read_remote_write, V1)
READ_V2: Callable[[Sequence[Raw]], Read] = partial(read_remote_write, V2)


def warm_remote_write() -> None:
    """Compile the jitted code of both versions, or load it from numba's cache."""
    for version, message in enumerate(SAMPLES):
        data = bytes([len(message)]) + message
        read = read_remote_write(
            version, [Raw(SourceObject("sample", "metrics", "sample", len(data), 0), memoryview(data))]
        )
        assert not read.failed, read.failed  # noqa: S101 - our own constants


def _checked(raw: Raw, version: int) -> _Part:
    data = np.frombuffer(raw.data.toreadonly(), np.uint8)
    if not len(data):
        raise Corrupt("the file is empty")
    part = _Part(raw.source, data, check_frames(data, version))
    if not part.load.fits:
        raise Corrupt(
            f"{len(data)} bytes with {part.counts.rows} rows need {part.load.memory >> 20} MB of "
            f"memory; the limits are {MAX_MEMORY >> 20} MB, and {MAX_BYTES >> 20} MB of input: "
            "send smaller files"
        )
    return part


def _rows(version: int, parts: Sequence[_Part]) -> Rows | None:
    counts = Counts(*(sum(column) for column in zip(*(part.counts for part in parts), strict=True))) if parts else None
    if counts is None or not counts.rows:
        return None
    data = np.concatenate([*(part.data for part in parts), constants(), np.zeros(PADDING, np.uint8)])
    walked = walk(data, sum(len(part.data) for part in parts), version, counts)
    points = walked.points[:-1]
    series = np.ascontiguousarray(points["series"])
    modified = np.array([part.source.modified_ns for part in parts], np.int64)
    modified = np.repeat(modified, [part.counts.rows for part in parts])
    # A sample at time 0 is one of 1970; only what has no time of its own gets the object's.
    fallback = np.where(points["kind"] == EMPTY, modified, 0)
    nobody = np.zeros(len(points), np.int32)
    attached = {
        ATTRIBUTES.map_column: Attached(*walked.labels, np.ascontiguousarray(walked.series["first"]), series),
        SCOPE.map_column: _nothing(nobody),
        RESOURCE.map_column: _nothing(nobody),
    }
    if version == V2:
        attached |= _origin(walked.series[:-1], data, series)
    columns = {
        **_series_columns(walked, data, series),
        **_empty_columns(nobody),
        **point_columns(walked, points, series),
    }
    sizes = np.ascontiguousarray(points["size"])
    return Rows(len(points), data, columns, attached, fallback, sizes, prometheus=True)


def _series_columns(walked: Walked, data: Bytes, series: Int32s) -> dict[str, Column]:
    """What all points of a series have in common."""
    return {
        "metric_name": _coded(walked, "name", data, series),
        "service_name": _coded(walked, "job", data, series),
        "unit": _coded(walked, "unit", data, series),
        "description": _coded(walked, "help", data, series),
    }


def _coded(walked: Walked, field: str, data: Bytes, series: Int32s) -> Coded:
    at, size = (np.ascontiguousarray(walked.series[:-1][f"{field}_{part}"]) for part in ("at", "size"))
    names = names_for(len(at))
    return Coded(number_all(data, at, size, names), strings(names, data), series)


def _origin(rows: Records, data: Bytes, series: Int32s) -> dict[str, Attached]:
    """The metadata `prometheus.type` of the series that state a type or a unit: Prometheus' word for it."""
    at, size = constant_slices(data)
    states = (rows["type"] != 0) | (rows["unit_size"] > 0)
    if not states.any():
        return {}
    known = (rows["type"] >= 0) & (rows["type"] < len(TYPES))
    texts = FIRST_TYPE + np.where(known, rows["type"], 0)[states]
    keys = names_for(1)
    number_all(data, at[ORIGIN_KEY : ORIGIN_KEY + 1], size[ORIGIN_KEY : ORIGIN_KEY + 1], keys)
    values = np.zeros(len(texts), VALUE)
    values["kind"], values["at"], values["size"] = STRING, at[texts], size[texts]
    return {"metadata": Attached(values, keys, np.append(0, np.cumsum(states)).astype(np.int32), series)}


def _nothing(nobody: Int32s) -> Attached:
    """No attributes: one owner that has none."""
    return Attached(np.zeros(0, VALUE), names_for(0), np.zeros(2, np.int32), nobody)


def _empty_columns(nobody: Int32s) -> dict[str, Column]:
    """What remote-write does not have: resource, scope, flags."""
    empty = Coded(np.zeros(1, np.int32), pa.array([""]), nobody)
    zero = Numbers(np.zeros(1, np.uint32), None, nobody)
    texts = ("scope_name", "scope_version", "scope_schema_url", "resource_schema_url")
    numbers = ("scope_dropped_attributes", "resource_dropped_attributes", "flags")
    columns: dict[str, Column] = {}
    columns.update(dict.fromkeys(texts, empty))
    columns.update(dict.fromkeys(numbers, zero))
    return columns
