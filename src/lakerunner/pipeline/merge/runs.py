"""Which rows of a run of equal sort keys come again later in it, where the run is more than memory may hold.

Comes in: what tells rows apart (pipeline/merge/same.py), piece by piece in the run's order. Goes out: for each row
whether it is kept. Digests go to unnamed files, those that can be equal to one; so that memory holds a byte for
each row of the run, and of one file at a time the digests that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

_PAIR = np.dtype([("digest", np.uint64), ("place", np.int64)])
_FILES = 256  # at most, however many rows there are


def kept_of_run(identities: Iterable[tuple[Any, Any]], rows: int, at_once: int) -> Any:
    """Of (digests, has_identity) of a run's rows. It has at most `rows`, of which about `at_once` are looked at
    together."""
    count = min(-(-rows // at_once), _FILES)
    with ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(TemporaryFile()) for _ in range(count)]
        keep = np.ones(_spilled(identities, files), np.bool_)
        for file in files:
            _strike(keep, file, at_once)
    return keep


def _spilled(identities: Iterable[tuple[Any, Any]], files: Sequence[BinaryIO]) -> int:
    """How many rows there are. What has no identity is never the same as another row."""
    rows = 0
    for digests, has_identity in identities:
        pairs = np.empty(len(digests), _PAIR)
        pairs["digest"] = digests
        pairs["place"] = np.arange(rows, rows + len(digests))
        rows += len(digests)
        number = np.where(has_identity, digests % np.uint64(len(files)), len(files))
        for place in np.unique(number[number < len(files)]).tolist():
            files[int(place)].write(pairs[number == place].tobytes())
    return rows


def _strike(keep: Any, file: BinaryIO, at_once: int) -> None:
    """The rows of this file that come again are not kept."""
    file.seek(0)
    last = np.empty(0, _PAIR)  # of each digest so far
    while data := file.read(at_once * _PAIR.itemsize):
        pairs = np.concatenate([last, np.frombuffer(data, _PAIR)])
        order = np.argsort(pairs["digest"], kind="stable")
        digests = pairs["digest"][order]
        again = order[:-1][digests[1:] == digests[:-1]]
        keep[pairs["place"][again]] = False
        last = np.delete(pairs, again)
