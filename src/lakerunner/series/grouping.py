"""Series that agree in some labels: the groups of an aggregation, the match groups of a binary operator.

Comes in: the labels of series. Goes out: the number of each one's group, and the labels that the group has. What always
holds: groups are numbered in the order of their first series; a name that is only marked to be dropped still counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from lakerunner.model.labels import NAME, NO_LABELS, Labels
from lakerunner.series.arrays import Ints

_KEPT = 2_000_000  # series of all groupings together; a dashboard repeats a few over the same series


@dataclass(frozen=True)
class Groups:
    """`of` has the number of each series' group, `labels` the labels of each group."""

    of: Ints
    labels: Sequence[Labels]

    def __len__(self) -> int:
        return len(self.labels)


class _Remembered:
    """The groupings of late. Series are known again by identity: sequences of labels are not written to, and those of a
    selector are the same object from query to query. An entry holds them, so that no other gets their identity."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: OrderedDict[tuple[int, tuple[str, ...], bool], tuple[Sequence[Labels], Groups]] = OrderedDict()
        self._size = 0

    def groups(self, labels: Sequence[Labels], names: tuple[str, ...], without: bool) -> Groups:
        key = (id(labels), names, without)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[1]
        groups = _grouped(labels, frozenset(names), without)
        with self._lock:
            if key not in self._entries:
                self._entries[key] = (labels, groups)
                self._size += 1 + len(labels)
            while self._size > _KEPT:
                self._size -= 1 + len(self._entries.popitem(last=False)[1][0])
        return groups


_REMEMBERED = _Remembered()


def grouped(labels: Sequence[Labels], names: tuple[str, ...], without: bool) -> Groups:
    """By these labels, or by all but these and the metric's name."""
    if not names and not without:
        return Groups(np.zeros(len(labels), np.int64), [NO_LABELS] if labels else [])
    return _REMEMBERED.groups(labels, names, without)


def _grouped(labels: Sequence[Labels], names: frozenset[str], without: bool) -> Groups:
    if len(names) == 1 and not without:
        return _by_one(labels, *names)
    found: dict[Labels, int] = {}
    gone = names | {NAME}
    if without:
        own = (tuple([pair for pair in one if pair[0] not in gone]) for one in labels)
    else:
        own = (tuple([pair for pair in one if pair[0] in names]) for one in labels)
    of = [found.setdefault(one, len(found)) for one in own]
    return Groups(np.array(of, np.int64), list(found))


def _by_one(labels: Sequence[Labels], name: str) -> Groups:
    """By one label, the usual case, in half the time or less: no tuple is made for each series."""
    found: dict[tuple[str, str] | None, int] = {}
    of = []
    for one in labels:
        for pair in one:
            if pair[0] == name:
                of.append(found.setdefault(pair, len(found)))
                break
        else:
            of.append(found.setdefault(None, len(found)))
    return Groups(np.array(of, np.int64), [(pair,) if pair else NO_LABELS for pair in found])
