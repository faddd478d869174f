"""Write native histograms as text: for people and for JSON."""

from __future__ import annotations

from functools import lru_cache

from lakerunner.series.histograms.histogram import (
    Bucket,
    Histogram,
    all_buckets,
    negative_buckets,
    positive_buckets,
    zero_bucket,
)
from lakerunner.series.numerals import json_number, number_text


def histogram_text(histogram: Histogram) -> str:
    """Write for people: {count:5, sum:18.4, [-0.001,0.001]:2, (0.5,1]:3}"""
    buckets = list(negative_buckets(histogram))[::-1]
    if not histogram.is_custom:
        buckets.append(zero_bucket(histogram))
    buckets += positive_buckets(histogram)
    texts = [_bucket_text(bucket) for bucket in buckets if bucket.observations != 0]
    inside = [f"count:{number_text(histogram.count)}", f"sum:{number_text(histogram.sum)}", *texts]
    return f"{{{', '.join(inside)}}}"


def _bucket_text(bucket: Bucket) -> str:
    opening, closing = "[" if bucket.lower_inclusive else "(", "]" if bucket.upper_inclusive else ")"
    bounds = f"{number_text(bucket.lower)},{number_text(bucket.upper)}"
    return f"{opening}{bounds}{closing}:{number_text(bucket.observations)}"


def json_buckets(histogram: Histogram) -> list[tuple[int, str, str, str]]:
    """Return the filled buckets, ascending: which bounds are inclusive (0: the upper, 1: the lower, 2: none, 3: both),
    the lower bound, the upper bound, the count."""
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
    """Write a bound, cached since few bounds recur. Zero is not cached: 0 and -0 are the same key."""
    return _cached_bound_text(bound) if bound else json_number(bound)


@lru_cache(maxsize=65536)
def _cached_bound_text(bound: float) -> str:
    return json_number(bound)
