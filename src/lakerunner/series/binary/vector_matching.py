"""Match the series of two vectors, and determine the labels of their results.

Comes in: two vectors and how they are matched. Goes out: pairs of rows. What always holds: the pairs stand in the order
of the many side's rows; at any step a match group has at most one series of the one side, otherwise the query fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, is_plain_label, labels_of, value_of, without_name
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.expression import Matching
from lakerunner.series.grouping import counts, group_series
from lakerunner.series.values import Vector

T = TypeVar("T", bound=np.generic)

NONE = -1  # the row of a side that a fill value replaces


@dataclass(frozen=True)
class Sides:
    """Two vectors and the match group of each row; `labels` are those of the groups."""

    many: Vector
    one: Vector
    many_groups: Ints
    one_groups: Ints
    labels: Sequence[Labels]

    def __len__(self) -> int:
        return len(self.labels)

    def one_there(self) -> Bools:
        """Return where the one side has a series, [groups, steps]."""
        return self.any_of(self.one.present, self.one_groups)

    def any_of(self, present: Bools, groups: Ints) -> Bools:
        found: Bools = counts(present, groups, len(self)) > 0
        return found


@dataclass(frozen=True)
class Pairs:
    """Rows that match, NONE for a filled side, the group in which they match, and the steps at which both are
    present."""

    many: Ints
    one: Ints
    groups: Ints
    present: Bools

    def __len__(self) -> int:
        return len(self.many)


def sides(many: Vector, one: Vector, matching: Matching) -> Sides:
    many_groups = group_series(many.labels, matching.labels, not matching.on)
    one_groups = group_series(one.labels, matching.labels, not matching.on)
    numbers = {labels: number for number, labels in enumerate(many_groups.labels)}
    place = np.array([numbers.setdefault(labels, len(numbers)) for labels in one_groups.labels], np.int64)
    of_one = place[one_groups.indexes] if len(place) else np.zeros(0, np.int64)
    return Sides(many, one, many_groups.indexes, of_one, list(numbers))


def check_one_side(both: Sides, matching: Matching, earlier: Callable[[int], object]) -> None:
    """Refuse a group that has two series of the one side at a step (at which the operator has anything to do).
    `earlier` is called with the first bad step, to raise what is wrong at the steps before it: the earliest step's
    error is the one reported."""
    several = np.bincount(both.one_groups, minlength=len(both)) > 1
    rows = np.flatnonzero(several[both.one_groups]) if len(both) else np.zeros(0, np.int64)
    if not len(rows):
        return
    any_many = both.many.present.any(axis=0)
    filled = matching.fill_left is not None or matching.fill_right is not None
    twice = counts(both.one.present[rows], both.one_groups[rows], len(both)) > 1
    bad = twice.any(axis=0) & (any_many | filled)
    if bad.any():
        first = int(np.argmax(bad))
        if first:
            earlier(first)
        _refuse_duplicates(both, matching, rows[both.one.present[rows, first]])


def _refuse_duplicates(both: Sides, matching: Matching, rows: Ints) -> None:
    before: dict[int, int] = {}
    for row in rows.tolist():
        group = int(both.one_groups[row])
        if group in before:
            names = sorted(_text(both.one.labels[one]) for one in (row, before[group]))
            side = "left" if matching.card == "one-to-many" else "right"
            raise UserError(
                f"found duplicate series for the match group {_text(both.labels[group])} on the {side} hand-side of "
                f"the operation: [{names[0]}, {names[1]}];many-to-many matching not allowed: matching labels must be "
                "unique on one side"
            )
        before[group] = row


def match_pairs(both: Sides) -> Pairs:
    """Return all pairs of rows of one group that are present at the same step."""
    rows_in = np.bincount(both.one_groups, minlength=len(both))
    single = np.full(len(both), NONE, np.int64)
    single[both.one_groups] = np.arange(len(both.one_groups))
    partner = single[both.many_groups] if len(both) else np.zeros(0, np.int64)
    many = np.flatnonzero(partner != NONE)
    one = partner[many]
    several = rows_in[both.many_groups[many]] > 1
    if several.any():
        many, one = _with_several(both, many[~several], one[~several], many[several])
    present = take_rows(both.many.present, many) & take_rows(both.one.present, one)
    return Pairs(many, one, both.many_groups[many], present)


def _with_several(both: Sides, many: Ints, one: Ints, rest: Ints) -> tuple[Ints, Ints]:
    """Match groups whose one side alternates between series: only pairs that are present together count, which are
    few."""
    manys, ones = [many], [one]
    for group in np.unique(both.many_groups[rest]).tolist():
        lefts = rest[both.many_groups[rest] == group]
        rights = np.flatnonzero(both.one_groups == group)
        at_once = both.many.present[lefts].astype(np.float32) @ both.one.present[rights].astype(np.float32).T
        met = np.argwhere(at_once > 0)
        manys.append(lefts[met[:, 0]])
        ones.append(rights[met[:, 1]])
    many, one = np.concatenate(manys), np.concatenate(ones)
    order = np.argsort(many, kind="stable")
    return many[order], one[order]


def check_unique(matching: Matching, pairs: Pairs, labels: Sequence[Labels], present: Bools) -> None:
    """Refuse a group that has two results at a step (with the same labels, if one side may have many)."""
    if matching.card == "one-to-one":
        keys = pairs.groups
        message = "many-to-one matching must be explicit (group_left/group_right)"
    else:
        found: dict[tuple[int, Labels], int] = {}
        every = zip(pairs.groups.tolist(), labels, strict=True)
        keys = np.array([found.setdefault(key, len(found)) for key in every], np.int64)
        message = "grouping labels must ensure unique matches"
    several = np.flatnonzero(np.bincount(keys)[keys] > 1) if len(keys) else keys
    if len(several) and (counts(present[several], keys[several], int(keys.max()) + 1) > 1).any():
        raise UserError(f"multiple matches for labels: {message}")


def result_labels(both: Sides, matching: Matching, pairs: Pairs, *, other_metric: bool) -> list[Labels]:
    """Return the labels of each pair's result. `other_metric`: the operator makes another metric, which has no name."""
    groups = pairs.groups.tolist()
    found = []
    named = frozenset(matching.labels)
    for many, one, group in zip(pairs.many.tolist(), pairs.one.tolist(), groups, strict=True):
        labels = both.labels[group] if many == NONE else both.many.labels[many]
        if other_metric:
            labels = without_name(labels)
        if matching.card == "one-to-one" and (named or matching.on):
            labels = tuple([pair for pair in labels if (pair[0] in named) == matching.on])
        if matching.include:
            giver = both.labels[group] if one == NONE else both.one.labels[one]
            labels = labels_of({**dict(labels), **{name: value_of(giver, name) for name in matching.include}})
        found.append(tuple([pair for pair in labels if pair[1]]))  # a parser may have made empty ones
    return found


def take_rows(array: npt.NDArray[T], rows: Ints) -> npt.NDArray[T]:
    """Return these rows, without a copy if they are all of them."""
    if len(rows) == len(array) and (rows == np.arange(len(array))).all():
        return array
    return array[rows]


def _text(labels: Labels) -> str:
    """Write labels for an error. The name is a label like any other."""

    def quoted(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    inside = [f"{name if is_plain_label(name) else quoted(name)}={quoted(value)}" for name, value in labels]
    return "{" + ", ".join(inside) + "}"
