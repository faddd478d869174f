"""Prometheus remote-write: framed messages of version 1.0 or 2.0 to Rows of metrics.

Comes in: raw objects, each a sequence of messages preceded by their length. Goes out: the rows of the valid ones, not
yet copied out of their bytes, and for each damaged one the reason with its frame and byte. Rows are in the order of the
objects and, inside one, of its points. docs/formats/remote_write.md lists what becomes of each field.

Plain samples, which nearly all points are, pay nothing for histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.memory import PADDING, Bytes, Int32s, Records
from lakerunner.pipeline.read.names import names_for, number_all
from lakerunner.pipeline.read.otlp import MAX_BYTES, MAX_MEMORY, Load
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    ListColumn,
    NumberColumn,
    Raw,
    ReadResult,
    Rows,
    StructColumn,
)
from lakerunner.pipeline.read.walk import STRING, VALUE, coded_column
from lakerunner.pipeline.remote_write.fields import V1, V2
from lakerunner.pipeline.remote_write.label_sets import ENTRY, FIRST_TYPE, ORIGIN_KEY, TYPES, constant_slices, constants
from lakerunner.pipeline.remote_write.message_check import MessageCounts, check_frames
from lakerunner.pipeline.remote_write.native_histograms import CUSTOM_BUCKETS
from lakerunner.pipeline.remote_write.walk import EMPTY, SAMPLED, MessageArrays, walk

# For warming up, in both versions: a series with a label, a sample, an exemplar and a histogram, and metadata.
SAMPLES = (
    bytes.fromhex("0a1f 0a060a0161120162 12021001 1a080a060a0161120162 22075a021001620102 1a020801"),
    bytes.fromhex("2200 220161 2a1b 0a020101 12021001 1a075a021001620102 22040a020101 2a020801"),
)


@dataclass(frozen=True)
class _CheckedFile:
    """An object that passed the check."""

    source: SourceObject
    data: Bytes
    counts: MessageCounts

    @property
    def load(self) -> Load:
        return estimate_load(self.counts, len(self.data))


def estimate_load(counts: MessageCounts, size: int) -> Load:
    """Return a generous estimate of what it takes to make segments of framed messages of this size: labels count as if
    no series occurred twice."""
    texts = counts.texts + counts.families + counts.series
    labels = counts.labels + counts.exemplar_labels
    points = counts.rows + counts.exemplars + 2 * counts.histograms
    return Load(size, 3 * size + 200 * points + 40 * labels + 50 * texts + 40 * counts.buckets)


def read_remote_write(version: int, raws: Sequence[Raw]) -> ReadResult:
    """Read as many of these objects as fit in one read."""
    parts: list[_CheckedFile] = []
    failed: list[tuple[SourceObject, str]] = []
    left: Sequence[Raw] = ()
    load = Load(0, 0)
    for number, raw in enumerate(raws):
        try:
            part = _check_file(raw, version)
        except Corrupt as error:
            failed.append((raw.source, str(error)))
            continue
        load = load.plus(part.load)
        if not load.fits:
            left = raws[number:]
            break
        parts.append(part)
    done = tuple(part.source for part in parts)
    return ReadResult(_rows(version, parts), done, tuple(failed), left, tuple(part.counts.rows for part in parts))


READ_V1: Callable[[Sequence[Raw]], ReadResult] = partial(read_remote_write, V1)
READ_V2: Callable[[Sequence[Raw]], ReadResult] = partial(read_remote_write, V2)


def warm_remote_write() -> None:
    """Compile the jitted code of both versions, or load it from numba's cache."""
    for version, message in enumerate(SAMPLES):
        data = bytes([len(message)]) + message
        read = read_remote_write(
            version, [Raw(SourceObject("sample", "metrics", "sample", len(data), 0), memoryview(data))]
        )
        assert not read.failed, read.failed  # noqa: S101 - our own constants


def _check_file(raw: Raw, version: int) -> _CheckedFile:
    data = np.frombuffer(raw.data.toreadonly(), np.uint8)
    if not len(data):
        raise Corrupt("the file is empty")
    part = _CheckedFile(raw.source, data, check_frames(data, version))
    if not part.load.fits:
        raise Corrupt(
            f"{len(data)} bytes with {part.counts.rows} rows need {part.load.memory >> 20} MB of "
            f"memory; the limits are {MAX_MEMORY >> 20} MB, and {MAX_BYTES >> 20} MB of input: "
            "send smaller files"
        )
    return part


