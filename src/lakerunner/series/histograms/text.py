"""Native histograms as text: for people, for test scripts and for JSON."""

from __future__ import annotations

from functools import lru_cache

from lakerunner.series.histograms.histogram import (
    Bucket,
    Buckets,
    Histogram,
    ResetHint,
    all_buckets,
    negative_buckets,
    positive_buckets,
    zero_bucket,
)
from lakerunner.series.numerals import json_number, number_text

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
