"""The messages of Prometheus remote-write 1.0 and 2.0 as tables, and functions that read one field of them.

Both versions are read by the same code: a table by version, message and field number gives the role of a field, which
is the same in both versions where the meaning is. Packed numbers are a run; a number that is not packed is a run of
one.

Unknown fields are skipped, as protobuf requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.wire import (
    BAD_TAG,
    BAD_TYPE,
    OK,
    OVERLONG,
    TOO_LONG,
    TRUNCATED,
    WRONG_TYPE,
    checked_varint,
    read_size,
    read_varint,
)

V1, V2 = 0, 1
REQUESTS = ("prometheus.WriteRequest", "io.prometheus.write.v2.Request")

REQUEST, SERIES, LABEL, SAMPLE, EXEMPLAR, HISTOGRAM, SPAN, METADATA, FAMILY = range(9)
MESSAGES = (
    "request", "TimeSeries", "Label", "Sample", "Exemplar", "Histogram", "BucketSpan", "Metadata", "MetricMetadata",
)  # fmt: skip

# Roles of fields, by message. Of a request:
TIMESERIES, SYMBOL, FAMILIES = 1, 2, 3
# Of a series; LABELS also of an exemplar:
LABELS, SAMPLES, EXEMPLARS, HISTOGRAMS, OF_METRIC, CREATED = 1, 2, 3, 4, 5, 6
# Of a label:
NAME, VALUE = 1, 2
# Of a sample; the first two of an exemplar, the last two of a histogram:
NUMBER, TIME, START = 2, 3, 4
# Of metadata:
TYPE, METRIC, HELP, UNIT = 1, 2, 3, 4
# Of a histogram, beside TIME and START:
COUNT, FLOAT_COUNT, SUM, SCHEMA, ZERO_THRESHOLD, ZERO_COUNT, FLOAT_ZERO_COUNT = 5, 6, 7, 8, 9, 10, 11
SPANS, DELTAS, FLOATS, RESET, CUSTOM = 12, 14, 16, 18, 19  # the first three + 0 for positive, + 1 for negative buckets
# Of a span:
OFFSET, LENGTH = 1, 2

_VARINT, _FIXED64, _LENGTH, _VARINTS, _FIXED64S = 0, 1, 2, 3, 4  # the first three are wire types
# What is checked beside the wire type: text is UTF-8, a time (ms) fits a timestamp, a reference has its symbol (0 means
# none), an enum is an int32.
TEXT, MILLISECONDS, REFERENCE, REFERENCES, ENUM = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class _Field:
    role: int
    kind: int
    look: int = 0
    child: int = 0

    @property
    def packed(self) -> int:
        return self.role | self.kind << 8 | self.look << 12 | self.child << 16


_TIME, _START = _Field(TIME, _VARINT, MILLISECONDS), _Field(START, _VARINT, MILLISECONDS)
_SAMPLE = {1: _Field(NUMBER, _FIXED64), 2: _TIME}
_HISTOGRAM = {
    1: _Field(COUNT, _VARINT),
    2: _Field(FLOAT_COUNT, _FIXED64),
    3: _Field(SUM, _FIXED64),
    4: _Field(SCHEMA, _VARINT),
    5: _Field(ZERO_THRESHOLD, _FIXED64),
    6: _Field(ZERO_COUNT, _VARINT),
    7: _Field(FLOAT_ZERO_COUNT, _FIXED64),
    8: _Field(SPANS + 1, _LENGTH, child=SPAN),
    9: _Field(DELTAS + 1, _VARINTS),
    10: _Field(FLOATS + 1, _FIXED64S),
    11: _Field(SPANS, _LENGTH, child=SPAN),
    12: _Field(DELTAS, _VARINTS),
    13: _Field(FLOATS, _FIXED64S),
    14: _Field(RESET, _VARINT),
    15: _TIME,
    16: _Field(CUSTOM, _FIXED64S),
}
_SPAN = {1: _Field(OFFSET, _VARINT), 2: _Field(LENGTH, _VARINT)}
_FIELDS: tuple[dict[int, dict[int, _Field]], ...] = (
    {
        REQUEST: {1: _Field(TIMESERIES, _LENGTH, child=SERIES), 3: _Field(FAMILIES, _LENGTH, child=FAMILY)},
        SERIES: {
            1: _Field(LABELS, _LENGTH, child=LABEL),
            2: _Field(SAMPLES, _LENGTH, child=SAMPLE),
            3: _Field(EXEMPLARS, _LENGTH, child=EXEMPLAR),
            4: _Field(HISTOGRAMS, _LENGTH, child=HISTOGRAM),
        },
        LABEL: {1: _Field(NAME, _LENGTH, TEXT), 2: _Field(VALUE, _LENGTH, TEXT)},
        SAMPLE: _SAMPLE,
        EXEMPLAR: {1: _Field(LABELS, _LENGTH, child=LABEL), 2: _Field(NUMBER, _FIXED64), 3: _TIME},
        HISTOGRAM: _HISTOGRAM,
        SPAN: _SPAN,
        FAMILY: {
            1: _Field(TYPE, _VARINT, ENUM),
            2: _Field(METRIC, _LENGTH, TEXT),
            4: _Field(HELP, _LENGTH, TEXT),
            5: _Field(UNIT, _LENGTH, TEXT),
        },
    },
    {
        REQUEST: {4: _Field(SYMBOL, _LENGTH, TEXT), 5: _Field(TIMESERIES, _LENGTH, child=SERIES)},
        SERIES: {
            1: _Field(LABELS, _VARINTS, REFERENCES),
            2: _Field(SAMPLES, _LENGTH, child=SAMPLE),
            3: _Field(HISTOGRAMS, _LENGTH, child=HISTOGRAM),
            4: _Field(EXEMPLARS, _LENGTH, child=EXEMPLAR),
            5: _Field(OF_METRIC, _LENGTH, child=METADATA),
            6: _Field(CREATED, _VARINT, MILLISECONDS),  # only in 2.0's release candidates; now each sample has its own
        },
        SAMPLE: _SAMPLE | {3: _START},
        EXEMPLAR: {1: _Field(LABELS, _VARINTS, REFERENCES), 2: _Field(NUMBER, _FIXED64), 3: _TIME},
        HISTOGRAM: _HISTOGRAM | {17: _START},
        SPAN: _SPAN,
        METADATA: {
            1: _Field(TYPE, _VARINT),
            3: _Field(HELP, _VARINT, REFERENCE),
            4: _Field(UNIT, _VARINT, REFERENCE),
        },
    },
)
_NUMBERS = 32
# The tags of a sample's value and time, and the distance from the first tag to the number of the time.
_VALUE_TAG, _TIME_TAG, PLAIN_TIME = 0x09, 0x10, 10


def _table() -> Any:
    """Return each field by version, message and number; 0 for unknown fields."""
    table = np.zeros((len(_FIELDS), len(MESSAGES), _NUMBERS), np.int64)
    for version, messages in enumerate(_FIELDS):
        for message, fields in messages.items():
            for number, field in fields.items():
                table[version, message, number] = field.packed
    return table


_TABLE = _table()


@njit(cache=True)
def checked_field(data: Any, at: Any, end: Any, version: Any, message: Any) -> Any:
    """Return (field, start and end of the payload, code) of the field whose tag is here, which must end at `end` or
    before. `field` is role | kind << 8 | look << 12 | child << 16, and 0 if unknown."""
    tag, at, code = checked_varint(data, at, end)
    if code != OK:
        return np.int64(0), at, at, code
    if tag < np.uint64(8) or tag > np.uint64(0xFFFFFFFF):
        return np.int64(0), at, at, BAD_TAG
    number, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    field = _TABLE[version, message, number] if number < _NUMBERS else np.int64(0)
    kind = field >> 8 & 15
    # A run is packed (wire type 2) or a single number: kind - 3 is the wire type of its numbers.
    if field != 0 and wire_type != kind and not (kind >= _VARINTS and (wire_type == 2 or wire_type == kind - 3)):
        return np.int64(0), at, at, WRONG_TYPE
    stop = at
    if wire_type == 0 or wire_type == 2:
        size, stop, code = checked_varint(data, at, end)
        if wire_type == 2:
            at = stop
            if code == OK and size > np.uint64(end - at):
                return field, at, at, TOO_LONG
            stop = at + np.int64(size)
    elif wire_type == 1 or wire_type == 5:
        stop = at + (8 if wire_type == 1 else 4)
        code = OK if stop <= end else TRUNCATED
    else:
        code = BAD_TYPE
    if code == OK and kind >= _VARINTS:
        code = _check_run(data, at, stop, kind)
    return field, at, stop, code


@njit(cache=True)
def _check_run(data: Any, at: Any, end: Any, kind: Any) -> Any:
    """Check that these bytes are complete numbers, one after the other."""
    if kind == _FIXED64S:
        return OK if (end - at) % 8 == 0 else TRUNCATED
    digits = 0
    for place in range(at, end):
        digits = digits + 1 if data[place] >= 0x80 else 0
        if digits == 10:
            return OVERLONG
    return OK if digits == 0 else TRUNCATED


@njit(cache=True)
def read_field(data: Any, at: Any, version: Any, message: Any) -> Any:
    """Return (role, start and end of the payload) of the field whose tag is here, in checked bytes."""
    tag, start = read_varint(data, at)
    number, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    role = _TABLE[version, message, number] & 255 if number < _NUMBERS else np.int64(0)
    if wire_type == 2:
        start, stop = read_size(data, start)
    elif wire_type == 0:
        _, stop = read_varint(data, start)
    else:
        stop = start + (8 if wire_type == 1 else 4)
    return role, start, stop


@njit(cache=True)
def starts_plain(data: Any, at: Any, end: Any) -> Any:
    """Return whether the Sample here begins with its value and its time, whose number is at + PLAIN_TIME. Prometheus
    writes all samples so."""
    return end - at > PLAIN_TIME and data[at] == _VALUE_TAG and data[at + PLAIN_TIME - 1] == _TIME_TAG


@njit(cache=True)
def read_uint32(data: Any, at: Any) -> Any:
    """Return a uint32 as an int64; more than 32 bits are cut, as protobuf does."""
    return np.int64(read_varint(data, at)[0] & np.uint64(0xFFFFFFFF))


@njit(cache=True)
def read_int32(data: Any, at: Any) -> Any:
    """Return an int32 as an int64."""
    return np.int64(np.int32(np.uint32(read_uint32(data, at))))


@njit(cache=True)
def decode_zigzag(number: Any) -> Any:
    """Return the signed number that this uint64 encodes."""
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
