"""The protobuf wire format, checked in one pass before anything is read from it.

Comes in: the bytes of one message and its grammar, a table of the fields that each message may have. Goes out: a
`Verdict`, and counts of what the message holds. After a verdict of OK every tag, length and number lies inside its
message, every known field has its wire type, and nesting is bounded, so the `read_` and `skip_` functions do not check
again.

The check is stricter than protobuf: a known field with another wire type, a group, or a number of more than 64 bits is
an error, because each of them means that the bytes are not what they claim to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.protobuf import varint as varint
from lakerunner.pipeline.read.memory import Bytes, Int64s, load, scan

# Kinds of known fields, in an order that `check_message` relies on: plain numbers, then texts, then MESSAGE, then
# repeated numbers, packed in one field or each in a field of its own.
VARINT, FIXED64, TIME, FIXED32, BYTES, STRING, MESSAGE, FIXED64S, VARINTS = range(1, 10)
_WIRE_TYPE = {VARINT: 0, FIXED64: 1, TIME: 1, FIXED32: 5, BYTES: 2, STRING: 2, MESSAGE: 2, FIXED64S: 2, VARINTS: 2}
_UNPACKED = {FIXED64S: FIXED64, VARINTS: VARINT}

# Tags below ONE_BYTE take one byte on the wire; tags below TAGS may be known.
ONE_BYTE, TAGS = 128, 256
# Messages inside messages, the outermost not counted: the limit of the protobuf libraries.
MAX_DEPTH = 100
# A segment's time range is half-open in int64, so the last representable instant cannot be a timestamp.
LAST_TIME = np.uint64(2**63 - 2)

# The largest text, attribute or record: it bounds memory.
MAX_FIELD = 64 << 20

OK, TRUNCATED, OVERLONG, BAD_TAG, BAD_TYPE, WRONG_TYPE, TOO_DEEP, TOO_LONG, TOO_LARGE = range(9)
TROUBLES = {
    TRUNCATED: "ends in the middle of a field",
    OVERLONG: "has a number of more than 64 bits",
    BAD_TAG: "has an invalid field number",
    BAD_TYPE: "has a field of a wire type that OTLP does not use",
    TOO_DEEP: f"is nested deeper than {MAX_DEPTH} messages",
    TOO_LONG: "has a field that is longer than the rest of it",
    TOO_LARGE: f"has a field of more than {MAX_FIELD >> 20} MB",
}


@dataclass(frozen=True)
class Field:
    """A known field. `child` is the message in it, or the name under which repeated numbers are counted. `once` is 1
    where a second one in the same message would be merged with the first or replace it: such bytes are odd, and read
    only after repair. `many` is 1 where the field holds many items and may exceed MAX_FIELD."""

    name: str
    kind: int
    child: str = ""
    once: int = 0
    many: int = 0


Messages = Mapping[str, Mapping[int, Field]]


class Verdict(NamedTuple):
    """The result of a check. For an error, `at` is the byte where it starts, `message` the type of the message that
    holds it, from `start` to `end`. `odd` bytes are valid, but need read/repair.py before they can be walked."""

    code: int
    at: int
    message: int
    start: int
    end: int
    odd: bool


def tag_of(number: int, kind: int) -> int:
    """Return the tag of a field of this number and kind, which takes one byte on the wire if the number is below 16."""
    return number << 3 | _WIRE_TYPE[kind]


def grammar(messages: Messages) -> Int64s:
    """Return, for each message type and each tag below TAGS, the field as kind | once << 4 | many << 5 | child << 8; 0
    for an unknown tag. Types are numbered in their order; the first is the outermost. A field whose tag takes two bytes
    must be a plain number: only its wire type is checked, outside the hot loop."""
    number = {name: index for index, name in enumerate(messages)}
    tables = np.zeros((len(messages), TAGS), np.int64)
    for name, known in messages.items():
        for field_number, field in known.items():
            child = number.get(field.child, 0)
            for kind in {field.kind, _UNPACKED.get(field.kind, field.kind)}:
                tag = tag_of(field_number, kind)
                if tag >= ONE_BYTE and kind not in (VARINT, FIXED64, FIXED32):
                    raise ValueError(f"{name}.{field.name} has a tag of two bytes: it must be a plain number")
                tables[number[name], tag] = kind | field.once << 4 | field.many << 5 | child << 8
    return tables


@njit(cache=True)
def read_varint(data: Any, at: Any) -> Any:
    """Return (value, next position) of a varint in checked bytes."""
    byte = data[at]
    at += 1
    value = np.uint64(byte & 0x7F)
    shift = np.uint64(7)
    while byte >= 0x80:
        byte = data[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        shift += np.uint64(7)
    return value, at


@njit(cache=True)
def read_size(data: Any, at: Any) -> Any:
    """Return (start, end) of the payload whose length is here, in checked bytes."""
    # Nearly all lengths are below 128 and take one byte: this saves the loop of read_varint.
    size = np.int64(data[at])
    at += 1
    if size >= 0x80:
        long, at = read_varint(data, at - 1)
        size = np.int64(long)
    return at, at + size


@njit(cache=True)
def skip_field(data: Any, at: Any) -> Any:
    """Return the position behind the field whose tag is here, in checked bytes."""
    tag, at = read_varint(data, at)
    wire_type = tag & np.uint64(7)
    if wire_type == 0:
        return read_varint(data, at)[1]
    if wire_type == 1:
        return at + 8
    if wire_type == 5:
        return at + 4
    return read_size(data, at)[1]


@njit(cache=True)
def checked_varint(data: Any, at: Any, end: Any) -> Any:
    """Return (value, next position, code) of a varint that must end before `end`."""
    value = np.uint64(0)
    for place in range(10):
        if at >= end:
            return value, at, TRUNCATED
        byte = data[at]
        at += 1
        if place == 9 and byte > 1:  # nine bytes hold 63 bits: the tenth may only add the last one
            return value, at, OVERLONG
        value |= np.uint64(byte & 0x7F) << np.uint64(7 * place)
        if byte < 0x80:
            return value, at, OK
    return value, at, OVERLONG


@njit(cache=True)
def is_utf8(data: Any, at: Any, end: Any) -> Any:
    """Return whether these bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF."""
    while at < end:
        lead = data[at]
        at += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - at < more:
            return False
        # The first continuation byte has a narrower range after some lead bytes: 0xE0 and 0xF0 would be overlong below
        # it, 0xED begins the surrogates, 0xF4 goes past U+10FFFF.
        low, high = 0x80, 0xBF
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            high = 0x9F
        elif lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
        if data[at] < low or data[at] > high:
            return False
        for place in range(at + 1, at + more):
            if data[place] & 0xC0 != 0x80:
                return False
        at += more
    return True


@njit(cache=True)
def _checked_size(data: Any, at: Any, end: Any) -> Any:
    """Return (start, end, code) of a payload that must end at `end` or before."""
    if at < end and data[at] < 0x80:
        at, stop = at + 1, at + 1 + np.int64(data[at])
        return at, stop, OK if stop <= end else TOO_LONG
    size, at, code = checked_varint(data, at, end)
    if code == OK and size > np.uint64(end - at):
        code = TOO_LONG
    return at, at + np.int64(size), code


@njit(cache=True)
def check_value(data: Any, at: Any, end: Any, wire_type: Any) -> Any:
    """Return (next position, code) of a field's value, whose tag has been read."""
    if wire_type == 0:
        _, at, code = checked_varint(data, at, end)
        return at, code
    if wire_type == 2:
        _, at, code = _checked_size(data, at, end)
        return at, code
    if wire_type == 1 or wire_type == 5:
        size = 8 if wire_type == 1 else 4
        return at + size, OK if end - at >= size else TRUNCATED
    return at, BAD_TYPE


