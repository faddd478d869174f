"""count and group: how many samples there are, and that there are any. Floats and histograms count alike.

Split: the counts of the parts add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    dropping,
    groups_of,
    names_dropped,
)
from lakerunner.series.aggregations.split import Split, arrays_of, together
from lakerunner.series.expression import Aggregate
from lakerunner.series.group_kernels import counts
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Vector


def _partial(node: Aggregate, vector: Vector, _notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    count = counts(vector.present, groups.of, len(groups))
    return Partial(groups.labels, arrays_of(count=count, dropped=dropping(vector, vector.present, groups)))


def _finished(node: Aggregate, partial: Partial) -> Vector:
    count = partial.arrays["count"]
    present = count > 0
    values = np.ones(count.shape) if node.op == "group" else count
    return Vector(partial.labels, values, present, drop_name=names_dropped(partial.arrays.get("dropped"), present))


def _evaluate(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    return _finished(node, _partial(node, vector, notes))


def _fold(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = together(partials)
    return _finished(node, Partial(all_.labels, arrays_of(count=all_.sum("count"), dropped=all_.sum("dropped"))))


COUNT = Aggregation("count", _evaluate, Split(_partial, _fold))
GROUP = Aggregation("group", _evaluate, Split(_partial, _fold))
