"""Add the columns that follow from a record: time, service, severity, message and the message's fingerprint.

Times: 0 means unset, as in OTLP; then another time of the row counts, and finally the time at which its object was last
modified.

Service: what the reader gives, else the resource's first `service.name` if that is a string, else "".

Severity: one word in upper case. OTLP's number decides if it is 1 to 24; else the text does, by the words that loggers
use; any other text is kept, in upper case; "" means that the record has neither.

Message: a string body is the message itself. The message of any other body is its plain text: digits, `true`, base64 of
bytes, the typed JSON of an array or kvlist, "" for an empty value; the column `body` then has the exact value as typed
JSON.

Fingerprint: equal for messages that differ only in their variable parts. It depends on the message alone and never
changes between workers, releases or machines. The message is read as tokens:

- a word is a run of letters, digits, `_` and bytes beyond ASCII, with single `-`, `.`, `:` or `@` allowed inside it. It
  is variable if it has a digit, or eight or more characters that are all hexadecimal or `-`: numbers, times, addresses,
  ids;
- a part in double quotes, or in single quotes that do not follow a word, is variable, quotes included, if the quote is
  closed. Not in a message that begins with `{` or `[`: there quotes surround every name, and are ordinary signs;
- a run of white space counts as one space, of any kind and length; at both ends it does not count;
- every other byte is a token of its own.

All variable tokens are alike. The fingerprint is a 64-bit hash of the sequence of tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import RESOURCE
from lakerunner.pipeline.read.memory import AHEAD, PADDING, digest, fold_product, load, prefetch, tail
from lakerunner.pipeline.read.names import texts_of
from lakerunner.pipeline.read.rows import CodedColumn, JsonColumn, NumberColumn, Rows, TextColumn
from lakerunner.pipeline.read.walk import ABSENT, BYTES, DOUBLE, NULL, STRING
from lakerunner.pipeline.steps.json_text import stack
from lakerunner.pipeline.steps.take import Slices, code_slices, take_json


def time_records(rows: Rows) -> Rows:
    """Add timestamp and observed_timestamp: a record's own time, else when it was observed."""
    time, observed = _given(rows, "time_unix_nano"), _given(rows, "observed_time_unix_nano")
    timestamp = np.where(time != 0, time, np.where(observed != 0, observed, rows.fallback_time))
    return rows.plus(timestamp=NumberColumn(timestamp), observed_timestamp=NumberColumn(observed, observed != 0))


def time_points(rows: Rows) -> Rows:
    """Add timestamp and start_timestamp."""
    time = _given(rows, "time_unix_nano")
    timestamp = np.where(time != 0, time, rows.fallback_time)
    if "start_time_unix_nano" not in rows.columns:
        return rows.plus(timestamp=NumberColumn(timestamp))
    start = _given(rows, "start_time_unix_nano")
    return rows.plus(timestamp=NumberColumn(timestamp), start_timestamp=NumberColumn(start, start != 0))


def time_spans(rows: Rows) -> Rows:
    """Add timestamp, end_timestamp and duration, which is null unless both times are set, and may be negative. A span
    without a start is placed at its end."""
    start, end = _given(rows, "start_time_unix_nano"), _given(rows, "end_time_unix_nano")
    timestamp = np.where(start != 0, start, np.where(end != 0, end, rows.fallback_time))
    return rows.plus(
        timestamp=NumberColumn(timestamp),
        end_timestamp=NumberColumn(end, end != 0),
        duration=NumberColumn(end - start, (start != 0) & (end != 0)),
    )


def _given(rows: Rows, name: str) -> Any:
    return rows.column(name, NumberColumn).values.view(np.int64)


_KEY = b"service.name"


