"""Native histograms as text: for people, for test scripts and for JSON, each as Prometheus writes it."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache

from lakerunner.plan.vectors.histogram import (
    Bucket,
    Buckets,
    Histogram,
    ResetHint,
    all_buckets,
    negative_buckets,
    positive_buckets,
    zero_bucket,
)

_HINTS = {ResetHint.RESET: "reset", ResetHint.NOT_RESET: "not_reset", ResetHint.GAUGE: "gauge"}


def histogram_text(histogram: Histogram) -> str:
    """{count:5, sum:18.4, [-0.001,0.001]:2, (0.5,1]:3}"""
    buckets = list(negative_buckets(histogram))[::-1]
    if not histogram.is_custom:
        buckets.append(zero_bucket(histogram))
    buckets += positive_buckets(histogram)
    told = [_bucket_text(bucket) for bucket in buckets if bucket.observations != 0]
    inside = [f"count:{number_text(histogram.count)}", f"sum:{number_text(histogram.sum)}", *told]
    return f"{{{', '.join(inside)}}}"


def _bucket_text(bucket: Bucket) -> str:
    opening, closing = "[" if bucket.lower_inclusive else "(", "]" if bucket.upper_inclusive else ")"
    bounds = f"{number_text(bucket.lower)},{number_text(bucket.upper)}"
    return f"{opening}{bounds}{closing}:{number_text(bucket.observations)}"


def script_text(histogram: Histogram) -> str:
    """{{schema:1 count:5 sum:18.4 offset:-1 buckets:[3 2]}}, as test scripts write it."""
    custom = f"[{' '.join(number_text(value) for value in histogram.custom_values)}]" if histogram.is_custom else ""
    told = [
        f"schema:{histogram.schema}" if histogram.schema else "",
        f"count:{number_text(histogram.count)}" if histogram.count else "",
        f"sum:{number_text(histogram.sum)}" if histogram.sum else "",
        f"z_bucket:{number_text(histogram.zero_count)}" if histogram.zero_count else "",
        f"z_bucket_w:{number_text(histogram.zero_threshold)}" if histogram.zero_threshold else "",
        f"custom_values:{custom}" if histogram.is_custom else "",
        f"counter_reset_hint:{_HINTS[histogram.reset_hint]}" if histogram.reset_hint else "",
        *_side_text("", histogram.positive),
        *_side_text("n_", histogram.negative),
    ]
    return f"{{{{{' '.join(part for part in told if part)}}}}}"


def _side_text(prefix: str, buckets: Buckets) -> list[str]:
    counts = dict(zip(buckets.compacted().indexes.tolist(), buckets.compacted().counts.tolist(), strict=True))
    if not counts:
        return []
    first, last = min(counts), max(counts)
    told = " ".join(number_text(counts.get(index, 0.0)) for index in range(first, last + 1))
    return [f"{prefix}offset:{first}" if first else "", f"{prefix}buckets:[{told}]"]


def json_buckets(histogram: Histogram) -> list[tuple[int, str, str, str]]:
    """The filled buckets, ascending: which ends are inclusive (0: the upper, 1: the lower, 2: none, 3: both), the lower
    end, the upper end, the count."""
    rules = {(False, True): 0, (True, False): 1, (False, False): 2, (True, True): 3}
    return [
        (
            rules[bucket.lower_inclusive, bucket.upper_inclusive],
            _bound_text(bucket.lower),
            _bound_text(bucket.upper),
            json_number(bucket.observations),
        )
        for bucket in all_buckets(histogram)
        if bucket.observations != 0
    ]


def _bound_text(bound: float) -> str:
    """Few bounds come again and again; but zero is not told apart from -0 as a key."""
    return _known_bound_text(bound) if bound else json_number(bound)


@lru_cache(maxsize=65536)
def _known_bound_text(bound: float) -> str:
    return json_number(bound)


def json_number(value: float) -> str:
    """Without exponent from a millionth to 10^21."""
    text = repr(float(value))
    if "e" not in text and "n" not in text:
        return text.removesuffix(".0")
    if not math.isfinite(value):
        return _special(value)
    return _without_exponent(value) if 1e-6 <= abs(value) < 1e21 else _with_exponent(value)


def scalar_text(value: float) -> str:
    """Without exponent, however long that is: so Prometheus writes a number that is the whole answer."""
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
