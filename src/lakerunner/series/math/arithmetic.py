"""The numbers that operators and functions make of numbers, elementwise over arrays of float64 that broadcast.

What always holds: the bits are those of Go's math library. A kernel is compiled when it is first used, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np

from lakerunner.series.arrays import Floats
from lakerunner.series.math import circular, exponential, hyperbolic

_vectorize: Any = numba.vectorize  # of which mypy knows nothing


def _over_arrays(kernel: Any) -> Any:
    """Under a name of its own: numba keeps what it compiled by name, and would take the kernel of one number for
    this."""
    function = kernel.py_func
    named = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_over_arrays")
    named.__qualname__, named.__module__ = named.__name__, function.__module__
    return _vectorize(cache=True, nopython=True)(named)


def _one(kernel: Any) -> Callable[[Floats], Floats]:
    compiled = _over_arrays(kernel)

    def over(values: Floats) -> Floats:
        with np.errstate(all="ignore"):
            found: Floats = compiled(values)
        return found

    return over


def _two(kernel: Any) -> Callable[[Floats, Floats], Floats]:
    compiled = _over_arrays(kernel)

    def over(left: Floats, right: Floats) -> Floats:
        with np.errstate(all="ignore"):
            found: Floats = compiled(left, right)
        return found

    return over


exp, log = _one(exponential.exp), _one(exponential.log)
log2, log10 = _one(exponential.log2), _one(exponential.log10)
sin, cos, tan = _one(circular.sin), _one(circular.cos), _one(circular.tan)
asin, acos, atan = _one(circular.asin), _one(circular.acos), _one(circular.atan)
sinh, cosh, tanh = _one(hyperbolic.sinh), _one(hyperbolic.cosh), _one(hyperbolic.tanh)
asinh, acosh, atanh = _one(hyperbolic.asinh), _one(hyperbolic.acosh), _one(hyperbolic.atanh)
power, atan2 = _two(exponential.power), _two(circular.atan2)


def modulo(dividend: Floats, divisor: Floats) -> Floats:
    """The remainder, with the sign of the dividend: exact."""
    with np.errstate(all="ignore"):
        remainder: Floats = np.fmod(dividend, divisor)
    return remainder


def maximum(one: Floats, other: Floats) -> Floats:
    """NaN where one of them is, unless the other is +Inf; 0 is greater than -0."""
    with np.errstate(all="ignore"):
        greater = np.where((one == 0) & (other == 0), one + other, np.maximum(one, other))
    found: Floats = np.where(np.isposinf(one) | np.isposinf(other), np.inf, greater)
    return found


def minimum(one: Floats, other: Floats) -> Floats:
    """NaN where one of them is, unless the other is -Inf; -0 is less than 0."""
    return -maximum(-one, -other)
