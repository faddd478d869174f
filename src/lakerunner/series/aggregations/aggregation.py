"""What an aggregation is, and what all of them need of a vector: its groups, its floats apart from its histograms,
which names go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lakerunner.series.aggregations.split import Split
from lakerunner.series.arrays import Bools, Floats, filled
from lakerunner.series.expression import Aggregate, Kind, bare
from lakerunner.series.group_kernels import counts
from lakerunner.series.grouping import Groups, grouped
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Scalar, String, Vector

Parameter = Scalar | String | None


@dataclass(frozen=True)
class Aggregation:
    """`name` is the language's keyword. `split` is None where nothing but all series at once will do. `parameter`: the
    kind of its parameter, None if it has none."""

    name: str
    evaluate: Callable[[Aggregate, Vector, Parameter, Notes], Vector]
    split: Split | None = None
    parameter: Literal[Kind.SCALAR, Kind.STRING] | None = None


def groups_of(node: Aggregate, vector: Vector) -> Groups:
    return grouped(vector.labels, node.grouping, node.without)


def histograms_in(vector: Vector) -> Bools | None:
    """Where samples are histograms; None: nowhere."""
    if vector.histograms is None:
        return None
    found: Bools = vector.present & filled(vector.histograms)
    return found if found.any() else None


def floats_alone(node: Aggregate, vector: Vector, notes: Notes) -> Bools:
    """Where samples are floats, for aggregations that pass over histograms, and say so."""
    histograms = histograms_in(vector)
    if histograms is None:
        return vector.present
    notes.report(Misfit.HISTOGRAMS_IGNORED, bare(node.inner).span, op=node.op)
    return vector.present & ~histograms


def dropping(vector: Vector, counted: Bools, groups: Groups) -> Floats | None:
    """At which steps a series of the group counts whose name is to be dropped; None: no series' is."""
    rows = np.flatnonzero(vector.drop_name)
    if not len(rows):
        return None
    there = counted if len(rows) == len(vector) else counted[rows]
    return np.minimum(counts(there, groups.of[rows], len(groups)), 1.0)


def names_dropped(dropped: Floats | None, present: Bools) -> Bools:
    """Whether each group's name goes: when it does at the last step that it is there."""
    if dropped is None:
        return np.zeros(len(present), bool)
    if not present.shape[1]:
        return np.zeros(len(present), bool)
    last = present.shape[1] - 1 - np.argmax(present[:, ::-1], axis=1)
    goes: Bools = dropped[np.arange(len(present)), last] != 0
    return goes
