"""The protobuf wire format, checked in one pass before anything is read from it.

Comes in: the bytes of one message and a `Grammar`, the tables of what may stand where. Goes out: a `Verdict`
and, per message type, how often it occurs. After a verdict of OK every tag, length and number of the bytes stands
inside its message, every known field has its wire type, and nesting is bounded: `walk` functions may then read
without looking again.

We are stricter than protobuf asks: a known field with another wire type, a group, a number that does not fit
64 bits are errors here, because each of them means that the bytes are not what they claim to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import is_ascii

VARINT, FIXED64, TIME, FIXED32, BYTES, STRING, MESSAGE = range(1, 8)  # 0: a field we do not know
_WIRE_TYPE = np.array([-1, 0, 1, 1, 5, 2, 2, 2], np.int8)
_FIELDS = 17  # field numbers below this may be known

# The same depth as the protobuf libraries: messages inside messages, the outermost not counted.
MAX_DEPTH = 100
# A segment's time range is half-open in int64, so the last representable instant cannot be a timestamp.
LAST_TIME = np.uint64(2**63 - 2)

OK, TRUNCATED, OVERLONG, BAD_TAG, BAD_GROUP, WRONG_TYPE, TOO_DEEP, TOO_LONG = range(8)
_TROUBLES = {
    TRUNCATED: "ends in the middle of a field",
    OVERLONG: "holds a number of more than 64 bits",
    BAD_TAG: "holds a field number that cannot be",
    BAD_GROUP: "holds a field of a wire type that OTLP does not use",
    TOO_DEEP: f"is nested deeper than {MAX_DEPTH} messages",
    TOO_LONG: "holds a field that is longer than what is left of it",
}


@dataclass(frozen=True)
class Field:
    """A known field. `once` marks what protobuf merges or lets win when it stands in a message twice: fields of one
    message with the same nonzero mark."""

    name: str
    kind: int
    child: str = ""
    once: int = 0


class Grammar(NamedTuple):
    """The tables as arrays, by message type and field number; type 0 is the outermost message."""

    kind: Any
    child: Any
    once: Any


class Verdict(NamedTuple):
    """`at` is the byte where the trouble starts, `message` the type and `start`, `end` the extent of the message
    that holds it. `odd` says that the bytes are right, but need `repair` before they can be walked."""

    code: int
    at: int
    message: int
    start: int
    end: int
    odd: bool


def grammar(messages: Mapping[str, Mapping[int, Field]]) -> Grammar:
    """The tables of these messages; the first one is the outermost."""
    number = {name: index for index, name in enumerate(messages)}
    kind, child, once = (np.zeros((len(messages), _FIELDS), np.uint8) for _ in range(3))
    for name, known in messages.items():
        for tag, field in known.items():
            place = number[name], tag
            kind[place], once[place] = field.kind, field.once
            child[place] = number[field.child] if field.child else 0
    return Grammar(kind, child, once)


@njit(cache=True)
def read_varint(data: Any, at: Any) -> Any:
    """(value, next position) of a varint in bytes that were checked."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return np.uint64(byte), at
    value = np.uint64(byte & 0x7F)
    shift = np.uint64(7)
    while True:
        byte = data[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += np.uint64(7)


@njit(cache=True)
def skip(data: Any, at: Any, wire_type: Any) -> Any:
    """The position behind a field of checked bytes whose tag was read."""
    if wire_type == 0:
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if wire_type == 1:
        return at + 8
    if wire_type == 5:
        return at + 4
    size, at = read_varint(data, at)
    return at + np.int64(size)


@njit(cache=True)
def checked_varint(data: Any, at: Any, end: Any) -> Any:
    """(value, next position, code) of a varint that must end before `end`."""
    value = np.uint64(0)
    for place in range(10):
        if at >= end:
            return value, at, TRUNCATED
        byte = data[at]
        at += 1
        if place == 9 and byte > 1:
            return value, at, OVERLONG
        value |= np.uint64(byte & 0x7F) << np.uint64(7 * place)
        if byte < 0x80:
            return value, at, OK
    return value, at, OVERLONG


@njit(cache=True)
def is_utf8(data: Any, at: Any, end: Any) -> Any:
    """Whether these bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF."""
    if is_ascii(data, at, end):
        return True
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
def check_value(data: Any, at: Any, end: Any, kind: Any, wire_type: Any) -> Any:
    """(next position, code, odd) of a field's value that is not a message."""
    if wire_type == 0:
        _, at, code = checked_varint(data, at, end)
        return at, code, False
    if wire_type == 1 or wire_type == 5:
        size = 8 if wire_type == 1 else 4
        if end - at < size:
            return at, TRUNCATED, False
        odd = False
        if kind == TIME:
            value = np.uint64(0)
            for place in range(8):
                value |= np.uint64(data[at + place]) << np.uint64(8 * place)
            odd = value > LAST_TIME
        return at + size, OK, odd
    size, at, code = checked_varint(data, at, end)
    if code != OK:
        return at, code, False
    if size > np.uint64(end - at):
        return at, TOO_LONG, False
    stop = at + np.int64(size)
    return stop, OK, kind == STRING and not is_utf8(data, at, stop)


@njit(cache=True)
def _check(data: Any, tables: Any, counts: Any) -> Any:
    """The fields of a Verdict; adds to `counts` the messages of each type."""
    starts, ends = np.zeros(MAX_DEPTH + 1, np.int64), np.zeros(MAX_DEPTH + 1, np.int64)
    types, seen = np.zeros(MAX_DEPTH + 1, np.int64), np.zeros(MAX_DEPTH + 1, np.uint8)
    depth, at, odd, code = 0, 0, False, OK
    end, message = len(data), 0
    ends[0] = end
    while True:
        while at == end:
            if depth == 0:
                return OK, at, message, 0, end, odd
            depth -= 1
            end, message = ends[depth], types[depth]
        here = at
        if data[at] < 0x80:
            tag, at = np.uint64(data[at]), at + 1
        else:
            tag, at, code = checked_varint(data, at, end)
            if code != OK:
                break
        field, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if field == 0 or tag > np.uint64(0xFFFFFFFF):
            code = BAD_TAG
            break
        if wire_type in (3, 4, 6, 7):
            code = BAD_GROUP
            break
        kind = np.uint8(0)
        if field < _FIELDS:
            kind = tables.kind[message, field]
            if kind != 0:
                if _WIRE_TYPE[kind] != wire_type:
                    code = WRONG_TYPE
                    break
                mark = tables.once[message, field]
                odd |= seen[depth] & mark != 0
                seen[depth] |= mark
        if kind != MESSAGE:
            at, code, strange = check_value(data, at, end, kind, wire_type)
            odd |= strange
            if code != OK:
                break
            continue
        size, at, code = checked_varint(data, at, end)
        if code == OK and size > np.uint64(end - at):
            code = TOO_LONG
        if code == OK and depth == MAX_DEPTH:
            code = TOO_DEEP
        if code != OK:
            break
        message = np.int64(tables.child[message, field])
        counts[message] += 1
        depth += 1
        end = at + np.int64(size)
        starts[depth], ends[depth], types[depth], seen[depth] = at, end, message, 0
    return code, here, message, starts[depth], end, odd


def check(data: Any, tables: Grammar, counts: Any) -> Verdict:
    """Whether these bytes are a message of this grammar. `counts` (int64 per message type) grows by what it holds."""
    return Verdict(*_check(data, tables, counts))


def explain(data: Any, messages: Mapping[str, Mapping[int, Field]], verdict: Verdict) -> str:
    """What is wrong and where, for a verdict that is not OK."""
    name, known = list(messages.items())[verdict.message]
    where = f"byte {verdict.at}: {name}"
    if verdict.code == WRONG_TYPE:
        tag, _ = read_varint(data, verdict.at)
        number, wire_type = divmod(int(tag), 8)
        field = known[number]
        return f"{where}.{field.name} has wire type {wire_type}, not {_WIRE_TYPE[field.kind]}"
    return f"{where} {_TROUBLES[verdict.code]}"
