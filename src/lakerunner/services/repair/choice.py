"""Which rows of the raw objects are those that a lost segment had.

Comes in: the rows that raw objects give in the segment's time, as digests, how many live segments hold of each, and how
many rows were lost. Goes out: a mark for each row. What always holds: no more rows are chosen than were lost, and none
that live segments hold, unless exactly as many as were lost come of it.

Rows that no live segment holds were lost: mostly that is all. Rows that came twice need more thought, as one may have
been lost while the other is there. A raw object gives all its rows of an hour to one segment, so where one of them was
lost, all were. The number of rows, which the index knows, decides what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.services.checks.row_digest import Digests
from lakerunner.services.repair.held import Counts

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Of each row: its digest, how many of it live segments hold, how many those hold that came in with what was lost
    and were not merged, and the number of its raw object. `merged`: what was lost had been merged, so it had each row
    once."""

    digests: Digests
    held: Counts
    beside: Counts
    objects: npt.NDArray[np.int64]
    merged: bool


def choose(rows: Rows, lost: int) -> Marks:
    """Mark the rows that the lost segment had; `lost` is how many it had."""
    missing = _missing(rows)
    for marks in (missing, *_others(rows)):
        if marks.sum() == lost:
            return marks
    return missing & (np.cumsum(missing) <= lost)


def _missing(rows: Rows) -> Marks:
    """Those that no live segment holds."""
    return _once(rows, rows.held == 0)


def _others(rows: Rows) -> Iterator[Marks]:
    if not rows.merged:
        rank = _rank(rows.digests)
        yield rank >= rows.beside  # all of the commit, but for what its other segments have
        yield rank >= rows.held
    of_lost = np.isin(rows.objects, np.unique(rows.objects[rows.held == 0]))
    yield _once(rows, of_lost)


def _once(rows: Rows, marks: Marks) -> Marks:
    """Of these rows, each once where what was lost had been merged."""
    if not rows.merged:
        return marks
    once = np.zeros_like(marks)
    places = np.flatnonzero(marks)
    once[places[np.unique(rows.digests[places], return_index=True)[1]]] = True
    return once


def _rank(digests: Digests) -> Counts:
    """Of each row, how many equal ones come before it."""
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else order
    ranks = np.empty(len(digests), np.int64)
    sizes = np.diff(np.append(starts, len(ordered)))
    ranks[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return ranks
