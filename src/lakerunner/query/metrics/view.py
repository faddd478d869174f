"""What Prometheus sees of a stored series: the facets that docs/formats/prometheus.md tells of.

Comes in: a stored series, as the series table has it. Goes out: its facets, each a kind and the labels of one
Prometheus series, or of the ones that differ in `le` or `quantile` alone. Nothing here reads a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.model.prometheus import (
    INSTANCE,
    JOB,
    METADATA_ENTRY,
    SERVICE_INSTANCE,
    SERVICE_NAME,
    SERVICE_NAMESPACE,
)
from lakerunner.query.metrics.matching import Form

TARGET_INFO = "target_info"
_IDENTIFYING = {SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_INSTANCE}
Attribute = tuple[str, str, str]  # name, escaped name, value; sorted by name


class Kind(IntEnum):
    """What of a point is the sample. Buckets and quantiles are several series, told apart by one more label; the
    times of info are those of all points of the resource."""

    NUMBER = 0
    SUM = 1
    COUNT = 2
    NATIVE = 3  # a native histogram, of an OTLP histogram of either type
    SENT = 4  # as Prometheus sent it: a number or a native histogram
    BUCKETS = 5
    QUANTILES = 6
    INFO = 7


FURTHER_LABEL = {Kind.BUCKETS: "le", Kind.QUANTILES: "quantile"}
SPREAD = frozenset({Kind.BUCKETS, Kind.QUANTILES, Kind.INFO})  # not one sample for each row
SUFFIXES = {"_bucket": Kind.BUCKETS, "_sum": Kind.SUM, "_count": Kind.COUNT}


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """One series of one organization, whatever segments it is in. `name` and `escaped` are Prometheus' names for the
    metric, "" where there is none."""

    digest: int
    name: str
    escaped: str
    metric: str  # as it came
    type: str
    delta: bool
    as_sent: bool
    labels: tuple[Attribute, ...]
    resource: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Facet:
    kind: Kind
    labels: Labels  # without the further label

    @property
    def further(self) -> str:
        return FURTHER_LABEL.get(self.kind, "")


def facets(series: StoredSeries, form: Form) -> Iterator[Facet]:
    if series.type == METADATA_ENTRY:
        return
    own = own_labels(series, form)
    if series.as_sent:
        yield Facet(Kind.SENT, _named(series.name, own))
        return
    name = series.name if form is Form.UTF8 else series.escaped
    if name:
        for kind, suffix in _KINDS.get(series.type, ((Kind.NUMBER, ""),)):
            further = FURTHER_LABEL.get(kind)
            yield Facet(kind, _named(name + suffix, {n: v for n, v in own.items() if n != further}))
    if info := target_info(series.resource, form):
        yield Facet(Kind.INFO, info)


def own_labels(series: StoredSeries, form: Form) -> dict[str, str]:
    """What all its facets but target_info have in common."""
    if series.as_sent:
        return {name: value for name, _, value in series.labels if value}
    return attribute_values(series.labels, form)


_KINDS: dict[str, tuple[tuple[Kind, str], ...]] = {
    "histogram": ((Kind.NATIVE, ""), (Kind.BUCKETS, "_bucket"), (Kind.SUM, "_sum"), (Kind.COUNT, "_count")),
    "exponential_histogram": ((Kind.NATIVE, ""),),
    "summary": ((Kind.QUANTILES, ""), (Kind.SUM, "_sum"), (Kind.COUNT, "_count")),
}


@lru_cache(10_000)
def target_info(resource: tuple[Attribute, ...], form: Form) -> Labels | None:
    """The labels of the resource's target_info; None where it has no attribute that job and instance do not tell, or
    neither of these."""
    told = {name: value for name, _, value in resource if name in _IDENTIFYING}
    rest = [one for one in resource if one[0] not in _IDENTIFYING]
    if not rest:
        return None
    found = attribute_values(rest, form)
    if SERVICE_NAME in told:
        found[JOB] = "/".join(told[name] for name in (SERVICE_NAMESPACE, SERVICE_NAME) if name in told)
    if SERVICE_INSTANCE in told:
        found[INSTANCE] = told[SERVICE_INSTANCE]
    return _named(TARGET_INFO, found) if JOB in found or INSTANCE in found else None


def attribute_values(attributes: Sequence[Attribute], form: Form) -> dict[str, str]:
    """Where several attributes become one label, their values are joined by `;`."""
    if form is Form.UTF8:
        return {name: value for name, _, value in attributes}
    found: dict[str, str] = {}
    for _, escaped, value in attributes:
        found[escaped] = f"{found[escaped]};{value}" if escaped in found else value
    return found


def _named(name: str, labels: dict[str, str]) -> Labels:
    return labels_of({**labels, NAME: name})
