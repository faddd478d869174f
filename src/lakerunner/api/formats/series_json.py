"""Write values of PromQL as Prometheus' JSON, or as events for Lakerunner's Grafana plugin, in chunks of text.

Text is made chunk by chunk from arrays, which may belong to many groups of steps: those of a series are joined only
while it is written. A double is written as Prometheus writes it (model/number_text.py). An event is one point:

    data: {"type":"result","data":{"label":"up{job=\\"a\\"}","tags":{...},"timestamp":1714564800000,"value":1}}

NaN and infinities, which are not JSON numbers, are texts there; a histogram point has `histogram` instead of `value`, a
string `text`. A chunk holds whole events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from lakerunner.api.formats.series_text import (
    PackedTexts,
    SampleRows,
    rows_of_samples,
    rows_of_vector,
    slice_samples,
    write_rows,
)
from lakerunner.model.labels import NO_LABELS, Labels, labels_text
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.arrays import Ints
from lakerunner.series.histograms.histogram import Histogram, json_buckets
from lakerunner.series.numerals import json_number, scalar_text
from lakerunner.series.values import Samples, Scalar, Steps, String, Vector

CHUNK_BYTES = 1 << 19
_POINT_BYTES, _SERIES_BYTES = 40, 200  # estimates, to fill a chunk
_POINTS = 4000  # in one chunk of events, about
_TAIL = b"}}\n\n"


def stamp(time_ms: int) -> bytes:
    """Write a time in seconds, with ms if there are any: 1435781430.781."""
    sign, (seconds, ms) = "-" if time_ms < 0 else "", divmod(abs(time_ms), 1000)
    return f"{sign}{seconds}.{ms:03}".encode() if ms else f"{sign}{seconds}".encode()


def histogram_json(histogram: Histogram) -> bytes:
    fields: dict[str, Any] = {"count": json_number(histogram.count), "sum": json_number(histogram.sum)}
    buckets = json_buckets(histogram)
    return orjson.dumps(fields | ({"buckets": buckets} if buckets else {}))


def labels_json(labels: Labels) -> bytes:
    return orjson.dumps(dict(labels))


def _pairs(rows: SampleRows, stamps: PackedTexts) -> Iterator[bytes]:
    """Yield, for each row, `[time,"value"],` of all its doubles."""
    no_heads = PackedTexts(np.frombuffer(b"", np.uint8), np.zeros(len(rows.labels), np.int64))
    return write_rows(rows, stamps, no_heads, b"", b'"],', quotes=False)


def _series(rows: SampleRows, stamps: PackedTexts) -> Iterator[bytes]:
    """Yield {"metric":{...},"values":[...],"histograms":[...]} for each row that has a sample."""
    for row, (labels, floats) in enumerate(zip(rows.labels, _pairs(rows, stamps), strict=True)):
        parts = [b'"values":[' + floats[:-1] + b"]"] if floats else []
        points = [_histogram_pair(stamps, number, one) for number, one in rows.histograms_of(row)]
        parts += [b'"histograms":[' + b",".join(points) + b"]"] if points else []
        if parts:
            yield b'{"metric":' + labels_json(labels) + b"," + b",".join(parts) + b"}"


def _samples(rows: SampleRows, stamps: PackedTexts) -> Iterator[bytes]:
    """Yield {"metric":{...},"value":[...]} for each row of one step."""
    for row, (labels, floats) in enumerate(zip(rows.labels, _pairs(rows, stamps), strict=True)):
        head = b'{"metric":' + labels_json(labels)
        if floats:
            yield head + b',"value":' + floats[:-1] + b"}"
        for number, one in rows.histograms_of(row):
            yield head + b',"histogram":' + _histogram_pair(stamps, number, one) + b"}"


def _histogram_pair(stamps: PackedTexts, number: int, histogram: Histogram) -> bytes:
    return stamps[number][:-1] + histogram_json(histogram) + b"]"


def _stamps(times: Ints) -> PackedTexts:
    """Return `[time,"` for each time: the text before a double."""
    return PackedTexts.pack([b"[" + stamp(time) + b',"' for time in times.tolist()])


class Matrix:
    """Groups of steps joined: series in order of their labels, each with its samples of all groups."""

    def __init__(self, groups: Sequence[StepGroup]) -> None:
        self._parts = [(group.steps, as_vector(group)) for group in groups]
        whole = len(self._parts) == 1
        self.labels: Sequence[Labels] = (
            self._parts[0][1].labels if whole else sorted({one for _, part in self._parts for one in part.labels})
        )
        self._places = [{labels: n for n, labels in enumerate(part.labels)} for _, part in self._parts]

    @property
    def times(self) -> Ints:
        parts = [steps.times for steps, _ in self._parts]
        found: Ints = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return found

    def block(self, from_: int, to: int) -> Vector:
        """Return the series from_:to, at all steps."""
        if len(self._parts) == 1:
            vector = self._parts[0][1]
            flat = None if vector.histograms is None else vector.histograms[from_:to]
            return Vector(vector.labels[from_:to], vector.values[from_:to], vector.present[from_:to], flat)
        labels, steps = self.labels[from_:to], sum(len(part) for part, _ in self._parts)
        values, present = np.zeros((len(labels), steps)), np.zeros((len(labels), steps), np.bool_)
        histograms = None
        at = 0
        for (part, vector), places in zip(self._parts, self._places, strict=True):
            here = [(n, places[one]) for n, one in enumerate(labels) if one in places]
            own, theirs, columns = [n for n, _ in here], [n for _, n in here], slice(at, at + len(part))
            values[own, columns], present[own, columns] = vector.values[theirs], vector.present[theirs]
            if vector.histograms is not None:
                histograms = np.full(values.shape, None, object) if histograms is None else histograms
                histograms[own, columns] = vector.histograms[theirs]
            at += len(part)
        return Vector(labels, values, present, histograms)


def as_vector(group: StepGroup) -> Vector:
    match group.value:
        case Vector():
            return group.value
        case Scalar(values):
            return Vector([NO_LABELS], values[None, :], np.ones((1, len(values)), np.bool_))
    raise TypeError(f"a range query cannot return a {type(group.value).__name__}")


def matrix_json(matrix: Matrix, limit: int) -> Iterator[bytes]:
    """Yield the first `limit` series in chunks, each series followed by a comma."""
    stamps = _stamps(matrix.times)
    at_once = max(1, CHUNK_BYTES // max(1, len(stamps.ends) * _POINT_BYTES))
    count = min(limit, len(matrix.labels))
    for start in range(0, count, at_once):
        yield _join_items(_series(rows_of_vector(matrix.block(start, min(start + at_once, count))), stamps))


def samples_json(samples: Samples, limit: int) -> Iterator[bytes]:
    """Yield a range vector: the samples of each series at their own times."""
    count = min(limit, len(samples.labels))
    per_series = max(1, len(samples.times) // max(1, len(samples.labels)))
    at_once = max(1, CHUNK_BYTES // (per_series * _POINT_BYTES))
    for start in range(0, count, at_once):
        part = slice_samples(samples, start, min(start + at_once, count))
        yield _join_items(_series(rows_of_samples(part), _stamps(part.times)))


def vector_json(vector: Vector, time_ms: int, limit: int) -> Iterator[bytes]:
    """Yield an instant vector in its own order."""
    stamps, at_once = _stamps(np.array([time_ms])), CHUNK_BYTES // _SERIES_BYTES
    count = min(limit, len(vector.labels))
    for start in range(0, count, at_once):
        rows = rows_of_vector(vector.rows(np.arange(start, min(start + at_once, count))))
        yield _join_items(_samples(rows, stamps))


def _join_items(texts: Iterable[bytes]) -> bytes:
    return b"".join([text + b"," for text in texts])


def result_json(groups: Sequence[StepGroup], instant: bool, limit: int) -> tuple[str, Iterator[bytes], bool]:
    """Return resultType, the text of the result in chunks, and whether series were left out."""
    if not instant:
        matrix = Matrix(groups)
        return "matrix", _array(matrix_json(matrix, limit)), len(matrix.labels) > limit
    ((steps, value),) = [(group.steps, group.value) for group in groups]
    match value:
        case Vector():
            return "vector", _array(vector_json(value, steps.start, limit)), len(value.labels) > limit
        case Samples():
            return "matrix", _array(samples_json(value, limit)), len(value.labels) > limit
        case Scalar(values):
            return "scalar", iter([_pair(steps, orjson.dumps(scalar_text(float(values[0]))))]), False
        case String(text):
            return "string", iter([_pair(steps, orjson.dumps(text))]), False
    raise TypeError(f"a query cannot return a {type(value).__name__}")


def _pair(steps: Steps, text: bytes) -> bytes:
    return b"[" + stamp(steps.start) + b"," + text + b"]"


def _array(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join chunks whose items end with commas to one JSON array. Each chunk is held back until the next one comes,
    because the last comma of the last one must go."""
    before = b"["
    for chunk in chunks:
        if chunk:
            yield before
            before = chunk
    yield (before[:-1] if before != b"[" else before) + b"]"