def _rows(version: int, parts: Sequence[_CheckedFile]) -> Rows | None:
    if not parts:
        return None
    counts = MessageCounts(*(sum(column) for column in zip(*(part.counts for part in parts), strict=True)))
    if not counts.rows:
        return None
    data = np.concatenate([*(part.data for part in parts), constants(), np.zeros(PADDING, np.uint8)])
    walked = walk(data, sum(len(part.data) for part in parts), version, counts)
    points = walked.points[:-1]
    series = np.ascontiguousarray(points["series"])
    modified = np.array([part.source.modified_ns for part in parts], np.int64)
    modified = np.repeat(modified, [part.counts.rows for part in parts])
    # Prometheus knows no unset time: a sample at 0 is one of 1970. Only points without a value get the object's time.
    fallback = np.where(points["kind"] == EMPTY, modified, 0)
    nobody = np.zeros(len(points), np.int32)
    attached = {
        ATTRIBUTES.map_column: Attached(*walked.labels, np.ascontiguousarray(walked.series["first"]), series),
        SCOPE.map_column: _no_attributes(nobody),
        RESOURCE.map_column: _no_attributes(nobody),
    }
    if version == V2:
        attached |= _type_metadata(walked.series[:-1], data, series)
    columns = {
        **_series_columns(walked, data, series),
        **_empty_columns(nobody),
        **point_columns(walked, points, series),
    }
    sizes = np.ascontiguousarray(points["size"])
    return Rows(len(points), data, columns, attached, fallback, sizes, prometheus=True)


def _series_columns(walked: MessageArrays, data: Bytes, series: Int32s) -> dict[str, Column]:
    """Return the columns that points have from their series."""
    fields = {"metric_name": "name", "service_name": "job", "unit": "unit", "description": "help"}
    return {name: coded_column(walked.series[:-1], field, data, series) for name, field in fields.items()}


def _type_metadata(rows: Records, data: Bytes, series: Int32s) -> dict[str, Attached]:
    """Return the metadata `prometheus.type`, Prometheus' word for the type, of the series that state a type or unit."""
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


def _no_attributes(nobody: Int32s) -> Attached:
    """Return one owner without attributes."""
    return Attached(np.zeros(0, VALUE), names_for(0), np.zeros(2, np.int32), nobody)


def _empty_columns(nobody: Int32s) -> dict[str, Column]:
    """Return the columns that remote-write has no values for: resource, scope, flags."""
    empty = CodedColumn(np.zeros(1, np.int32), pa.array([""]), nobody)
    zero = NumberColumn(np.zeros(1, np.uint32), None, nobody)
    texts = ("scope_name", "scope_version", "scope_schema_url", "resource_schema_url")
    numbers = ("scope_dropped_attributes", "resource_dropped_attributes", "flags")
    columns: dict[str, Column] = {}
    columns.update(dict.fromkeys(texts, empty))
    columns.update(dict.fromkeys(numbers, zero))
    return columns


COUNTER, GAUGE_HINT = 1, 3
_HINTS = {1: "yes", 2: "no", GAUGE_HINT: "gauge"}
# Prometheus' words are kept, except where OTLP has another one.
_TYPE_NAMES = {ENTRY: METADATA_ENTRY, **dict(enumerate(TYPES)), COUNTER: "sum"}
_SIDES = ("positive", "negative")


def point_columns(walked: MessageArrays, points: Any, series: Any) -> dict[str, Column]:
    """Return the columns of the points themselves; `series` is the series of each."""
    columns: dict[str, Column] = {
        "time_unix_nano": NumberColumn(np.ascontiguousarray(points["time"])),
        "start_time_unix_nano": NumberColumn(np.ascontiguousarray(points["start"])),
        "value": NumberColumn(np.ascontiguousarray(points["value"]).view(np.float64), points["kind"] == SAMPLED),
    }
    histograms = walked.histograms
    columns |= _type_columns(walked.series["type"], series, points["kind"], histograms)
    if len(histograms):
        columns |= _histogram_columns(walked, len(points))
    if len(walked.exemplars) > 1:
        columns["exemplars"] = _exemplars(walked)
    return columns


def _type_columns(by_series: Any, series: Any, kinds: Any, histograms: Any) -> dict[str, Column]:
    """Return metric_type, and for counters that they are cumulative and monotonic. Samples have the type of the
    metadata; native histograms have the type of their buckets, whatever the metadata states."""
    numbers, codes = np.unique(by_series, return_inverse=True)
    names = [_TYPE_NAMES.get(number, f"type_{number}") for number in numbers.tolist()]
    codes, types = codes.astype(np.int32)[series], by_series[series]
    if len(histograms):
        codes[histograms["row"]] = len(names) + (histograms["schema"] == CUSTOM_BUCKETS)
        names += ["exponential_histogram", "histogram"]
    columns: dict[str, Column] = {"metric_type": CodedColumn(codes, pa.array(names))}
    counters = (types == COUNTER) & (kinds == SAMPLED)
    cumulative = counters.copy()
    cumulative[histograms["row"][histograms["reset"] != GAUGE_HINT]] = True
    if cumulative.any():
        columns["temporality"] = CodedColumn(np.where(cumulative, 0, -1).astype(np.int32), pa.array(["cumulative"]))
    if counters.any():
        columns["monotonic"] = NumberColumn(counters, counters)
    return columns


