"""Cut a request that is too large to be read at once into smaller ones.

Comes in: the bytes of an OTLP request of any signal that passed the wire check. Goes out: requests with the same
records in the same order, each plain (read/repair.py) and small enough to be read; each repeats the heads of the
resource and scope of its records. The same bytes are always cut in the same way: ids of segments depend on it. Corrupt
if a single record, or the heads alone, exceed the limits.

Cuts are made between resources if that is enough, else between scopes, else between records; by their estimated memory,
not by their size alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.read.memory import Bytes, Int64s
from lakerunner.pipeline.read.otlp import MAX_BYTES, MAX_MEMORY, ODD_SHARE, Request, check_request, mend_file
from lakerunner.pipeline.read.repair import keep_last_item
from lakerunner.pipeline.read.wire import check_message, read_size, skip_field, varint

# Heads are repeated in every piece, so they may take at most this fraction of it.
_HEADS_SHARE = 4

_LENGTH = 10  # bytes of a varint, at most

# The messages around some items, from the outermost on: the tag of each in the one around it, and its head.
Owners = tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class _Room:
    """The size, and the estimated memory, that a piece may take."""

    size: int
    memory: int

    def __str__(self) -> str:
        return f"{self.size >> 20} MB of input and {self.memory >> 20} MB of memory"


def cut_request(data: Bytes, request: Request) -> Iterator[Bytes]:
    """Yield the requests that these bytes are cut into."""
    outermost = next(iter(request.messages))
    room = _Room(MAX_BYTES, MAX_MEMORY)
    if not check_request(data, request).odd:
        yield from _cut(data, request, outermost, room)
        return
    for piece in _cut(data, request, outermost, _Room(MAX_BYTES // ODD_SHARE, MAX_MEMORY // ODD_SHARE)):
        part = check_request(piece, request)
        del piece  # memory: only one form of a piece at a time
        plain = mend_file(part) if part.odd else part
        del part
        if plain.fits:
            yield plain.data
        else:  # mending may have made it larger
            yield from _cut(plain.data, request, outermost, room)
        del plain  # before the next one is cut


def _cut(data: Bytes, request: Request, name: str, room: _Room, around: Owners = (), tag: int = 0) -> Iterator[Bytes]:
    """Yield the requests of the items of this message, which has this tag in the messages around it."""
    children = _children(request, name)
    owners = (*around, (tag, _select_fields(data, 0, len(data), children, False).tobytes()))
    heads = check_request(_wrap(owners), request)
    if heads.memory > room.memory // _HEADS_SHARE or len(heads.data) > room.size // _HEADS_SHARE:
        raise Corrupt(
            f"the fields of a {name}, and of the messages around it, that all its items share "
            f"take {len(heads.data)} bytes and {heads.memory >> 20} MB of memory; in a file that "
            f"must be cut, the limit is a quarter of {room}: send smaller files"
        )
    # The lengths of the messages around grow with their content.
    lengths = _LENGTH * len(owners)
    left = np.array([room.size - len(heads.data) - lengths, room.memory - heads.memory - 3 * lengths])
    at = 0
    while at < len(data):
        end, start, items = _fit_items(data, at, request.tables, children, request.costs, left)
        if items:
            yield _wrap(owners, _select_fields(data, at, end, children, True))
        elif start < end:
            yield from _cut_item(data[start:end], request, children, room, owners)
        at = end


def _cut_item(field: Bytes, request: Request, children: Int64s, room: _Room, owners: Owners) -> Iterator[Bytes]:
    """Yield the requests of an item that does not fit with its owners. A record cannot be cut, so it may use the whole
    limits for itself."""
    tag = int(field[0])
    name = list(request.messages)[children[tag]]
    start, end = read_size(field, 1)
    if name in request.repair.items:
        message = field[start:end]
        if name in request.repair.either:  # before the items are separated: protobuf would merge or drop some
            message = np.frombuffer(keep_last_item(message.tobytes(), request.repair, name), np.uint8)
        yield from _cut(message, request, name, room, owners, tag)
        return
    part = check_request(_wrap(owners, field), request)
    if len(part.data) > MAX_BYTES or part.memory > MAX_MEMORY:
        raise Corrupt(
            f"a {name} of {end - start} bytes needs {part.memory >> 20} MB of memory for "
            f"{part.found[:-1].sum()} parts; the limit is {_Room(MAX_BYTES, MAX_MEMORY)}: send "
            "smaller ones"
        )
    yield part.data


def _children(request: Request, name: str) -> Int64s:
    """Return, by tag, the number of the message type of this message's items, or -1 for other fields."""
    children = np.full(256, -1, np.int64)
    for tag, item in request.repair.items[name].items():
        children[tag] = list(request.messages).index(item)
    return children


def _wrap(owners: Owners, items: Bytes | None = None) -> Bytes:
    """Return the request in which these items have these owners."""
    parts = [np.zeros(0, np.uint8) if items is None else items]
    for tag, head in reversed(owners):
        parts.insert(0, np.frombuffer(head, np.uint8))
        if tag:
            size = sum(len(part) for part in parts)
            parts.insert(0, np.frombuffer(bytes([tag]) + varint(size), np.uint8))
    whole = np.concatenate(parts)
    whole.flags.writeable = False  # like all input: numba would compile again for a writeable array
    return whole


@njit(cache=True)
def _fit_items(data: Any, at: Any, tables: Any, children: Any, costs: Any, room: Any) -> Any:
    """Return (end, start of the last, count) of the items from here on that fit in `room`, (bytes, memory). If the
    first alone does not fit, the count is 0, and end and start are its own."""
    counts = np.zeros(costs.shape[1], np.int64)
    size, items = 0, 0
    while at < len(data):
        start = at
        at = skip_field(data, start)
        child = children[data[start]]
        if child < 0:
            continue
        payload, _ = read_size(data, start + 1)
        check_message(data[payload:at], tables, child, counts)
        counts[child] += 1
        size += at - start
        # The larger of both sums, as CheckedFile.memory has it.
        nested, plain = 0, 0
        for index in range(len(counts)):
            nested += costs[0, index] * counts[index]
            plain += costs[1, index] * counts[index]
        if size > room[0] or 3 * size + max(nested, plain) > room[1]:
            return (at, start, items) if items == 0 else (start, start, items)
        items += 1
    return at, at, items


@njit(cache=True)
def _select_fields(data: Any, at: Any, end: Any, children: Any, items: Any) -> Any:
    """Return the fields from `at` to `end` that are items (`items` is true), or those that are not."""
    out = np.empty(end - at, np.uint8)
    size = 0
    while at < end:
        start = at
        at = skip_field(data, start)
        if (children[data[start]] >= 0) == items:
            out[size : size + at - start] = data[start:at]
            size += at - start
    return out[:size]
