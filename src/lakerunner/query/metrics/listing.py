"""What there is: series, names and values of labels, what is said of metrics.

Comes in: segments and matchers. Goes out: one by one what they hold. A series counts as there if one of the segments
has it, also where its points are outside the times that are asked for: Prometheus does the same with its blocks. Series
that are told apart by `le` or `quantile` are known by their points alone, so these are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matchers, SelectorTest
from lakerunner.model.labels.metric_view import FURTHER_LABEL, TARGET_INFO, Form
from lakerunner.model.prometheus import unit_name
from lakerunner.model.segment import Segment
from lakerunner.plan.plan import Shard
from lakerunner.query.metrics.described import Described
from lakerunner.query.metrics.layout import Block, Layout
from lakerunner.query.metrics.samples import block_samples
from lakerunner.query.metrics.segments import MetricSegments

_POINTS_AT_ONCE = 4_000_000
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


@dataclass(frozen=True, order=True)
class MetricFamily:
    """`type` is Prometheus' word for it."""

    name: str
    type: str
    unit: str
    help: str


def series_of(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, start: int, end: int
) -> Iterator[Labels]:
    """Each once. The times, (start, end] in ms, count where points are read."""
    ordered, layout = metrics.layout(segments, matchers)
    test = SelectorTest(matchers)
    for n in np.flatnonzero(~layout.spread).tolist():
        yield layout.labels[n]
    for n in np.flatnonzero(layout.spread).tolist():
        if not layout.further[n]:
            yield layout.labels[n]
    for block in _read_blocks(layout):
        with metrics.reading(ordered, block, (start, end)) as (reading, _):
            yield from block_samples(block, reading, test).labels


def label_names(metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers) -> set[str]:
    """Of all series that the matchers mean, whatever they say of `le` and `quantile`."""
    _, layout = metrics.layout(segments, matchers)
    return {name for labels in layout.labels for name, _ in labels} | {name for name in layout.further if name}


def label_values(
    metrics: MetricSegments, segments: Sequence[Segment], matchers: Matchers, name: str, between: tuple[int, int]
) -> set[str]:
    """Points are read only where the label, or a matcher, is about `le` or `quantile`."""
    about = {name, *(matcher.name for matcher in matchers)}
    if about & set(FURTHER_LABEL.values()):
        found = (dict(labels).get(name) for labels in series_of(metrics, segments, matchers, *between))
    else:
        _, layout = metrics.layout(segments, matchers)
        found = (dict(labels).get(name) for labels in layout.labels)
    return {value for value in found if value}


def metadata_of(
    metrics: MetricSegments, segments: Sequence[Segment], form: Form = Form.ESCAPED
) -> Iterator[MetricFamily]:
    """What is said of each metric, each word once. Segments are looked at one by one."""
    seen: set[MetricFamily] = set()
    for segment in segments:
        said = metrics.descriptions(segment)
        families = [_family(one, form) for one in said.described]
        families += [MetricFamily(one.metric, type_, one.unit, one.help) for type_, one in said.entries]
        if any(not one.as_sent for one in said.described):
            families.append(MetricFamily(TARGET_INFO, "gauge", "", "Target metadata"))
        for family in families:
            if family.name and family not in seen:
                seen.add(family)
                yield family


def _read_blocks(layout: Layout) -> Iterator[Block]:
    """The groups whose series are known by their points."""
    for block in layout.blocks(Shard(), _POINTS_AT_ONCE):
        if any(layout.further[n] for n in block.spread.groups.tolist()):
            yield block.of_further()


def _family(one: Described, form: Form) -> MetricFamily:
    if one.as_sent:
        type_ = {"sum": "counter", "exponential_histogram": "histogram"}.get(one.type, one.type)
        name = one.name or ""
        suffix = next((end for end in _SUFFIXES.get(type_, ()) if name.endswith(end)), "")
        return MetricFamily(name.removesuffix(suffix), type_, one.unit, one.help)
    name = (one.name if form is Form.UTF8 else one.escaped) or ""
    return MetricFamily(name, _otlp_type(one), unit_name(one.unit), one.help)


def _otlp_type(one: Described) -> str:
    """As Prometheus' OTLP receiver says it: it has no word for deltas."""
    if one.type == "gauge" or (one.type == "sum" and not one.monotonic and one.temporality != "delta"):
        return "gauge"
    if one.type == "summary":
        return "summary"
    if one.temporality == "delta":
        return "unknown"
    return "counter" if one.type == "sum" else "histogram"
