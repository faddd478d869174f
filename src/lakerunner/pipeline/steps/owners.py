"""Equal sets of attributes, stored once: a digest for each, and one owner in the place of many equal ones.

Comes in: the attributes of one scope. Goes out: the same for every row, with an owner for each different set in the
order of first sight, and the digest of each owner's set. The digest depends on the set alone, not on the order of its
pairs, and is the same on every worker and in every release (docs/formats/segments.md states it). Owners are
told apart by a second one, with a seed that no sender can foresee: 128 bits together, so that no two different sets
are ever taken for one.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import PADDING, digest, folded, load
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.rows import Attached
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.read.wire import read_varint
from lakerunner.pipeline.steps.json_text import stack
from lakerunner.pipeline.steps.take import take_json

# Stored digests are made of these: they never change.
_KEY_SEED, _VALUE_SEED = np.uint64(0x6B657973), np.uint64(0x76616C75)
_PAIR, _NUMBER = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA24BAED4963EE407)


def share_owners(attached: Attached, data: Any) -> tuple[Attached, Any]:
    """(the attributes with equal sets shared, the digest of each owner)."""
    secret = np.uint64(secrets.randbits(63))
    nested = _nested_digests(attached.values, data, secret)
    at, size = slices_of_names(attached.keys)
    keys = digest_slices(data, at, size, _KEY_SEED)
    first = np.ascontiguousarray(attached.first)
    digests = _digest_owners(data, attached.values, first, keys, nested, secret)
    group, kept = _group(digests)
    values, first = _gather(attached.values, first, kept)
    owner = group if attached.owner is None else group[attached.owner]
    return Attached(values, attached.keys, first, owner), digests[kept, 0]


def _nested_digests(values: Any, data: Any, secret: Any) -> Any:
    """Both digests of each array or kvlist, in their order: of typed JSON, because the wire has many forms of it."""
    nested = values[(values["kind"] == ARRAY) | (values["kind"] == KVLIST)]
    if not len(nested):
        return np.zeros((0, 2), np.uint64)
    kind, at, size = (np.ascontiguousarray(nested[field]) for field in ("kind", "at", "size"))
    offsets, texts, _ = take_json(data, kind, at, size, stack())
    padded = np.concatenate([texts, np.zeros(PADDING, np.uint8)])
    sizes = np.diff(offsets)
    return np.stack([digest_slices(padded, offsets, sizes, seed) for seed in (_VALUE_SEED, secret)], axis=1)


@njit(cache=True)
def digest_slices(data: Any, at: Any, size: Any, seed: Any) -> Any:
    """The digest of each of these slices."""
    out = np.empty(len(size), np.uint64)
    for place in range(len(size)):
        out[place] = digest(data, np.int64(at[place]), np.int64(size[place]), seed)
    return out


@njit(cache=True)
def _digest_owners(data: Any, values: Any, first: Any, keys: Any, nested: Any, secret: Any) -> Any:
    """(public, secret) digest of each owner's set: the sum of its pairs' digests. Of equal keys the second counts as
    another one than the first, because their order has a meaning."""
    count = len(first) - 1
    out = np.zeros((count, 2), np.uint64)
    seen, times = np.full(len(keys), -1, np.int32), np.zeros(len(keys), np.int32)
    place = 0
    for owner in range(count):
        for index in range(first[owner], first[owner + 1]):
            value = values[index]
            key, kind, at = value.key, value.kind, np.int64(value.at)
            times[key] = times[key] + 1 if seen[key] == owner else 0
            seen[key] = owner
            if kind in (STRING, BYTES):
                one = digest(data, at, np.int64(value.size), _VALUE_SEED)
                other = digest(data, at, np.int64(value.size), secret)
            elif kind in (ARRAY, KVLIST):
                one, other = nested[place, 0], nested[place, 1]
                place += 1
            else:
                number = np.uint64(0)
                if kind == DOUBLE:
                    number = load(data, at)
                elif kind in (INT, BOOL):
                    number, _ = read_varint(data, at)
                    if kind == BOOL:
                        number = np.uint64(number != 0)
                one = folded(number ^ _VALUE_SEED, _NUMBER)
                other = folded(number ^ secret, _NUMBER)
            mark = folded(keys[key] ^ np.uint64(kind | times[key] << 3), _PAIR)
            out[owner, 0] += folded(mark ^ one, _PAIR)
            out[owner, 1] += folded(mark ^ other, _PAIR)
    return out


@njit(cache=True)
def _group(digests: Any) -> Any:
    """(the number of each owner's set, the first owner of each set)."""
    count = len(digests)
    size = 16
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1, np.int32)
    group, kept = np.empty(count, np.int32), np.empty(count, np.int32)
    known = 0
    for owner in range(count):
        place = np.int64(digests[owner, 1] & np.uint64(size - 1))
        while True:
            number = table[place]
            if number < 0:
                table[place] = known
                kept[known] = owner
                group[owner] = known
                known += 1
                break
            same = kept[number]
            if digests[same, 1] == digests[owner, 1] and digests[same, 0] == digests[owner, 0]:
                group[owner] = number
                break
            place = (place + 1) & (size - 1)
    return group, kept[:known].copy()


@njit(cache=True)
def _gather(values: Any, first: Any, kept: Any) -> Any:
    """(values, first) of these owners alone."""
    total = 0
    for owner in kept:
        total += first[owner + 1] - first[owner]
    out, starts = np.empty(total, values.dtype), np.empty(len(kept) + 1, np.int32)
    at = 0
    for place in range(len(kept)):
        starts[place] = at
        for index in range(first[kept[place]], first[kept[place] + 1]):
            out[at] = values[index]
            at += 1
    starts[len(kept)] = at
    return out, starts