@njit(cache=True)
def _check_unknown(data: Any, at: Any, end: Any, known: Any) -> Any:
    """Return (next position, code) of a field whose tag is unknown to its message, or takes two bytes."""
    start = at
    tag, at, code = checked_varint(data, at, end)
    if code != OK:
        return at, code
    if tag < np.uint64(8) or tag > np.uint64(0xFFFFFFFF):
        return at, BAD_TAG
    if tag < np.uint64(TAGS):
        field = np.int64(tag) & ~7
        # The readers compare a tag's bytes, so they would miss a known tag that is written in more bytes than needed.
        plain = known[np.int64(tag)] != 0 and tag >= np.uint64(ONE_BYTE) and at - start == 2
        if known[field : field + 8].any() and not plain:
            return at, WRONG_TYPE
    return check_value(data, at, end, np.int64(tag & np.uint64(7)))


@njit(cache=True)
def _check_numbers(data: Any, at: Any, end: Any, kind: Any) -> Any:
    """Return (count, code) of packed numbers."""
    if kind == FIXED64S:
        return (end - at) >> 3, TRUNCATED if (end - at) & 7 else OK
    count = np.int64(0)
    while at < end:
        _, at, code = checked_varint(data, at, end)
        if code != OK:
            return count, code
        count += 1
    return count, OK


