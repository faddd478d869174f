"""The labels of metrics: the series that Prometheus would have of what is stored (docs/formats/prometheus.md).

Comes in: matchers, and stored series as the series table has them. Goes out: the conditions that prune segments, and
the facets of a series, each a kind and the labels of one Prometheus series, or of the ones that differ in `le` or
`quantile` alone. Nothing here reads a point. There is no SQL of these labels: a worker tests matchers against the
series table, which has every label set once, and reads samples by row; DuckDB never sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

from lakerunner.model.condition import Condition, Equals
from lakerunner.model.labels import NAME, Labels, is_plain_label, is_plain_name, labels_of
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.prometheus import (
    INSTANCE,
    JOB,
    METADATA_ENTRY,
    SERVICE_INSTANCE,
    SERVICE_NAME,
    SERVICE_NAMESPACE,
)

TARGET_INFO = "target_info"
_IDENTIFYING = {SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_INSTANCE}
SeriesAttribute = tuple[str, str, str]  # name, escaped name, value; sorted by name


class Form(StrEnum):
    """The form of OTLP's names (docs/formats/prometheus.md)."""

    UTF8 = "utf8"
    ESCAPED = "escaped"


class SampleKind(IntEnum):
    """What of a point is the sample. Histogram buckets and quantiles are several series, which differ in one more
    label; the times of INFO are those of all points of the resource."""

    NUMBER = 0
    SUM = 1
    COUNT = 2
    NATIVE = 3  # a native histogram, of an OTLP histogram of either type
    SENT = 4  # as Prometheus sent it: a number or a native histogram
    BUCKETS = 5
    QUANTILES = 6
    INFO = 7


FURTHER_LABEL = {SampleKind.BUCKETS: "le", SampleKind.QUANTILES: "quantile"}
SPREAD = frozenset({SampleKind.BUCKETS, SampleKind.QUANTILES, SampleKind.INFO})  # not one sample for each row
SUFFIXES = {"_bucket": SampleKind.BUCKETS, "_sum": SampleKind.SUM, "_count": SampleKind.COUNT}


def form_of(matchers: Matchers) -> Form:
    """Return the UTF-8 form if a metric or a label has a name that only that form has."""
    odd = any(
        not is_plain_name(one.value) if one.name == NAME and one.op == "=" else not is_plain_label(one.name)
        for one in matchers
        if one.value or one.name != NAME
    )
    return Form.UTF8 if odd else Form.ESCAPED


def wanted_name(matchers: Matchers) -> str | None:
    """Return the only metric that can meet the matchers, if they name one."""
    return next((one.value for one in matchers if one.name == NAME and one.op == "=" and one.value), None)


def metric_conditions(matchers: Matchers) -> tuple[Condition, ...]:
    """Return what the rows of series that meet the matchers have in common, as far as the index knows it.

    Fingerprints hold the names of metrics as they were sent and as Prometheus has them. A series of a histogram or
    summary has the metric's name and a suffix; target_info is in every segment that has resources.
    """
    name = wanted_name(matchers)
    if name is None or name == TARGET_INFO:
        return ()
    bases = (name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))
    return (Equals("metric_name", tuple(dict.fromkeys([name, *filter(None, bases)]))),)


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """One series of one organization, in any of its segments. `name` and `escaped` are Prometheus' names for the
    metric, "" if there is none."""

    digest: int
    name: str
    escaped: str
    metric: str  # as it was sent
    type: str
    delta: bool
    as_sent: bool
    labels: tuple[SeriesAttribute, ...]
    resource: tuple[SeriesAttribute, ...]


@dataclass(frozen=True, slots=True)
class Facet:
    """One Prometheus series of a stored series, or those that differ only in one further label."""

    kind: SampleKind
    labels: Labels  # without the further label

    @property
    def further(self) -> str:
        return FURTHER_LABEL.get(self.kind, "")


def facets(series: StoredSeries, form: Form) -> Iterator[Facet]:
    if series.type == METADATA_ENTRY:
        return
    own = own_labels(series, form)
    if series.as_sent:
        yield Facet(SampleKind.SENT, _named(series.name, own))
        return
    name = series.name if form is Form.UTF8 else series.escaped
    if name:
        for kind, suffix in _KINDS.get(series.type, ((SampleKind.NUMBER, ""),)):
            further = FURTHER_LABEL.get(kind)
            yield Facet(kind, _named(name + suffix, {n: v for n, v in own.items() if n != further}))
    if info := target_info(series.resource, form):
        yield Facet(SampleKind.INFO, info)


def own_labels(series: StoredSeries, form: Form) -> dict[str, str]:
    """Return the labels that all facets but target_info share."""
    if series.as_sent:
        return {name: value for name, _, value in series.labels if value}
    return attribute_values(series.labels, form)


_KINDS: dict[str, tuple[tuple[SampleKind, str], ...]] = {
    "histogram": (
        (SampleKind.NATIVE, ""),
        (SampleKind.BUCKETS, "_bucket"),
        (SampleKind.SUM, "_sum"),
        (SampleKind.COUNT, "_count"),
    ),
    "exponential_histogram": ((SampleKind.NATIVE, ""),),
    "summary": ((SampleKind.QUANTILES, ""), (SampleKind.SUM, "_sum"), (SampleKind.COUNT, "_count")),
}


@lru_cache(10_000)
def target_info(resource: tuple[SeriesAttribute, ...], form: Form) -> Labels | None:
    """Return the labels of the resource's target_info; None if it has no attribute beyond those of job and instance, or
    neither of these."""
    identifying = {name: value for name, _, value in resource if name in _IDENTIFYING}
    rest = [one for one in resource if one[0] not in _IDENTIFYING]
    if not rest:
        return None
    found = attribute_values(rest, form)
    if SERVICE_NAME in identifying:
        found[JOB] = "/".join(identifying[name] for name in (SERVICE_NAMESPACE, SERVICE_NAME) if name in identifying)
    if SERVICE_INSTANCE in identifying:
        found[INSTANCE] = identifying[SERVICE_INSTANCE]
    return _named(TARGET_INFO, found) if JOB in found or INSTANCE in found else None


def attribute_values(attributes: Sequence[SeriesAttribute], form: Form) -> dict[str, str]:
    """Return labels by name. Where several attributes become one label, their values are joined by `;`."""
    if form is Form.UTF8:
        return {name: value for name, _, value in attributes}
    found: dict[str, str] = {}
    for _, escaped, value in attributes:
        found[escaped] = f"{found[escaped]};{value}" if escaped in found else value
    return found


def _named(name: str, labels: dict[str, str]) -> Labels:
    return labels_of({**labels, NAME: name})
