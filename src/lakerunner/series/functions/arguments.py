"""Access the arguments of a call by the kinds that the parser has checked, and build functions that map each number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from lakerunner.series.arrays import Bools, Floats, Ints, filled
from lakerunner.series.expression import Call, Expression, Kind, Selector, bare
from lakerunner.series.function import Function, Invocation
from lakerunner.series.values import Samples, Scalar, String, Vector, Windows

T = TypeVar("T", Vector, Scalar, String, Windows)
VECTOR, SCALAR, STRING, MATRIX = Kind.VECTOR, Kind.SCALAR, Kind.STRING, Kind.MATRIX


def vector_of(invocation: Invocation, number: int = 0) -> Vector:
    return _argument(invocation, number, Vector)


def scalar_of(invocation: Invocation, number: int) -> Floats:
    """Return a scalar argument, [steps]."""
    return _argument(invocation, number, Scalar).values


def string_of(invocation: Invocation, number: int) -> str:
    return _argument(invocation, number, String).value


def windows_of(invocation: Invocation, number: int = 0) -> Windows:
    return _argument(invocation, number, Windows)


def _argument(invocation: Invocation, number: int, expected: type[T]) -> T:
    value = invocation.arguments[number]
    if not isinstance(value, expected):
        raise TypeError(f"argument {number} of {invocation.call.function} is a {type(value).__name__}")
    return value


def never_steady(_call: Call, _steady: Callable[[Expression], bool]) -> bool:
    """State that a function's value depends on the step, even if its arguments do not."""
    return False


def float_samples(vector: Vector) -> Bools:
    """Return where a sample is present that is a number, not a histogram."""
    if vector.histograms is None:
        return vector.present
    return vector.present & ~filled(vector.histograms)


def sample_times(invocation: Invocation, of: Expression, times_of: Callable[[Samples], Ints | None]) -> Vector:
    """Return a time, in seconds, of the sample that counts at each step; 0 if samples have no such time."""
    selector = bare(of)
    if not isinstance(selector, Selector):
        raise TypeError(f"{invocation.call.function} of {selector}")
    samples, index = invocation.evaluation.times_of(selector, invocation.steps)
    times = times_of(samples)
    there = index >= 0
    values = np.zeros(index.shape)
    if times is not None:
        values[there] = times[index[there]] / 1000
    return Vector(samples.labels, values, there)


def elementwise(name: str, change: Callable[[Floats], Floats]) -> Function:
    """Build a function that maps each number; samples that are histograms are dropped. `change` also sees the places
    without a sample, and its result there is ignored."""

    def evaluate(invocation: Invocation) -> Vector:
        return map_numbers(vector_of(invocation), change)

    return Function(name, (VECTOR,), VECTOR, evaluate)


def map_numbers(vector: Vector, change: Callable[[Floats], Floats]) -> Vector:
    """Map the numbers of a vector, and drop its histograms."""
    with np.errstate(all="ignore"):
        values = change(vector.values)
    return Vector(vector.labels, values, float_samples(vector), drop_name=vector.drop_name)