def name_service(rows: Rows) -> Rows:
    """Add service_name unless the reader has set it."""
    if "service_name" in rows.columns:
        return rows
    resources = rows.attached[RESOURCE.map_column]
    keys = texts_of(resources.keys, rows.data)
    at, size = _first_strings(resources.values, resources.first, keys.index(_KEY) if _KEY in keys else -1)
    codes, values = code_slices(Slices(STRING, at, size), rows.data, pa.string())
    return rows.plus(service_name=CodedColumn(codes, values, resources.owner))


@njit(cache=True)
def _first_strings(values: Any, first: Any, key: Any) -> Any:
    """Return (at, size) of the first value of this key of each owner; empty if that is missing or not a string."""
    count = len(first) - 1
    at, size = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for owner in range(count):
        for index in range(first[owner], first[owner + 1]):
            value = values[index]
            if value.key == key:
                if value.kind == STRING:
                    at[owner], size[owner] = value.at, value.size
                break
    return at, size


LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
WORDS = {
    **{level: level for level in LEVELS},
    "FINEST": "TRACE",
    "FINER": "TRACE",
    "VERBOSE": "TRACE",
    "FINE": "DEBUG",
    "CONFIG": "DEBUG",
    "INFORMATION": "INFO",
    "INFORMATIONAL": "INFO",
    "NOTICE": "INFO",
    "WARNING": "WARN",
    "ERR": "ERROR",
    "SEVERE": "ERROR",
    "CRIT": "FATAL",
    "CRITICAL": "FATAL",
    "ALERT": "FATAL",
    "EMERG": "FATAL",
    "EMERGENCY": "FATAL",
    "PANIC": "FATAL",
}


def severity_of(number: int, text: str) -> str:
    """Return the severity of one record."""
    if 1 <= number <= 24:
        return LEVELS[(number - 1) // 4]
    word = text.strip().upper()
    return WORDS.get(word, word)


def reconcile_severity(rows: Rows) -> Rows:
    """Add severity."""
    texts = rows.column("severity_text", CodedColumn)
    by_text = [severity_of(0, text) for text in texts.values.to_pylist()]
    known = list(dict.fromkeys((*LEVELS, *by_text)))
    code_of = {severity: code for code, severity in enumerate(known)}
    codes_by_text = np.array([code_of[severity] for severity in by_text], np.int32)
    number = rows.column("severity_number", NumberColumn).values
    by_number = (number - 1) >> 2
    codes = np.where((number >= 1) & (number <= 24), by_number, codes_by_text[texts.codes])
    return rows.plus(severity=CodedColumn(codes.astype(np.int32), pa.array(known, pa.string())))


# The lengths of what typed JSON writes around the text of bytes, and of doubles that are not finite.
_BEFORE = {BYTES: len('{"bytesValue":"'), DOUBLE: len('{"doubleValue":"')}
_BEHIND = len('"}')


def render_message(rows: Rows) -> Rows:
    """Add message; body keeps only values that are not strings."""
    body = rows.column("body", JsonColumn).values
    at, size = body["at"].copy(), np.where(body["kind"] == STRING, body["size"], 0)
    data = rows.data
    others = np.flatnonzero((body["kind"] != STRING) & (body["kind"] != ABSENT))
    if len(others):
        starts, sizes, texts = plain_texts(data, body[others])
        at[others], size[others] = starts + len(data), sizes
        data = np.concatenate([data, texts, np.zeros(PADDING, np.uint8)])
    rest = body.copy()
    rest["kind"][body["kind"] == STRING] = ABSENT
    return replace(rows, data=data).plus(message=TextColumn(STRING, at, size), body=JsonColumn(rest))


def plain_texts(data: Any, values: Any) -> tuple[Any, Any, Any]:
    """Return (start, size, bytes) of the plain texts of these values: their typed JSON without its type wrappers."""
    kind, at, size = (np.ascontiguousarray(values[field]) for field in ("kind", "at", "size"))
    offsets, texts, _ = take_json(data, kind, at, size, stack())
    starts, sizes = offsets[:-1].copy(), np.diff(offsets)
    wrapped = texts[starts] == ord("{")
    for wrapper, before in _BEFORE.items():
        chosen = wrapped & (kind == wrapper)
        starts[chosen] += before
        sizes[chosen] -= before + _BEHIND
    sizes[kind == NULL] = 0
    return starts, sizes, texts


_SPACE, _WORD, _DIGIT, _HEX, _JOINT, _QUOTE = 1, 2, 4, 8, 16, 32
_START, _VARIABLE = np.uint64(0xB492B66FBE98F273), np.uint64(0x9AE16A3B2F90404F)
_AFTER_TOKEN, _AFTER_GAP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC3A5C85C97CB3127)


