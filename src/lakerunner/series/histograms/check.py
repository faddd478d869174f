"""Whether a native histogram that comes from outside is one: Corrupt says what is wrong with it.

What holds of a checked histogram: its schema is one of -4 to 8 or that of custom buckets; indexes ascend; custom bounds
ascend, are finite and enough for the buckets; no count is below zero. That the buckets' counts make up the count is not
asked: of float counts it need not hold, and observations of NaN are in no bucket.
"""

from __future__ import annotations

import math

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.series.histograms.arithmetic import reduced
from lakerunner.series.histograms.bucket_bounds import COARSEST_SCHEMA, FINEST_SCHEMA
from lakerunner.series.histograms.histogram import Buckets, Histogram

FINEST_KNOWN_SCHEMA = 52  # those above 8 are not worked with, but can be brought down to it
MOST_BUCKETS = 1 << 20  # more than schema 8 has of either sign between the least and the greatest float
MOST_CUSTOM_VALUES = 1 << 16


def checked(histogram: Histogram) -> Histogram:
    """The histogram, in schema 8 if it came in a finer one."""
    reason = _wrong(histogram)
    if reason:
        raise Corrupt(f"native histogram: {reason}")
    return reduced(histogram, FINEST_SCHEMA) if histogram.schema > FINEST_SCHEMA else histogram


def _wrong(histogram: Histogram) -> str:
    if histogram.count < 0:
        return f"the count is {histogram.count}"
    if histogram.is_custom:
        if histogram.zero_count or histogram.zero_threshold or len(histogram.negative):
            return "custom buckets have no zero bucket and no negative buckets"
        return _wrong_bounds(histogram) or _wrong_side("positive", histogram.positive)
    if not COARSEST_SCHEMA <= histogram.schema <= FINEST_KNOWN_SCHEMA:
        return f"schema {histogram.schema} is unknown"
    if histogram.custom_values:
        return f"schema {histogram.schema} has no custom bounds"
    if not (histogram.zero_count >= 0 or math.isnan(histogram.zero_count)):
        return f"the count of the zero bucket is {histogram.zero_count}"
    if not 0 <= histogram.zero_threshold < math.inf:
        return f"the zero bucket reaches to {histogram.zero_threshold}"
    return _wrong_side("positive", histogram.positive) or _wrong_side("negative", histogram.negative)


def _wrong_side(name: str, buckets: Buckets) -> str:
    if len(buckets.indexes) != len(buckets.counts):
        return f"{len(buckets.indexes)} {name} indexes with {len(buckets.counts)} counts"
    if len(buckets) > MOST_BUCKETS:
        return f"{len(buckets)} {name} buckets: at most {MOST_BUCKETS} are taken"
    if bool((np.diff(buckets.indexes.astype(np.int64)) <= 0).any()):
        return f"the indexes of the {name} buckets do not ascend"
    if bool((buckets.counts < 0).any()):
        return f"the count of a {name} bucket is {buckets.counts.min()}"
    return ""


def _wrong_bounds(histogram: Histogram) -> str:
    bounds, indexes = np.array(histogram.custom_values), histogram.positive.indexes
    if len(bounds) > MOST_CUSTOM_VALUES:
        return f"{len(bounds)} custom bounds: at most {MOST_CUSTOM_VALUES} are taken"
    if bool(np.isnan(bounds).any()) or bool((np.diff(bounds) <= 0).any()) or bool((bounds == np.inf).any()):
        return "custom bounds do not ascend to a finite one"
    if len(indexes) and (indexes.min() < 0 or indexes.max() > len(bounds)):
        return f"{len(bounds)} custom bounds are too few for the buckets"
    return ""
