"""Decode prometheus.ReadRequest and encode prometheus.ReadResponse, the messages of Prometheus' remote read.

A request is read within its bytes, or refused as UserError; unknown fields and hints are ignored. An answer has raw
samples, including stale markers; histograms are written as float histograms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import OPERATORS, Matcher
from lakerunner.model.protobuf import DELIMITED, FIXED32, FIXED64, VARINT, delimited, tag, varint
from lakerunner.model.regex import compile_regex
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.histograms.histogram import BucketCounts, Histogram
from lakerunner.series.values import Samples

SAMPLES = 0
MAX_BYTES = 64 << 20  # of an answer, before compression
_RESULT, _SERIES, _LABEL, _SAMPLE, _HISTOGRAM = tag(1, DELIMITED), tag(1, DELIMITED), tag(1, DELIMITED), 0x12, b"\x22"
_FIRST_6, _PAST_6 = 1 << 35, 1 << 42  # times of 1971 to 2109 are varints of six bytes
_LEAST_SAMPLE = 13  # minimum bytes of a sample
# A Sample message whose time has six bytes, as a row of an array: tag, length and tag; value; tag; time.
_PLAIN_SAMPLE = np.dtype([("head", "V3"), ("value", "<f8"), ("time_tag", "u1"), ("time", "u1", 6)])


@dataclass(frozen=True)
class ReadQuery:
    """Request of the samples at start_ms <= time <= end_ms of the series that all matchers match."""

    start_ms: int
    end_ms: int
    matchers: tuple[Matcher, ...]


def read_request(data: bytes) -> tuple[list[ReadQuery], list[int]]:
    """Return the queries, and the types of responses that the client accepts."""
    queries, accepted = [], []
    for field, value in _fields(data):
        if field == 1:
            queries.append(_query(_bytes(value)))
        elif field == 2:
            accepted += [value] if isinstance(value, int) else list(_varints(value))
    return queries, accepted


def read_response(results: Iterable[Samples]) -> bytes:
    """Encode one result for each query, in order; each is encoded before the next is read."""
    size, parts = 0, []
    for samples in results:
        _check_size(size + _LEAST_SAMPLE * len(samples.times))
        series = []
        for row, labels in enumerate(samples.labels):
            series.append(delimited(_SERIES, _series(labels, samples, slice(*samples.offsets[row : row + 2].tolist()))))
            size += len(series[-1])
            _check_size(size)
        parts.append(delimited(_RESULT, b"".join(series)))
    return b"".join(parts)


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        limit = f"{MAX_BYTES >> 20} MiB"
        raise TooLarge(f"the answer of remote read is larger than {limit}: request fewer series or a shorter time")


# ---- the request


def _query(data: bytes) -> ReadQuery:
    start, end, matchers = 0, 0, []
    for field, value in _fields(data):
        if field == 1:
            start = _signed(value)
        elif field == 2:
            end = _signed(value)
        elif field == 3:
            matchers.append(_matcher(_bytes(value)))
    return ReadQuery(start, end, tuple(matchers))


def _matcher(data: bytes) -> Matcher:
    kind, texts = 0, {2: "", 3: ""}
    for field, value in _fields(data):
        if field == 1:
            kind = _signed(value)
        elif field in texts:
            texts[field] = _text(value)
    if not 0 <= kind < len(OPERATORS):
        raise UserError(f"remote read: unknown matcher type {kind}")
    matcher = Matcher(texts[2], OPERATORS[kind], texts[3])
    if matcher.is_regex:
        compile_regex(matcher.value)  # raises UserError if it is invalid
    return matcher


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each field: int, or bytes if it is delimited. Fixed-width fields are skipped."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        elif wire == DELIMITED:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise _damaged()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise _damaged()
    if at > len(data):
        raise _damaged()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number & (1 << 64) - 1, at
    raise _damaged()


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise _damaged()
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _damaged()
    return value


def _text(value: Any) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise UserError("remote read: a matcher is not UTF-8") from None


def _damaged() -> UserError:
    return UserError("remote read: the body is not a prometheus.ReadRequest")


# ---- the response


def _series(labels: Labels, samples: Samples, where: slice) -> bytes:
    named = [
        delimited(_LABEL, delimited(b"\x0a", name.encode()) + delimited(b"\x12", value.encode()))
        for name, value in labels
    ]
    histograms = None if samples.histograms is None else samples.histograms[where]
    times, values = samples.times[where], samples.values[where]
    if histograms is None or not histograms.astype(bool).any():
        return b"".join([*named, _numbers(times, values)])
    plain = ~histograms.astype(bool)
    written = [
        delimited(_HISTOGRAM, _histogram(one, time))
        for one, time in zip(histograms[~plain], times[~plain].tolist(), strict=True)
    ]
    return b"".join([*named, _numbers(times[plain], values[plain]), *written])


def _numbers(times: Ints, values: Floats) -> bytes:
    """Encode float samples; those of usual times all have the same size, so one array holds them."""
    if not len(times):
        return b""
    if times.min() < _FIRST_6 or times.max() >= _PAST_6:
        both = zip(times.tolist(), values.tolist(), strict=True)
        return b"".join(
            delimited(bytes([_SAMPLE]), b"\x09" + struct.pack("<d", v) + _time(b"\x10", t)) for t, v in both
        )
    out = np.zeros(len(times), _PLAIN_SAMPLE)
    out["head"] = np.frombuffer(bytes([_SAMPLE, 16, 0x09]), "V3")
    out["value"] = values
    out["time_tag"] = 0x10
    for place in range(6):
        out["time"][:, place] = (times >> 7 * place) & 0x7F | (0x80 if place < 5 else 0)
    return out.tobytes()


def _time(field_tag: bytes, time_ms: int) -> bytes:
    return field_tag + varint(time_ms & (1 << 64) - 1)


def _histogram(one: Histogram, time_ms: int) -> bytes:
    def double(field: int, value: float) -> bytes:
        return tag(field, FIXED64) + struct.pack("<d", value)

    return b"".join(
        [
            double(2, one.count),
            double(3, one.sum),
            tag(4, VARINT) + varint(_zigzag(one.schema)),
            double(5, one.zero_threshold),
            double(7, one.zero_count),
            *_buckets(one.negative, 8),
            *_buckets(one.positive, 11),
            tag(14, VARINT) + varint(int(one.reset_hint)),
            _time(tag(15, VARINT), time_ms),
            _doubles(16, np.array(one.custom_values)),
        ]
    )


def _buckets(buckets: BucketCounts, spans: int) -> Iterator[bytes]:
    """Yield spans of adjacent buckets as field `spans`, and the counts of all buckets as field `spans` + 2."""
    indexes = buckets.indexes.astype(np.int64)
    following = 0
    for run in np.split(indexes, np.flatnonzero(np.diff(indexes) != 1) + 1) if len(indexes) else ():
        first, length = int(run[0]), len(run)
        span = tag(1, VARINT) + varint(_zigzag(first - following)) + tag(2, VARINT) + varint(length)
        yield delimited(tag(spans, DELIMITED), span)
        following = first + length
    yield _doubles(spans + 2, buckets.counts)


def _doubles(field: int, values: Floats) -> bytes:
    return delimited(tag(field, DELIMITED), values.astype("<f8").tobytes()) if len(values) else b""


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1