def _classes() -> np.ndarray[Any, np.dtype[np.uint8]]:
    classes = np.zeros(256, np.uint8)
    classes[list(b" \t\n\v\f\r")] = _SPACE
    classes[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")] = _WORD
    classes[128:] = _WORD
    classes[list(b"abcdefABCDEF")] |= _HEX
    classes[list(b"0123456789")] = _WORD | _DIGIT | _HEX
    classes[list(b".:@")] = _JOINT
    classes[ord("-")] = _JOINT | _HEX
    classes[list(b"\"'")] = _QUOTE
    return classes


_CLASS = _classes()


def add_fingerprint(rows: Rows) -> Rows:
    """Add the fingerprint of the message."""
    message = rows.column("message", TextColumn)
    return rows.plus(fingerprint=NumberColumn(_fingerprints(rows.data, message.at, message.size)))


@njit(cache=True)
def _fingerprints(data: Any, at: Any, size: Any) -> Any:
    out = np.empty(len(at), np.int64)
    for row in range(len(at)):
        prefetch(data, np.int64(at[min(row + AHEAD, len(at) - 1)]))
        out[row] = _fingerprint(data, np.int64(at[row]), np.int64(at[row]) + np.int64(size[row]))
    return out


@njit(cache=True)
def _word(data: Any, at: Any, end: Any) -> Any:
    """Return (token, position after it) of the word that starts here."""
    start = at
    some, every = np.uint8(0), np.uint8(255)
    while at < end:
        kind = _CLASS[data[at]]
        if kind & _WORD == 0 and (
            kind & _JOINT == 0 or at + 1 >= end or at == start or _CLASS[data[at + 1]] & _WORD == 0
        ):
            break
        some |= kind
        every &= kind
        at += 1
    if some & _DIGIT or (every & _HEX and at - start >= 8):
        return _VARIABLE, at
    if at - start <= 8:  # no byte of a word is zero, so this is the word itself
        return tail(load(data, start), at - start), at
    return digest(data, start, at - start, np.int32(0)), at


@njit(cache=True)
def _closing(data: Any, at: Any, end: Any) -> Any:
    """Return the position of the quote that closes the one at `at`, or -1."""
    for place in range(at + 1, end):
        if data[place] == data[at]:
            return place
    return np.int64(-1)


@njit(cache=True)
def _fingerprint(data: Any, at: Any, end: Any) -> Any:
    value, gap, after_word = _START, False, False
    while at < end and _CLASS[data[at]] & _SPACE:
        at += 1
    quotes = at < end and data[at] != 123 and data[at] != 91
    while at < end:
        byte = data[at]
        kind = _CLASS[byte]
        if kind & _SPACE:
            gap, after_word = True, False
            at += 1
            continue
        closing = np.int64(-1)
        if kind & _QUOTE and quotes and (byte == 34 or not after_word):
            closing = _closing(data, at, end)
        after_word = False
        if kind & _WORD:
            token, at = _word(data, at, end)
            after_word = True
        elif closing >= 0:
            token, at = _VARIABLE, closing + 1
        else:
            token, at = np.uint64(byte), at + 1
        value = fold_product(value ^ token, _AFTER_GAP if gap else _AFTER_TOKEN)
        gap = False
    return np.int64(value)