def _histogram_columns(walked: MessageArrays, count: int) -> dict[str, Column]:
    histograms = walked.histograms
    rows = histograms["row"]

    def numbers(field: str, dtype: Any, chosen: Any) -> NumberColumn:
        values, valid = np.zeros(count, dtype), np.zeros(count, np.bool_)
        values[rows] = np.ascontiguousarray(histograms[field]).view(dtype)
        valid[rows[chosen]] = True
        return NumberColumn(values, valid)

    every = np.ones(len(rows), np.bool_)
    is_float, zero_is_float = histograms["is_float"], histograms["zero_is_float"]
    return {
        "count": numbers("count", np.uint64, ~is_float),
        "float_count": numbers("float_count", np.float64, is_float),
        "sum": numbers("sum", np.float64, every),
        "scale": numbers("schema", np.int32, every),
        "zero_count": numbers("zero_count", np.uint64, ~zero_is_float),
        "float_zero_count": numbers("float_zero_count", np.float64, zero_is_float),
        "zero_threshold": numbers("zero_threshold", np.float64, every),
        "reset_hint": _reset_hints(histograms, count),
        **_bucket_columns(walked, count),
    }


def _reset_hints(histograms: Any, count: int) -> CodedColumn:
    numbers, found = np.unique(histograms["reset"], return_inverse=True)
    codes = np.full(count, -1, np.int32)
    codes[histograms["row"]] = np.where(histograms["reset"] == 0, -1, found)
    return CodedColumn(codes, pa.array([_HINTS.get(number, f"hint_{number}") for number in numbers.tolist()]))


def _bucket_columns(walked: MessageArrays, count: int) -> dict[str, Column]:
    """Return the columns of buckets. `walked.buckets` holds, for each histogram, the counts of its positive side, then
    those of its negative side."""
    histograms = walked.histograms
    rows, custom = histograms["row"], histograms["schema"] == CUSTOM_BUCKETS
    sizes = np.stack([histograms[side] for side in _SIDES], axis=1).ravel()
    floats = np.stack([histograms[f"{side}_is_float"] for side in _SIDES], axis=1).ravel()
    negative = np.tile(np.array([False, True]), len(rows))
    of_custom = np.repeat(custom, 2)

    def lists(chosen: Any, is_float: bool) -> ListColumn:
        """Return the counts of the chosen sides that are of this kind."""
        chosen = chosen & (floats == is_float)
        values = walked.buckets[: int(sizes.sum())][np.repeat(chosen, sizes)]
        return _lists(rows, np.where(chosen, sizes, 0).reshape(-1, 2).sum(axis=1), values, count, is_float)

    columns: dict[str, Column] = {
        "bounds": _lists(rows, histograms["bounds"], walked.bounds, count, is_float=True),
        "bucket_counts": lists(of_custom, is_float=False),
        "float_bucket_counts": lists(of_custom, is_float=True),
    }
    for side, name in enumerate(_SIDES):
        chosen = ~of_custom & (negative == bool(side))
        offset, valid = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        offset[rows] = histograms[f"{name}_offset"]
        valid[rows] = ~custom & (histograms[name] > 0)
        fields: dict[str, Column] = {
            "offset": NumberColumn(offset),
            "counts": lists(chosen, is_float=False),
            "float_counts": lists(chosen, is_float=True),
        }
        columns[name] = StructColumn(fields, valid=valid)
    return columns


def _lists(rows: Any, sizes: Any, values: Any, count: int, is_float: bool) -> ListColumn:
    """Return lists of `sizes` for these rows, which ascend, and empty ones for the others; `values` are bits."""
    lengths = np.zeros(count + 1, np.int32)
    lengths[rows + 1] = sizes
    first = np.cumsum(lengths, dtype=np.int32)
    values = values[: int(first[-1])]
    return ListColumn(first, NumberColumn(values.view(np.float64) if is_float else values))


def _exemplars(walked: MessageArrays) -> ListColumn:
    exemplars = walked.exemplars[:-1]
    time = np.ascontiguousarray(exemplars["time"])
    none = np.zeros(len(exemplars), np.bool_)
    nothing = CodedColumn(np.full(len(exemplars), -1, np.int32), pa.array([], pa.binary()))
    fields: dict[str, Column] = {
        "timestamp": NumberColumn(time, time != 0),
        "double_value": NumberColumn(np.ascontiguousarray(exemplars["value"]).view(np.float64)),
        "int_value": NumberColumn(np.zeros(len(exemplars), np.int64), none),
        "trace_id": nothing,
        "span_id": nothing,
    }
    first = np.ascontiguousarray(walked.exemplars["first"])
    return ListColumn(
        np.ascontiguousarray(walked.points["first"]), StructColumn(fields, Attached(*walked.exemplar_labels, first))
    )