def group_events(group: StepGroup) -> Iterator[bytes]:
    """Yield the events of a group of steps in chunks."""
    match group.value:
        case String(text):
            data = {"text": text, "timestamp": group.steps.start}
            yield b"data: " + orjson.dumps({"type": "result", "data": data}) + b"\n\n"
        case Samples():
            at_once = _at_once(len(group.value.times), len(group.value))
            for start in range(0, len(group.value), at_once):
                part = slice_samples(group.value, start, min(start + at_once, len(group.value)))
                yield _events(rows_of_samples(part), part.times)
        case _:
            vector = as_vector(group)
            at_once = _at_once(vector.values.size, len(vector))
            for start in range(0, len(vector), at_once):
                rows = rows_of_vector(vector.rows(np.arange(start, min(start + at_once, len(vector)))))
                yield _events(rows, group.steps.times)


def _at_once(points: int, series: int) -> int:
    """Return the number of series for one chunk."""
    return max(1, _POINTS * series // max(1, points))


def _events(rows: SampleRows, times: Ints) -> bytes:
    stamps = PackedTexts.pack([str(time).encode() for time in times.tolist()])
    heads = PackedTexts.pack([_head(labels) for labels in rows.labels])
    parts: list[bytes] = []
    for row, floats in enumerate(write_rows(rows, stamps, heads, b',"value":', _TAIL, quotes=True)):
        parts.append(floats)
        for number, one in rows.histograms_of(row):
            parts.append(heads[row] + stamps[number] + b',"histogram":' + histogram_json(one) + _TAIL)
    return b"".join(parts)


def _head(labels: Labels) -> bytes:
    label = orjson.dumps(labels_text(labels))
    return b'data: {"type":"result","data":{"label":%s,"tags":%s,"timestamp":' % (label, labels_json(labels))
