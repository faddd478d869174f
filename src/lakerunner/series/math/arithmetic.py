"""Elementwise functions over float64 arrays that broadcast.

What always holds: the bits equal those of Go's math library. A kernel is compiled on first use, and cached on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from lakerunner.kernel_cache import vectorize
from lakerunner.series.arrays import Floats
from lakerunner.series.math import circular, exponential


def _over_arrays(kernel: Any) -> Any:
    """Vectorize a scalar kernel under a name of its own: numba's cache is keyed by name, and would take the scalar
    kernel for this one."""
    function = kernel.py_func
    named = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_over_arrays")
    named.__qualname__, named.__module__ = named.__name__, function.__module__
    return vectorize(named)


def _unary(kernel: Any) -> Callable[[Floats], Floats]:
    compiled = _over_arrays(kernel)

    def over(values: Floats) -> Floats:
        with np.errstate(all="ignore"):
            found: Floats = compiled(values)
        return found

    return over


def _binary(kernel: Any) -> Callable[[Floats, Floats], Floats]:
    compiled = _over_arrays(kernel)

    def over(left: Floats, right: Floats) -> Floats:
        with np.errstate(all="ignore"):
            found: Floats = compiled(left, right)
        return found

    return over


exp, log = _unary(exponential.exp), _unary(exponential.log)
log2, log10 = _unary(exponential.log2), _unary(exponential.log10)
sin, cos, tan = _unary(circular.sin), _unary(circular.cos), _unary(circular.tan)
asin, acos, atan = _unary(circular.asin), _unary(circular.acos), _unary(circular.atan)
sinh, cosh, tanh = _unary(exponential.sinh), _unary(exponential.cosh), _unary(exponential.tanh)
asinh, acosh, atanh = _unary(exponential.asinh), _unary(exponential.acosh), _unary(exponential.atanh)
power, atan2 = _binary(exponential.power), _binary(circular.atan2)


def modulo(dividend: Floats, divisor: Floats) -> Floats:
    """Return the exact remainder, with the sign of the dividend."""
    with np.errstate(all="ignore"):
        remainder: Floats = np.fmod(dividend, divisor)
    return remainder


def maximum(one: Floats, other: Floats) -> Floats:
    """Return the greater; NaN if either is NaN, unless the other is +Inf. 0 is greater than -0."""
    with np.errstate(all="ignore"):
        greater = np.where((one == 0) & (other == 0), one + other, np.maximum(one, other))
    found: Floats = np.where(np.isposinf(one) | np.isposinf(other), np.inf, greater)
    return found


def minimum(one: Floats, other: Floats) -> Floats:
    """Return the lesser; NaN if either is NaN, unless the other is -Inf. -0 is less than 0."""
    return -maximum(-one, -other)
