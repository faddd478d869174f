"""The sketch of numbers, as docs/formats/rollups.md says it: one number after the other, bounds by exact powers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any


def sketch(values: Sequence[float]) -> dict[str, Any]:
    """Of all that are finite, as columns have it."""
    finite = [value for value in values if math.isfinite(value)]
    return {
        "count": len(finite),
        "zero_count": finite.count(0.0),
        "positive": side([value for value in finite if value > 0]),
        "negative": side([value for value in finite if value < 0]),
    }


@cache
def bucket(value: float) -> int:
    """The bucket of scale 6: exact, by 64th powers."""
    exact = Fraction(abs(value))
    index = math.ceil(math.log2(abs(value)) * 64) - 1
    while exact**64 <= Fraction(2) ** index:
        index -= 1
    while exact**64 > Fraction(2) ** (index + 1):
        index += 1
    return index


def side(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    found = Counter(bucket(value) for value in values)
    low = min(found)
    counts = [found[index] for index in range(low, max(found) + 1)]
    return {"offset": low, "counts": counts, "float_counts": None}
