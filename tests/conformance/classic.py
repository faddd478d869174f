"""Convert classic histograms (`_bucket`, `_count`, `_sum`) to native ones with custom buckets, which `load_with_nhcb`
adds."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from lakerunner.model.labels import NAME, Labels, labels_of, value_of
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram

_SUFFIXES = ("_bucket", "_count", "_sum")


@dataclass
class _Classic:
    """One histogram at one time: cumulative counts by upper bound."""

    buckets: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    sum: float = 0.0

    def native(self) -> Histogram:
        bounds = sorted(self.buckets)
        total = self.buckets[bounds[-1]] if self.count is None and bounds else (self.count or 0.0)
        if not bounds or bounds[-1] != math.inf:
            bounds.append(math.inf)
        cumulative = [self.buckets.get(bound, total) for bound in bounds]
        if cumulative != sorted(cumulative) or cumulative[-1] != total:
            raise ValueError(f"a classic histogram whose counts do not add up: {self}")
        counts = np.diff(np.array([0.0, *cumulative]))
        buckets = BucketCounts(np.arange(len(bounds), dtype=np.int32), counts)
        return Histogram(CUSTOM_BUCKETS, total, self.sum, positive=buckets, custom_values=tuple(bounds[:-1]))


def as_native(series: dict[Labels, dict[int, float | Histogram]]) -> dict[Labels, dict[int, Histogram]]:
    """Group by the name without its suffix and the labels without `le`."""
    found: dict[Labels, dict[int, _Classic]] = defaultdict(lambda: defaultdict(_Classic))
    for labels, samples in series.items():
        name = value_of(labels, NAME)
        suffix = next((one for one in _SUFFIXES if name.endswith(one)), "")
        le = _bound(value_of(labels, "le"))
        if not suffix or (suffix == "_bucket" and math.isnan(le)):
            continue
        base = labels_of([*((n, v) for n, v in labels if n not in (NAME, "le")), (NAME, name.removesuffix(suffix))])
        for time, value in samples.items():
            if isinstance(value, Histogram):
                continue
            classic = found[base][time]
            if suffix == "_bucket":
                classic.buckets[le] = value
            elif suffix == "_count":
                classic.count = value
            else:
                classic.sum = value
    return {base: {time: one.native() for time, one in sorted(at.items())} for base, at in found.items() if at}


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