@njit(cache=True)
def check_message(data: Any, tables: Any, message: Any, counts: Any) -> Any:
    """Return the fields of a Verdict, for jitted code; add to `counts` as `check` does."""
    # A stack instead of recursion: for each open message its start, end, type, and the `once` bit seen in it.
    opened = np.zeros((MAX_DEPTH + 1, 4), np.int64)
    depth, at, seen = np.int64(0), np.int64(0), np.int64(0)
    end, odd, code = np.int64(len(data)), False, OK
    opened[0, 1], opened[0, 2] = end, message
    while True:
        while at == end:
            if depth == 0:
                return OK, at, message, opened[0, 0], end, odd
            depth -= 1
            end, message, seen = opened[depth, 1], opened[depth, 2], opened[depth, 3]
        here = at
        tag = data[at]
        field = tables[message, tag] if tag < ONE_BYTE else 0
        if field == 0:
            at, code = _check_unknown(data, here, end, tables[message])
            if code != OK:
                break
            continue
        # Bit 4 is `once`. One bit for all such fields of a message is enough: each message that has any is a oneof, or
        # has a single one of them.
        odd |= seen & field & 16 != 0
        seen |= field & 16
        kind = field & 15
        if kind < BYTES:
            at, code = check_value(data, here + 1, end, np.int64(tag & 7))
            if code != OK:
                break
            odd |= kind == TIME and load(data, at - 8) > LAST_TIME
            if field >> 8:  # a repeated number that is not packed
                counts[field >> 8] += 1
            continue
        at, stop, code = _checked_size(data, here + 1, end)
        if code == OK and stop - at > MAX_FIELD and field & 32 == 0:  # bit 5 is `many`
            code = TOO_LARGE
        if code == OK and kind == MESSAGE and depth == MAX_DEPTH:
            code = TOO_DEEP
        if code != OK:
            break
        if kind == MESSAGE:
            opened[depth, 3] = seen
            depth += 1
            end, message, seen = stop, field >> 8, np.int64(0)
            opened[depth, 0], opened[depth, 1], opened[depth, 2] = at, end, message
            counts[message] += 1
        elif kind > MESSAGE:
            many, code = _check_numbers(data, at, stop, kind)
            if code != OK:
                break
            counts[field >> 8] += many
            at = stop
        else:
            if kind == STRING:
                ascii_only, controls = scan(data, at, stop)
                counts[-1] += controls  # JSON writes each as six bytes, so they count as memory
                odd |= not ascii_only and not is_utf8(data, at, stop)
            at = stop
    return code, here, message, opened[depth, 0], end, odd


def check(data: Bytes, tables: Int64s, message: int, counts: Int64s) -> Verdict:
    """Check whether these bytes are a message of this type. `counts` grows by the content: messages by their type,
    repeated numbers by the name under which they are counted, and at the end the control characters of all strings."""
    return Verdict(*check_message(data, tables, message, counts))


def explain(data: Bytes, messages: Messages, verdict: Verdict) -> str:
    """Describe a verdict that is not OK: what is wrong, and where."""
    name, known = list(messages.items())[verdict.message]
    where = f"byte {verdict.at}: {name}"
    if verdict.code == WRONG_TYPE:
        tag, _ = read_varint(data, verdict.at)
        number, wire_type = divmod(int(tag), 8)
        field = known[number]
        right = _WIRE_TYPE[field.kind]
        if wire_type == right:
            return f"{where}.{field.name} has wire type {right} in a tag of more bytes than it needs"
        return f"{where}.{field.name} has wire type {wire_type}, not {right}"
    return f"{where} {TROUBLES[verdict.code]}"
