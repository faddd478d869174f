"""Check that bytes are a remote-write request, completely and before anything is read from them.

Comes in: one uncompressed message and its version. Goes out: counts of what it holds, or Corrupt with the byte where
the error starts. The push door and the reader use the same check, so what the door accepted can be read. After it every
field lies inside its message and has its type, every text is UTF-8, every reference has its symbol, every time fits a
timestamp and every histogram has the buckets that it announces.

Accepted, because nothing is lost or doubled: labels that are not sorted, that occur twice, or that have no name or no
value; series without a name; samples and histograms in one series.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import Corrupt
from lakerunner.model.time import MS_NS
from lakerunner.pipeline.read.memory import Bytes, Int64s, Records, load, scan
from lakerunner.pipeline.read.shared import ENTRY_BYTES
from lakerunner.pipeline.read.wire import (
    BAD_TYPE,
    MAX_FIELD,
    OK,
    TOO_LARGE,
    WRONG_TYPE,
    checked_varint,
    is_utf8,
    read_varint,
)
from lakerunner.pipeline.read.wire import TROUBLES as WIRE_TROUBLES
from lakerunner.pipeline.remote_write.fields import (
    ENUM,
    EXEMPLAR,
    FAMILIES,
    FAMILY,
    HELP,
    HISTOGRAM,
    LABEL,
    LABELS,
    MESSAGES,
    METADATA,
    MILLISECONDS,
    OF_METRIC,
    PLAIN_TIME,
    REFERENCE,
    REFERENCES,
    REQUEST,
    REQUESTS,
    SAMPLE,
    SERIES,
    SYMBOL,
    TEXT,
    TIMESERIES,
    UNIT,
    V1,
    V2,
    checked_field,
    read_field,
    read_uint32,
    starts_plain,
)
from lakerunner.pipeline.remote_write.native_histograms import HISTOGRAM_ROW, TROUBLES, find_histograms, read_histograms

LAST_MS = (2**63 - 2) // MS_NS

NOT_UTF8, BAD_REFERENCE, ODD_REFERENCES, BAD_TIME, BAD_FRAME, BAD_ENUM = range(30, 36)
_TROUBLES = {
    **WIRE_TROUBLES,
    BAD_TYPE: "has a field of a wire type that remote-write does not use",
    TOO_LARGE: f"has a text of more than {MAX_FIELD >> 20} MB",
    NOT_UTF8: "has text that is not UTF-8",
    BAD_REFERENCE: "refers to a symbol that does not exist",
    ODD_REFERENCES: "has a label name without a value: the number of its references is odd",
    BAD_TIME: "has a time that no timestamp can hold: use ms of the years 1677 to 2262",
    BAD_ENUM: "has a type whose number does not fit in 32 bits",
    BAD_FRAME: "is longer than the rest of the file",
    **TROUBLES,
}


class MessageCounts(NamedTuple):
    """What a message holds. `frames` is 1, `rows` the number of its rows; `labels` are those of series, `texts` the
    symbols; `buckets` are the dense buckets of its histograms, and their bounds."""

    samples: int
    histograms: int
    exemplars: int
    families: int
    rows: int
    series: int
    labels: int
    exemplar_labels: int
    texts: int
    frames: int
    buckets: int


# Places in the array that the jitted functions fill: messages by their number, then these.
_ROWS, _LABELS, _EXEMPLAR_LABELS, _TEXTS, _SIZE = range(len(MESSAGES), len(MESSAGES) + 5)
_COUNTED = (SAMPLE, HISTOGRAM, EXEMPLAR, FAMILY, _ROWS, SERIES, _LABELS, _EXEMPLAR_LABELS, _TEXTS, REQUEST)
_DEPTH = 4
_PLAIN_NAME, _PLAIN_VALUE = 0x0A, 0x12  # the tags of a label's name and value


def check_message(data: bytes, version: int) -> MessageCounts:
    """Count what this message holds. Raise Corrupt if it is not a request of this version."""
    found = np.zeros(_SIZE, np.int64)
    array = np.frombuffer(data, np.uint8)
    code, at, message = _check_request(array, np.int64(0), np.int64(len(array)), version, found)
    if code != OK:
        raise Corrupt(f"not a {REQUESTS[version]}: {_explain(array, (code, at, message), 0)}")
    places = np.zeros(int(found[HISTOGRAM]), HISTOGRAM_ROW)
    if len(places):
        find_histograms(array, np.int64(0), np.int64(len(array)), version, places, 0)
    return _count_buckets(array, version, found, places)


def check_frames(data: Bytes, version: int) -> MessageCounts:
    """Count what these messages hold, each of which is preceded by its length."""
    found = np.zeros(_SIZE, np.int64)
    frame, start, code, at, message = _check_frames(data, version, found)
    if code != OK:
        where = _explain(data, (code, at, message), start)
        raise Corrupt(f"frame {frame} at byte {start} is not a {REQUESTS[version]}: {where}")
    places = np.zeros(int(found[HISTOGRAM]), HISTOGRAM_ROW)
    if len(places):
        _find_in_frames(data, version, places)
    return _count_buckets(data, version, found, places)


def _count_buckets(data: Bytes, version: int, found: Int64s, places: Records) -> MessageCounts:
    """Check the histograms at these places, and add their buckets to what was found."""
    buckets = 0
    if len(places):
        number, code, buckets = read_histograms(data, version, places, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        if code != OK:
            at, frame = places[number]["at"], places[number]["row"]
            raise Corrupt(f"not a {REQUESTS[version]}: byte {at} (frame {frame}): its Histogram {_TROUBLES[code]}")
    return MessageCounts._make([*(int(found[place]) for place in _COUNTED), buckets])


def _explain(data: Bytes, trouble: tuple[int, int, int], start: int) -> str:
    """Describe what is wrong, and where, counted from `start`."""
    code, at, message = trouble
    where = f"byte {at - start}: its {MESSAGES[message]}" if message else f"byte {at - start}: it"
    if code == WRONG_TYPE:
        number, wire_type = divmod(int(read_varint(data, at)[0]), 8)
        return f"{where} has field {number} with wire type {wire_type}, which is not the field's"
    return f"{where} {_TROUBLES[code]}"


@njit(cache=True)
def _check_frames(data: Any, version: Any, found: Any) -> Any:
    """Return (invalid frame, start of its message, code, position, message)."""
    at, end, frame = np.int64(0), np.int64(len(data)), 0
    while at < end:
        size, start, code = checked_varint(data, at, end)
        if code == OK and size > np.uint64(end - start):
            code = BAD_FRAME
        if code != OK:
            return frame, at, code, at, REQUEST
        at = start + np.int64(size)
        code, place, message = _check_request(data, start, at, version, found)
        if code != OK:
            return frame, start, code, place, message
        frame += 1
    return frame, at, OK, at, REQUEST


@njit(cache=True)
def _find_in_frames(data: Any, version: Any, places: Any) -> Any:
    """Set the place and the frame (as `row`) of each histogram."""
    at, count, frame = np.int64(0), 0, 0
    while at < len(data):
        size, at = read_varint(data, at)
        stop = at + np.int64(size)
        before = count
        count = find_histograms(data, at, stop, version, places, count)
        for place in range(before, count):
            places[place].row = frame
        at = stop
        frame += 1


@njit(cache=True)
def _count_symbols(data: Any, at: Any, end: Any) -> Any:
    """Count the symbols of a request up to its first error, which `_check_request` will report. References must be
    checked against all symbols, and these may come behind the series that refer to them."""
    count = np.int64(0)
    while at < end:
        field, _, at, code = checked_field(data, at, end, V2, REQUEST)
        if code != OK:
            break
        count += field & 255 == SYMBOL
    return count


@njit(cache=True)
def _check_request(data: Any, at: Any, end: Any, version: Any, found: Any) -> Any:
    """Return (code, position, message); `found` grows by what the request holds."""
    found[REQUEST] += 1
    symbols = _count_symbols(data, at, end) if version == V2 else np.int64(0)
    found[_TEXTS] += symbols
    # A stack instead of recursion: for each open message its start, end, type, and number of references.
    opened = np.zeros((_DEPTH + 1, 4), np.int64)
    depth, message, references, rows = 0, np.int64(REQUEST), np.int64(0), np.int64(0)
    begin = at
    while True:
        while at == end:
            if references & 1:
                return ODD_REFERENCES, begin, message
            if message == SERIES:
                found[_LABELS] += references >> 1
                # A series without samples and histograms becomes a row too: `rows` is the count before it.
                found[_ROWS] = max(rows + 1, found[_ROWS])
            elif message == EXEMPLAR:
                found[_EXEMPLAR_LABELS] += references >> 1
            if depth == 0:
                return OK, at, message
            depth -= 1
            begin, end, message, references = opened[depth, 0], opened[depth, 1], opened[depth, 2], opened[depth, 3]
        here = at
        field, at, stop, code = checked_field(data, here, end, version, message)
        look, child = field >> 12 & 15, field >> 16
        if code == OK and look != 0:
            code = _check_content(data, at, stop, look, symbols)
        if code != OK:
            return code, here, message
        if child == 0:
            if look == REFERENCES:
                references += _count_varints(data, at, stop)
            at = stop
            continue
        if child == LABEL:
            found[_LABELS if message == SERIES else _EXEMPLAR_LABELS] += 1
        elif child == SERIES:
            rows = found[_ROWS]
        elif child in (SAMPLE, HISTOGRAM, FAMILY):
            found[_ROWS] += 1
            found[_LABELS] += child == FAMILY
        found[child] += 1
        if (child == LABEL and _is_plain_label(data, at, stop)) or (
            child == SAMPLE and _is_plain_sample(data, at, stop)
        ):
            at = stop
            continue
        opened[depth, 0], opened[depth, 1], opened[depth, 2], opened[depth, 3] = begin, end, message, references
        depth += 1
        begin, end, message, references = at, stop, child, np.int64(0)


@njit(cache=True)
def _is_plain_label(data: Any, at: Any, end: Any) -> Any:
    """Return whether this is a name and a value of up to 127 bytes, all ASCII, as nearly all labels are. It spares them
    the general loop."""
    if end - at < 4 or data[at] != _PLAIN_NAME or data[at + 1] >= 0x80:
        return False
    value = at + 2 + np.int64(data[at + 1])
    if value + 2 > end or data[value] != _PLAIN_VALUE or value + 2 + np.int64(data[value + 1]) != end:
        return False
    # Tags and lengths are below 0x80 too, so one scan over all bytes is enough.
    joined = np.uint64(0)
    while end - at >= 8:
        joined |= load(data, at)
        at += 8
    while at < end:
        joined |= np.uint64(data[at])
        at += 1
    return joined & np.uint64(0x8080808080808080) == 0


@njit(cache=True)
def _is_plain_sample(data: Any, at: Any, end: Any) -> Any:
    """Return whether this is a value and a time, as nearly all samples are, and the time fits a timestamp."""
    if not starts_plain(data, at, end):
        return False
    time, stop, code = checked_varint(data, at + PLAIN_TIME, end)
    return code == OK and stop == end and -LAST_MS <= np.int64(time) <= LAST_MS


@njit(cache=True)
def _check_content(data: Any, at: Any, end: Any, look: Any, symbols: Any) -> Any:
    """Return the code of a field's content, by what must be checked of it (`look`)."""
    if look == TEXT:
        if end - at > MAX_FIELD:
            return TOO_LARGE
        return OK if scan(data, at, end)[0] or is_utf8(data, at, end) else NOT_UTF8
    if look == MILLISECONDS:
        return OK if -LAST_MS <= np.int64(read_varint(data, at)[0]) <= LAST_MS else BAD_TIME
    if look == REFERENCE:
        return OK if read_uint32(data, at) == 0 or read_uint32(data, at) < symbols else BAD_REFERENCE
    if look == ENUM:
        signed = np.int64(read_varint(data, at)[0])
        return OK if -(2**31) <= signed < 2**31 else BAD_ENUM
    while at < end:
        number, at = read_varint(data, at)
        if np.int64(number & np.uint64(0xFFFFFFFF)) >= symbols:
            return BAD_REFERENCE
    return OK


