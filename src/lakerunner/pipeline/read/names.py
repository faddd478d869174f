"""Interning in jitted code: equal byte strings of the input get one small number, in the order of first occurrence.

Attributes come in the same order record after record, so the number that followed last time is tried first: most
lookups are one comparison and no hash.

The names are one array, because jitted functions pay for every array they are given: row i + 1 is the name numbered i,
row 0 stands for "no name", and the column `slot` is, independently of the rows, an open-addressing hash table of row
numbers.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import AHEAD, Bytes, Int32s, Names, digest, prefetch, same

# `after` is the row that was looked up after this one. In row 0, `size` is the number of names, and `at` the seed of
# the hash: a sender who could predict it could make all names collide.
_NAME = np.dtype([("at", np.int32), ("size", np.int32), ("after", np.int32), ("slot", np.int32)])


def names_for(most: int) -> Names:
    """Return room for this many different names. Fresh zero pages cost nothing until they are touched."""
    # At least two slots for each name, and a power of two for the mask in `number_of`.
    names = np.zeros(1 << max(4, (2 * most + 1).bit_length()), _NAME)
    names["at"][0] = secrets.randbits(31)
    return names


def slices_of_names(names: Names) -> tuple[Int32s, Int32s]:
    """Return (at, size) of each name by number."""
    known = names[1 : int(names["size"][0]) + 1]
    return np.ascontiguousarray(known["at"]), np.ascontiguousarray(known["size"])


def texts_of(names: Names, data: Bytes) -> list[bytes]:
    """Return the names by number."""
    at, size = slices_of_names(names)
    return [data[start : start + length].tobytes() for start, length in zip(at.tolist(), size.tolist(), strict=True)]


@njit(cache=True)
def number_all(data: Any, at: Any, size: Any, names: Any) -> Any:
    """Return the numbers of many names; -1 where at < 0. Each is looked up as the first name (-1 before it), so that a
    name equal to the last one is found by the first comparison."""
    numbers = np.empty(len(at), np.int32)
    for row in range(len(at)):
        prefetch(data, np.int64(at[min(row + AHEAD, len(at) - 1)]))
        numbers[row] = -1
        if at[row] >= 0:
            numbers[row] = number_of(data, np.int64(at[row]), np.int64(size[row]), names, np.int64(-1))
    return numbers


@njit(cache=True)
def number_of(data: Any, at: Any, size: Any, names: Any, before: Any) -> Any:
    """Return the number of this name; `before` is the number that was looked up before it, or -1."""
    guess = np.int64(names[before + 1].after)
    if guess > 0 and names[guess].size == size and same(data, at, np.int64(names[guess].at), size):
        return guess - 1
    mask = np.int64(len(names) - 1)
    place = np.int64(digest(data, at, size, names[0].at) & np.uint64(mask))
    while True:
        row = np.int64(names[place].slot)
        if row == 0:
            row = np.int64(names[0].size) + 1
            names[0].size = row
            names[place].slot = row
            names[row].at = at
            names[row].size = size
            break
        if names[row].size == size and same(data, at, np.int64(names[row].at), size):
            break
        place = (place + 1) & mask
    names[before + 1].after = row
    return row - 1
