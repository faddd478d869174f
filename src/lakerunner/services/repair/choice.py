"""Choose which rows of the raw objects a lost segment had.

Comes in: the rows that raw objects give in the segment's time, as digests, how often live segments hold each, and how
many rows were lost. Goes out: a mark for each row. What always holds: no more rows are chosen than were lost, and none
that live segments hold, unless that gives exactly as many rows as were lost.

Usually the lost rows are those that no live segment holds. Rows that were delivered twice need more thought, as one may
have been lost while the other is there. A raw object gives all its rows of an hour to one segment, so if one of them
was lost, all were. The number of rows, which the index knows, decides which choice is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lakerunner.services.checks.row_digest import Digests

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowTable:
    """For each row: its digest, how often live segments hold it, how often unmerged segments of the same commit as the
    lost one hold it, and the number of its raw object. `merged`: the lost segment came from a merge, so it had each row
    once."""

    digests: Digests
    held: RowCounts
    beside: RowCounts
    objects: npt.NDArray[np.int64]
    merged: bool


def choose(rows: RowTable, lost: int) -> Marks:
    """Mark the rows that the lost segment had; `lost` is how many it had."""
    missing = _missing(rows)
    for marks in (missing, *_others(rows)):
        if marks.sum() == lost:
            return marks
    return missing & (np.cumsum(missing) <= lost)


def _missing(rows: RowTable) -> Marks:
    """Mark the rows that no live segment holds."""
    return _once(rows, rows.held == 0)


def _others(rows: RowTable) -> Iterator[Marks]:
    if not rows.merged:
        rank = _rank(rows.digests)
        yield rank >= rows.beside  # all rows of the commit except those that its other segments have
        yield rank >= rows.held
    of_lost = np.isin(rows.objects, np.unique(rows.objects[rows.held == 0]))
    yield _once(rows, of_lost)


def _once(rows: RowTable, marks: Marks) -> Marks:
    """Keep each of these rows once if the lost segment came from a merge."""
    if not rows.merged:
        return marks
    once = np.zeros_like(marks)
    places = np.flatnonzero(marks)
    once[places[np.unique(rows.digests[places], return_index=True)[1]]] = True
    return once


def _rank(digests: Digests) -> RowCounts:
    """Return for each row how many equal ones come before it."""
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else order
    ranks = np.empty(len(digests), np.int64)
    sizes = np.diff(np.append(starts, len(ordered)))
    ranks[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return ranks


RowCounts = npt.NDArray[np.int64]


class HeldRows:
    """The rows that live segments hold, as digests in a sorted file that is mapped into memory, so their number is not
    bounded by memory."""

    def __init__(self, path: Path, digests: Iterable[Digests]) -> None:
        with path.open("wb") as file:
            for some in digests:
                file.write(some.tobytes())
        self._sorted: Digests = np.zeros(0, np.uint64)
        if path.stat().st_size:  # an empty file cannot be mapped
            self._sorted = np.memmap(path, np.uint64, "r+")
            self._sorted.sort()

    def counts(self, digests: Digests) -> RowCounts:
        """Return how many rows of the live segments have each of these digests."""
        ends = (np.searchsorted(self._sorted, digests, side) for side in ("left", "right"))
        first, last = ends
        return (last - first).astype(np.int64)
