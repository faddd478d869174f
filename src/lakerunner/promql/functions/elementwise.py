"""Functions that make another number of each number. A sample that is a histogram has no place in what they give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakerunner.promql.functions.arguments import VECTOR, float_samples, vector_of
from lakerunner.series.arrays import Floats
from lakerunner.series.function import Called, Function
from lakerunner.series.values import Vector


def elementwise(name: str, change: Callable[[Floats], Floats]) -> Function:
    """`change` is told nothing of what is not present: whatever it makes of those places is not looked at."""

    def evaluate(called: Called) -> Vector:
        return changed(vector_of(called), change)

    return Function(name, (VECTOR,), VECTOR, evaluate)


def changed(vector: Vector, change: Callable[[Floats], Floats]) -> Vector:
    with np.errstate(all="ignore"):
        values = change(vector.values)
    return Vector(vector.labels, values, float_samples(vector), drop_name=vector.drop_name)
