"""Write numbers as Go does: in JSON, in messages and in test scripts. Does not import numpy, which the command line
must not load."""

from __future__ import annotations

import math
from decimal import Decimal


def json_number(value: float) -> str:
    """Write a number for JSON: without exponent from 1e-6 up to 1e21."""
    text = repr(float(value))
    if "e" not in text and "n" not in text:
        return text.removesuffix(".0")
    if not math.isfinite(value):
        return _special(value)
    return _without_exponent(value) if 1e-6 <= abs(value) < 1e21 else _with_exponent(value)


def scalar_text(value: float) -> str:
    """Write a number without exponent, however long that gets."""
    return _without_exponent(value) if math.isfinite(value) else _special(value)


def number_text(value: float) -> str:
    """Write the shortest text that reads back as this number: without exponent from 1e-4 up to 1e6."""
    text = repr(float(value))
    if "e" not in text and "n" not in text and abs(value) < 1e6:
        return text.removesuffix(".0")
    return _with_exponent(value) if math.isfinite(value) else _special(value)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _without_exponent(value: float) -> str:
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_exponent(value: float) -> str:
    number = Decimal(repr(float(value)))
    digits = "".join(str(digit) for digit in number.as_tuple().digits).rstrip("0")
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    exponent = number.adjusted()
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
