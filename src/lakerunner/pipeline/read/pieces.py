"""A request that is too large to be read at once, cut into requests that are not.

Comes in: the bytes of an OTLP request of any signal that passed the wire check. Goes out: requests of the same records
in the same order, one after the other, each plain (read/repair.py) and small enough to be read; each repeats what is
said once for many records, the heads of the resource and scope that its records have. The same bytes are cut in the
same way. Corrupt if a single record, or the heads alone, are more than can be read.

Cuts are between resources if that is enough, inside one between scopes, and inside one of these between records; by
what they take in memory, not by their size alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.read.otlp import MAX_BYTES, MAX_MEMORY, Request, checked
from lakerunner.pipeline.read.repair import repaired, with_one_item
from lakerunner.pipeline.read.wire import check, check_message, read_size, skip_field, varint

# Repeated in every piece: they may not take most of it.
_HEADS_SHARE = 4

# The messages around some items, from the outermost on: the tag that each stands under, and its head.
Owners = tuple[tuple[int, bytes], ...]


def pieces(data: Any, request: Request) -> Iterator[Any]:
    """The requests that these bytes are cut into."""
    outermost = next(iter(request.messages))
    for piece in _cut(data, request, outermost, ()):
        if not checked(piece, request)[1]:
            yield piece
            del piece  # before the next is made
            continue
        plain = np.frombuffer(repaired(piece.tobytes(), request.look, request.repair, outermost), np.uint8)
        if checked(plain, request)[0].fits:
            yield plain
        else:  # what is mended may be larger than it was
            yield from _cut(plain, request, outermost, ())


def _cut(data: Any, request: Request, name: str, around: Owners, tag: int = 0) -> Iterator[Any]:
    """The requests of the items of this message, which stands under this tag in those around it."""
    children = _children(request, name)
    owners = (*around, (tag, _fields(data, 0, len(data), children, False).tobytes()))
    heads, _ = checked(_request(owners), request)
    if heads.memory > MAX_MEMORY // _HEADS_SHARE or len(heads.data) > MAX_BYTES // _HEADS_SHARE:
        raise Corrupt(
            f"what a {name} and the messages around it say once for all their items takes {len(heads.data)} bytes and "
            f"{heads.memory >> 20} MB of memory; in a file that must be cut there are at most "
            f"{MAX_BYTES // _HEADS_SHARE >> 20} MB and {MAX_MEMORY // _HEADS_SHARE >> 20} MB: send smaller files"
        )
    room = np.array([MAX_BYTES - len(heads.data), MAX_MEMORY - heads.memory])
    at = 0
    while at < len(data):
        end, start, items = _run(data, at, request.tables, children, request.costs, room)
        if items:
            yield _request(owners, _fields(data, at, end, children, True))
        elif start < end:
            yield from _cut_item(data[start:end], request, children, owners)
        at = end


def _cut_item(field: Any, request: Request, children: Any, owners: Owners) -> Iterator[Any]:
    """The requests of an item that does not fit with its owners."""
    tag = int(field[0])
    name = list(request.messages)[children[tag]]
    start, end = read_size(field, 1)
    if name not in request.repair.items:
        found = request.zeros()
        check(field[start:end], request.tables, int(children[tag]), found)
        memory = 3 * len(field) + int((request.costs @ found).max())
        raise Corrupt(
            f"a {name} of {end - start} bytes with {found[:-1].sum()} parts needs {memory >> 20} MB of memory; there "
            f"are at most {MAX_MEMORY >> 20} MB, for {MAX_BYTES >> 20} MB of input: send smaller ones"
        )
    message = field[start:end]
    if name in request.repair.either:  # before its items go apart
        message = np.frombuffer(with_one_item(message.tobytes(), request.repair, name), np.uint8)
    yield from _cut(message, request, name, owners, tag)


def _children(request: Request, name: str) -> Any:
    """By tag, the number of the message type of an item of this message, or -1."""
    children = np.full(256, -1, np.int64)
    for tag, item in request.repair.items[name].items():
        children[tag] = list(request.messages).index(item)
    return children


def _request(owners: Owners, items: Any = ()) -> Any:
    """The request in which these items have these owners."""
    parts: list[Any] = [np.asarray(items, np.uint8)]
    for tag, head in reversed(owners):
        parts.insert(0, np.frombuffer(head, np.uint8))
        if tag:
            size = sum(len(part) for part in parts)
            parts.insert(0, np.frombuffer(bytes([tag]) + varint(size), np.uint8))
    whole = np.concatenate(parts)
    whole.flags.writeable = False  # as all input is, and jitted code is compiled for it
    return whole


@njit(cache=True)
def _run(data: Any, at: Any, tables: Any, children: Any, costs: Any, room: Any) -> Any:
    """(end, start of the last, how many) of the items from here on that fit into `room`, bytes and memory. Where the
    first alone does not fit, there are none, and these are its own end and start."""
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
        nested, plain = 0, 0
        for index in range(len(counts)):
            nested += costs[0, index] * counts[index]
            plain += costs[1, index] * counts[index]
        if size > room[0] or 3 * size + max(nested, plain) > room[1]:
            return (at, start, items) if items == 0 else (start, start, items)
        items += 1
    return at, at, items


@njit(cache=True)
def _fields(data: Any, at: Any, end: Any, children: Any, items: Any) -> Any:
    """The fields from `at` to `end` that are items, or those that are not."""
    out = np.empty(end - at, np.uint8)
    size = 0
    while at < end:
        start = at
        at = skip_field(data, start)
        if (children[data[start]] >= 0) == items:
            out[size : size + at - start] = data[start:at]
            size += at - start
    return out[:size]
