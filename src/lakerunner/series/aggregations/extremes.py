"""min and max. NaN is passed over where there is anything else; histograms always are.

Split: the extremes of the parts' extremes. (Of 0 and -0, which are equal, either may come out.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.series.aggregations.aggregation import (
    Aggregation,
    Parameter,
    dropping,
    floats_alone,
    groups_of,
    names_dropped,
)
from lakerunner.series.aggregations.split import Split, arrays_of, together
from lakerunner.series.expression import Aggregate
from lakerunner.series.group_kernels import extremes
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Vector


def _partial(node: Aggregate, vector: Vector, notes: Notes) -> Partial:
    groups = groups_of(node, vector)
    floats = floats_alone(node, vector, notes)
    values, present = extremes(vector.values, floats, groups.of, len(groups), largest=node.op == "max")
    dropped = dropping(vector, floats, groups)
    return Partial(groups.labels, arrays_of(values=values, present=present.astype(float), dropped=dropped))


def _finished(partial: Partial) -> Vector:
    present = partial.arrays["present"] != 0
    dropped = names_dropped(partial.arrays.get("dropped"), present)
    return Vector(partial.labels, partial.arrays["values"], present, drop_name=dropped)


def _evaluate(node: Aggregate, vector: Vector, _parameter: Parameter, notes: Notes) -> Vector:
    return _finished(_partial(node, vector, notes))


def _fold(node: Aggregate, partials: Sequence[Partial], _notes: Notes) -> Vector:
    all_ = together(partials)
    values, present = extremes(
        np.concatenate([one.arrays["values"] for one in partials]),
        np.concatenate([one.arrays["present"] for one in partials]) != 0,
        np.concatenate(all_.places),
        len(all_.labels),
        largest=node.op == "max",
    )
    dropped = all_.sum("dropped")
    return _finished(Partial(all_.labels, arrays_of(values=values, present=present.astype(float), dropped=dropped)))


MIN = Aggregation("min", _evaluate, Split(_partial, _fold))
MAX = Aggregation("max", _evaluate, Split(_partial, _fold))
