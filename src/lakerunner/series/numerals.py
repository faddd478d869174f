"""Numbers as text, as Go writes them: in JSON, in messages and in test scripts. Without numpy: the command line needs
it as well."""

from __future__ import annotations

import math
from decimal import Decimal


def json_number(value: float) -> str:
    """Without exponent from a millionth to 10^21."""
    text = repr(float(value))
    if "e" not in text and "n" not in text:
        return text.removesuffix(".0")
    if not math.isfinite(value):
        return _special(value)
    return _without_exponent(value) if 1e-6 <= abs(value) < 1e21 else _with_exponent(value)


def scalar_text(value: float) -> str:
    """Without exponent, however long that is: for a number that is the whole answer."""
    return _without_exponent(value) if math.isfinite(value) else _special(value)


def number_text(value: float) -> str:
    """The shortest that is this number; without exponent from a ten thousandth to a million."""
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
