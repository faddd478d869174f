"""Parse native histograms as scripts write them: `{{schema:1 count:3 sum:2 offset:-1 buckets:[1 2]}}`, and sequences of
them.

The arithmetic here is simple, for equal layouts (and finer buckets added to coarser ones), and deliberately not the
engine's: expectations must not come from the code they test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint

_HINTS = {
    "unknown": ResetHint.UNKNOWN,
    "reset": ResetHint.RESET,
    "not_reset": ResetHint.NOT_RESET,
    "gauge": ResetHint.GAUGE,
}
_KEYS = {"schema", "count", "sum", "z_bucket", "z_bucket_w", "buckets", "offset"} | {
    "n_buckets", "n_offset", "custom_values", "counter_reset_hint",
}  # fmt: skip
_ENTRY = re.compile(r"\s*([a-z_]+):(?:\[([^\]]*)\]|(\S+))")


def parse_histogram(text: str) -> tuple[Histogram, bool]:
    """Parse what is between the braces; also return whether it names a reset hint."""
    entries: dict[str, str] = {}
    place = 0
    while found := _ENTRY.match(text, place):
        key = found[1].lower()
        if key not in _KEYS or key in entries:
            raise ValueError(f"{key} is unknown or there twice in {{{{{text}}}}}")
        entries[key] = found[3] if found[2] is None else found[2]
        place = found.end()
    if text[place:].strip():
        raise ValueError(f"{text[place:]} means nothing in {{{{{text}}}}}")
    histogram = Histogram(
        schema=int(entries.get("schema", "0")),
        count=_float(entries.get("count", "0")),
        sum=_float(entries.get("sum", "0")),
        zero_threshold=_float(entries.get("z_bucket_w", "0")),
        zero_count=_float(entries.get("z_bucket", "0")),
        positive=_buckets(entries.get("buckets", ""), int(entries.get("offset", "0"))),
        negative=_buckets(entries.get("n_buckets", ""), int(entries.get("n_offset", "0"))),
        custom_values=tuple(_float(one) for one in entries.get("custom_values", "").split()),
        reset_hint=_HINTS[entries.get("counter_reset_hint", "unknown").lower()],
    )
    return histogram, "counter_reset_hint" in entries


def sequence(base: Histogram, step: Histogram | None, sign: str, times: int) -> Iterator[Histogram]:
    """Return `base` and `times` more histograms, each one step further."""
    yield base
    for _ in range(times):
        if step is not None:
            base = _sum(base, step, -1.0 if sign == "-" else 1.0)
        yield base


def _float(text: str) -> float:
    return float(text.replace("_", ""))


def _buckets(text: str, offset: int) -> BucketCounts:
    counts = np.array([_float(one) for one in text.split()], np.float64)
    return BucketCounts(np.arange(offset, offset + len(counts), dtype=np.int32), counts)


def _sum(one: Histogram, other: Histogram, sign: float) -> Histogram:
    if one.schema > other.schema or one.custom_values != other.custom_values:
        raise ValueError(f"histograms of schema {one.schema} and {other.schema} do not go together")
    # A histogram without a zero bucket adopts the other's width.
    threshold = max(one.zero_threshold, other.zero_threshold)
    for each in (one, other):
        if each.zero_threshold != threshold and (each.zero_count or len(each.positive.counts)):
            raise ValueError("zero buckets of different widths do not go together")
    finer = 0 if one.is_custom else other.schema - one.schema
    return Histogram(
        schema=one.schema,
        count=one.count + sign * other.count,
        sum=one.sum + sign * other.sum,
        zero_threshold=threshold,
        zero_count=one.zero_count + sign * other.zero_count,
        positive=_bucket_sum(one.positive, other.positive, sign, finer),
        negative=_bucket_sum(one.negative, other.negative, sign, finer),
        custom_values=one.custom_values,
        reset_hint=_hint(one.reset_hint, other.reset_hint),
    )


def _bucket_sum(one: BucketCounts, other: BucketCounts, sign: float, finer: int) -> BucketCounts:
    counts = dict(zip(one.indexes.tolist(), one.counts.tolist(), strict=True))
    for index, count in zip(other.indexes.tolist(), other.counts.tolist(), strict=True):
        coarse = ((index - 1) >> finer) + 1
        counts[coarse] = counts.get(coarse, 0.0) + sign * count
    indexes = sorted(counts)
    return BucketCounts(np.array(indexes, np.int32), np.array([counts[index] for index in indexes], np.float64))


def _hint(one: ResetHint, other: ResetHint) -> ResetHint:
    if one == other:
        return one
    return ResetHint.GAUGE if ResetHint.GAUGE in (one, other) else ResetHint.UNKNOWN
