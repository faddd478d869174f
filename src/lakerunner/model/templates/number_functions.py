"""Functions of templates on numbers: integers of 64 bits, doubles, and decimal arithmetic on doubles.

A text is taken for the number that it holds, anything else that is no number for 0, as in Go's packages sprig and cast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from lakerunner.model.templates.go_values import INTEGERS, Int64, wrap_int64
from lakerunner.model.templates.literals import parse_double, parse_int64
from lakerunner.model.templates.signatures import ANY, FLOAT, INT, TemplateFunction

_INT_LIMIT = 1 << 63
_DECIMAL = re.compile(r"([-+]?[0-9]*)[.][0-9]*")
_DIVISION_DIGITS = 16  # decimal places of a quotient


def to_integer(value: Any) -> int:
    """Return the value as an integer of 64 bits, 0 if it cannot be one."""
    kind = type(value)
    if kind in INTEGERS or kind is bool:
        return int(value)
    if kind is float:
        # Out of range is what the processor answers: the lowest integer.
        is_fit = math.isfinite(value) and -_INT_LIMIT <= value < _INT_LIMIT
        return int(value) if is_fit else -_INT_LIMIT
    if kind is str:
        return parse_int64(_without_decimals(value)) or 0
    return 0


def _without_decimals(text: str) -> str:
    """Return "3" for "3.14"; other texts stay as they are."""
    found = _DECIMAL.fullmatch(text)
    if not found:
        return text
    return found[1] + "0" if found[1] in ("", "-", "+") else found[1]


def to_double(value: Any) -> float:
    """Return the value as a double, 0 if it cannot be one."""
    kind = type(value)
    if kind is float:
        return float(value)
    if kind in INTEGERS or kind is bool:
        return float(value)
    return (parse_double(value) or 0.0) if kind is str else 0.0


# ---- integers


def _add(*values: Any) -> Int64:
    return wrap_int64(sum(map(to_integer, values)))


def _subtract(first: Any, second: Any) -> Int64:
    return wrap_int64(to_integer(first) - to_integer(second))


def _multiply(first: Any, *others: Any) -> Int64:
    product = to_integer(first)
    for other in others:
        product = wrap_int64(product * to_integer(other))
    return wrap_int64(product)


def _divide(first: Any, second: Any) -> Int64:
    """Divide and drop the fraction, towards zero."""
    dividend, divisor = to_integer(first), to_integer(second)
    if not divisor:
        raise ValueError("runtime error: integer divide by zero")
    size = abs(dividend) // abs(divisor)
    return wrap_int64(size if (dividend < 0) == (divisor < 0) else -size)


def _remainder(first: Any, second: Any) -> Int64:
    """Return the rest of the division, which has the sign of the dividend."""
    dividend, divisor = to_integer(first), to_integer(second)
    if not divisor:
        raise ValueError("runtime error: integer divide by zero")
    rest = abs(dividend) % abs(divisor)
    return Int64(-rest if dividend < 0 else rest)


# ---- doubles


def _decimal(value: Any) -> Fraction:
    """Return the shortest decimal of a double, exactly."""
    double = to_double(value)
    if not math.isfinite(double):
        shown = "NaN" if double != double else "+Inf" if double > 0 else "-Inf"
        raise ValueError(f"Cannot create a Decimal from {shown}")
    return Fraction(Decimal(repr(double)))


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _fold(combine: Callable[[Fraction, Fraction], Fraction], first: Any, others: tuple[Any, ...]) -> float:
    total = _decimal(first)
    for other in others:
        total = combine(total, _decimal(other))
    return _double(total)


def _quotient(dividend: Fraction, divisor: Fraction) -> Fraction:
    """Divide to 16 decimal places, halves away from zero."""
    if not divisor:
        raise ValueError("decimal division by 0")
    scaled = dividend / divisor * 10**_DIVISION_DIGITS
    size = math.floor(abs(scaled) + Fraction(1, 2))
    return Fraction(size if scaled >= 0 else -size, 10**_DIVISION_DIGITS)


def _extreme(choose: Callable[..., float], first: Any, others: tuple[Any, ...]) -> float:
    values = [to_double(value) for value in (first, *others)]
    infinite = choose(-math.inf, math.inf)
    if infinite in values and len(values) > 1:
        return infinite
    return math.nan if any(value != value for value in values) else choose(values)


def _round(value: Any, places: int, *limits: float) -> float:
    """Round to decimal places; a fraction of at least the limit, 0.5 unless it is given, is rounded up."""
    limit = limits[0] if limits else 0.5
    try:
        power = math.pow(10, places)
    except OverflowError:
        power = math.inf
    scaled = power * to_double(value)
    if math.isfinite(scaled):
        up = math.modf(scaled)[0] >= limit
        scaled = float(math.ceil(scaled) if up else math.floor(scaled))
    if not power:
        return math.nan if not scaled or scaled != scaled else math.copysign(math.inf, scaled)
    return scaled / power


def _whole(step: Callable[[float], int], value: Any) -> float:
    double = to_double(value)
    return math.copysign(float(step(double)), double) if math.isfinite(double) else double


NUMBER_FUNCTIONS: dict[str, TemplateFunction] = {
    "int": TemplateFunction(to_integer, (ANY,)),
    "float64": TemplateFunction(to_double, (ANY,)),
    "add": TemplateFunction(_add, (), ANY),
    "sub": TemplateFunction(_subtract, (ANY, ANY)),
    "mul": TemplateFunction(_multiply, (ANY,), ANY),
    "div": TemplateFunction(_divide, (ANY, ANY)),
    "mod": TemplateFunction(_remainder, (ANY, ANY)),
    "max": TemplateFunction(lambda *values: Int64(max(map(to_integer, values))), (ANY,), ANY),
    "min": TemplateFunction(lambda *values: Int64(min(map(to_integer, values))), (ANY,), ANY),
    "addf": TemplateFunction(lambda *values: _fold(Fraction.__add__, 0.0, values), (), ANY),
    "subf": TemplateFunction(lambda first, *rest: _fold(Fraction.__sub__, first, rest), (ANY,), ANY),
    "mulf": TemplateFunction(lambda first, *rest: _fold(Fraction.__mul__, first, rest), (ANY,), ANY),
    "divf": TemplateFunction(lambda first, *rest: _fold(_quotient, first, rest), (ANY,), ANY),
    "maxf": TemplateFunction(lambda first, *rest: _extreme(max, first, rest), (ANY,), ANY),
    "minf": TemplateFunction(lambda first, *rest: _extreme(min, first, rest), (ANY,), ANY),
    "ceil": TemplateFunction(lambda value: _whole(math.ceil, value), (ANY,)),
    "floor": TemplateFunction(lambda value: _whole(math.floor, value), (ANY,)),
    "round": TemplateFunction(_round, (ANY, INT), FLOAT),
}
