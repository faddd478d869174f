"""Interning in jitted code: equal byte strings of the input get one small number, in the order of first sight.

Attributes come in the same order record after record, so the number that followed last time is tried first; most
lookups are then one comparison and no hash.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lakerunner.pipeline.read.memory import digest, same

# `after` is the number that was asked for after this one, plus one.
_NAME = np.dtype([("at", np.int32), ("size", np.int32), ("after", np.int32)])


class Names(NamedTuple):
    """`list[i]` is the name numbered i - 1 (0 stands for "none before"), `slots` an open-addressing table of numbers
    plus one, `count` the names so far."""

    list: Any
    slots: Any
    count: Any


def names_for(most: int) -> Names:
    """Room for this many different names. Fresh zero pages cost nothing until they are touched."""
    slots = 1 << max(4, (2 * most + 2).bit_length())
    return Names(np.zeros(most + 1, _NAME), np.zeros(slots, np.int32), np.zeros(1, np.int64))


def texts_of(names: Names, data: Any) -> list[bytes]:
    """The names by number."""
    known = names.list[1 : int(names.count[0]) + 1]
    return [
        data[at : at + size].tobytes() for at, size in zip(known["at"].tolist(), known["size"].tolist(), strict=True)
    ]


@njit(cache=True)
def number_all(data: Any, at: Any, size: Any, names: Names) -> Any:
    """The numbers of many names; -1 where at < 0. A name equal to the one before it is found at once."""
    numbers = np.empty(len(at), np.int32)
    for row in range(len(at)):
        numbers[row] = -1 if at[row] < 0 else number_of(data, np.int64(at[row]), np.int64(size[row]), names, -1)
    return numbers


@njit(cache=True)
def number_of(data: Any, at: Any, size: Any, names: Names, before: Any) -> Any:
    """The number of this name; `before` is the number that was asked for before it, or -1."""
    guess = names.list[before + 1].after
    if guess > 0:
        known = names.list[guess]
        if known.size == size and same(data, at, known.at, size):
            return np.int64(guess - 1)
    mask = np.int64(len(names.slots) - 1)
    slot = np.int64(digest(data, at, size) & np.uint64(mask))
    while True:
        found = np.int64(names.slots[slot])
        if found == 0:
            found = names.count[0] + 1
            names.count[0] = found
            names.slots[slot] = found
            names.list[found].at = at
            names.list[found].size = size
            break
        known = names.list[found]
        if known.size == size and same(data, at, known.at, size):
            break
        slot = (slot + 1) & mask
    names.list[before + 1].after = found
    return found - 1