@njit(cache=True)
def _count_varints(data: Any, at: Any, end: Any) -> Any:
    """Count the last bytes of varints, those without the continuation bit."""
    count = np.int64(0)
    for place in range(at, end):
        count += data[place] < 0x80
    return count


# ---- what points share with the others of their series (read/shared.py), for the push door

# Added to each series: the attributes `type` and `prometheus.type` with their values.
_ADDED_BYTES = 2 * (ENTRY_BYTES + len("prometheus.type") + len("gaugehistogram"))


def most_shared_in_series(message: bytes, version: int, symbols: int) -> int:
    """Return an upper bound of the bytes that a point of this checked message shares with others of its series. A label
    counts twice: as an attribute, and as the metric's or service's name. Equal series of several messages become one,
    which shares no more than each of them."""
    return int(_most_shared(np.frombuffer(message, np.uint8), version, np.zeros(symbols, np.int64)))


@njit(cache=True)
def _most_shared(data: Any, version: Any, sizes: Any) -> Any:
    most, at, end = np.int64(0), np.int64(0), np.int64(len(data))
    if version == V2:
        _measure_symbols(data, sizes)
    while at < end:
        role, start, at = read_field(data, at, version, REQUEST)
        if role == TIMESERIES:
            most = max(most, _shared_by_series(data, start, at, version, sizes))
        elif role == FAMILIES:
            most = max(most, 2 * (at - start))
    return most + _ADDED_BYTES


@njit(cache=True)
def _measure_symbols(data: Any, sizes: Any) -> Any:
    """Set the size of each symbol; symbols may come behind the series that refer to them."""
    at, count = np.int64(0), 0
    while at < len(data):
        role, start, at = read_field(data, at, V2, REQUEST)
        if role == SYMBOL:
            sizes[count] = at - start
            count += 1


@njit(cache=True)
def _shared_by_series(data: Any, at: Any, end: Any, version: Any, sizes: Any) -> Any:
    shared = np.int64(0)
    while at < end:
        role, start, at = read_field(data, at, version, SERIES)
        if role == LABELS and version == V1:
            shared += 2 * (at - start) + ENTRY_BYTES
        elif role == LABELS:
            while start < at:
                reference, start = read_varint(data, start)
                shared += 2 * sizes[np.int64(reference & np.uint64(0xFFFFFFFF))] + ENTRY_BYTES
        elif role == OF_METRIC:
            while start < at:
                part, here, start = read_field(data, start, V2, METADATA)
                if part in (HELP, UNIT) and read_uint32(data, here) > 0:
                    shared += sizes[read_uint32(data, here)]
    return shared
