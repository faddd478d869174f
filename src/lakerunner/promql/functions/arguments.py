"""The arguments of a call, as what the parser has made sure that they are."""

from __future__ import annotations

from collections.abc import Callable

from lakerunner.series.arrays import Bools, Floats, filled
from lakerunner.series.expression import Call, Expression, Kind
from lakerunner.series.function import Called
from lakerunner.series.values import Scalar, String, Vector, Windows

VECTOR, SCALAR, STRING, MATRIX = Kind.VECTOR, Kind.SCALAR, Kind.STRING, Kind.MATRIX


def vector_of(called: Called, number: int = 0) -> Vector:
    value = called.arguments[number]
    if not isinstance(value, Vector):
        raise TypeError(f"argument {number} of {called.call.function} is a {type(value).__name__}")
    return value


def scalar_of(called: Called, number: int) -> Floats:
    """[steps]"""
    value = called.arguments[number]
    if not isinstance(value, Scalar):
        raise TypeError(f"argument {number} of {called.call.function} is a {type(value).__name__}")
    return value.values


def string_of(called: Called, number: int) -> str:
    value = called.arguments[number]
    if not isinstance(value, String):
        raise TypeError(f"argument {number} of {called.call.function} is a {type(value).__name__}")
    return value.value


def windows_of(called: Called, number: int = 0) -> Windows:
    value = called.arguments[number]
    if not isinstance(value, Windows):
        raise TypeError(f"argument {number} of {called.call.function} is a {type(value).__name__}")
    return value


def never_steady(_call: Call, _steady: Callable[[Expression], bool]) -> bool:
    """For a function whose value depends on the step, however fixed its arguments are."""
    return False


def float_samples(vector: Vector) -> Bools:
    """Where a sample is present that is a number, not a histogram."""
    if vector.histograms is None:
        return vector.present
    return vector.present & ~filled(vector.histograms)
