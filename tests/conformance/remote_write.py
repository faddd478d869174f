"""Encode a state as remote-write requests of version 2.0, the only one with start times.

Histograms whose counts are integers that add up are sent as integers or as floats, half of the series each way: both
mean the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from conformance.script import Sample
from lakerunner.model.labels import Labels
from lakerunner.series.histograms.histogram import BucketCounts, Histogram
from pipeline.remote_write_oracle import message_type

_WHOLE_BELOW = 2**53


def request_of(series: Iterable[tuple[Labels, Sequence[Sample]]]) -> bytes:
    """Return a request, not compressed."""
    request = message_type("prw2")()
    symbols: dict[str, int] = {"": 0}
    for labels, samples in series:
        one = request.timeseries.add()
        one.labels_refs.extend(symbols.setdefault(text, len(symbols)) for pair in labels for text in pair)
        whole = zlib.crc32(repr(labels).encode()) % 2 == 0
        for sample in samples:
            if isinstance(sample.value, Histogram):
                _put_histogram(one.histograms.add(), sample, whole=whole and _is_whole(sample.value))
            else:
                one.samples.add(value=sample.value, timestamp=sample.time, start_timestamp=sample.start)
    request.symbols.extend(symbols)
    return request.SerializeToString()


def _is_whole(one: Histogram) -> bool:
    counts = [one.count, one.zero_count, *one.positive.counts.tolist(), *one.negative.counts.tolist()]
    return all(0 <= count < _WHOLE_BELOW and count == int(count) for count in counts) and one.count == sum(counts[1:])


def _put_histogram(message: Any, sample: Sample, *, whole: bool) -> None:
    one = sample.value
    assert isinstance(one, Histogram)
    message.sum, message.schema, message.zero_threshold = one.sum, one.schema, one.zero_threshold
    message.timestamp, message.start_timestamp = sample.time, sample.start
    message.reset_hint = int(one.reset_hint)
    message.custom_values.extend(one.custom_values)
    if whole:
        message.count_int, message.zero_count_int = int(one.count), int(one.zero_count)
    else:
        message.count_float, message.zero_count_float = one.count, one.zero_count
    for side, buckets in (("positive", one.positive), ("negative", one.negative)):
        _put_spans(getattr(message, f"{side}_spans"), buckets)
        counts = buckets.counts.tolist()
        if whole:
            getattr(message, f"{side}_deltas").extend(int(b) - int(a) for a, b in pairwise([0, *counts]))
        else:
            getattr(message, f"{side}_counts").extend(counts)


def _put_spans(spans: Any, buckets: BucketCounts) -> None:
    following = 0
    for index in buckets.indexes.tolist():
        if not spans or index != following:
            spans.add(offset=index - following, length=0)
        spans[-1].length += 1
        following = index + 1
