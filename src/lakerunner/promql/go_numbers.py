"""Numbers as Go writes them: what Prometheus prints is compared by the letter."""

from __future__ import annotations

import math
from decimal import Decimal


def plain_number(value: float) -> str:
    """The shortest digits that give this number again, never with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return format(Decimal(repr(value).removesuffix(".0")), "f")


def short_number(value: float) -> str:
    """The same with an exponent from a million on, and below a ten-thousandth."""
    if value == 0 or not math.isfinite(value) or 1e-4 <= abs(value) < 1e6:
        return plain_number(value)
    digits = "".join(map(str, Decimal(repr(value)).normalize().as_tuple().digits))
    return f"{value:.{len(digits) - 1}e}"
