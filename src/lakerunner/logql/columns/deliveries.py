"""Deliveries in several segments: whether a row may be in two of them.

Comes in: for each delivery of a segment the time between which its rows are. What always holds: a delivery that came
twice has equal rows, with equal times, so that it is in both segments at the same time; one that was cut at an hour is
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Deliveries:
    """Deliveries, and the first and last time of their rows' resource in the segment where they are."""

    ids: Any
    first_ns: Any
    last_ns: Any


def overlapping(deliveries: Any, first: Any, last: Any) -> Iterator[tuple[int, int]]:
    """Yield the places of equal deliveries whose times overlap, in pairs."""
    order = np.argsort(deliveries, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(deliveries[order]) != 0)) if len(order) else order
    ends = np.append(starts[1:], len(order))
    many = ends - starts > 1
    for start, end in zip(starts[many].tolist(), ends[many].tolist(), strict=True):
        for one, other in combinations(order[start:end].tolist(), 2):
            if first[one] <= last[other] and first[other] <= last[one]:
                yield one, other
