"""What Prometheus tells of itself: its head of series, its targets, rules and alertmanagers.

The head is the series with a sample in the last two hours, as many as a list may have: counted from their label sets,
which workers keep (query/metrics/series.py). Targets and rules are empty, and say why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.limits import QueryLimits
from lakerunner.api.prometheus.error_types import BAD_DATA, Refused, running
from lakerunner.api.prometheus.request import Parameters, whole_number
from lakerunner.api.prometheus.response import account_warnings, success, whole
from lakerunner.api.stream import while_connected
from lakerunner.model.caller import Caller
from lakerunner.model.labels import NAME, Labels
from lakerunner.model.time import MS_NS
from lakerunner.query.metrics.answer import Listing, MetricsLake

HEAD_MS = 2 * 3_600_000  # the time that Prometheus keeps in its head
MOST = 10_000
NO_SCRAPES = (
    "Lakerunner does not scrape targets: point Prometheus' remote_write at /prometheus/api/v1/write, or send OTLP"
)
NO_RULES = "Lakerunner does not evaluate rules: run them in a Prometheus that reads from /prometheus/api/v1/read"
TARGETS: Mapping[str, Any] = {"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}
SCRAPE_POOLS: Mapping[str, Any] = {"scrapePools": []}
RULES: Mapping[str, Any] = {"groups": []}
ALERTS: Mapping[str, Any] = {"alerts": []}
ALERTMANAGERS: Mapping[str, Any] = {"activeAlertmanagers": [], "droppedAlertmanagers": []}


@dataclass(frozen=True)
class HeadStatus:
    """`most` series are counted."""

    lake: MetricsLake
    limits: QueryLimits
    most: int

    async def tsdb(self, request: Request, caller: Caller, given: Parameters, now_ns: int) -> Response:
        limit = _limit(given.text("limit"))
        end = now_ns // MS_NS
        time = end - HEAD_MS, end

        def counted() -> tuple[Listing, dict[str, Any]]:
            listing = self.lake.series(caller.organization.id, [], *time, limit=self.most, now_ns=now_ns)
            return listing, status_of(listing.rows, time, listing.account.read, limit)

        with await while_connected(request, self.limits.slot(caller)):
            try:
                listing, found = await to_thread.run_sync(counted)
            except Exception as error:
                raise running(error) from error
        warnings = account_warnings(listing.account)
        if listing.truncated:
            warnings.append(f"only {self.most:,} series were counted (metrics_max_series)")
        return whole(request, success(found, warnings))


def status_of(series: Iterable[Labels], time: tuple[int, int], chunks: int, limit: int) -> dict[str, Any]:
    """As Prometheus' status/tsdb; `chunks` are the segments that were looked at."""
    pairs: Counter[tuple[str, str]] = Counter()
    count = 0
    for labels in series:
        pairs.update(labels)
        count += 1
    values: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for (name, value), number in pairs.items():
        values[name] += 1
        memory[name] += (len(name.encode()) + len(value.encode()) + 2) * number  # as Prometheus keeps labels
    metrics = {value: number for (name, value), number in pairs.items() if name == NAME}
    stats = {"numSeries": count, "numLabelPairs": len(pairs), "chunkCount": chunks}
    return {
        "headStats": {**stats, "minTime": time[0], "maxTime": time[1]},
        "seriesCountByMetricName": _first(metrics, limit),
        "labelValueCountByLabelName": _first(values, limit),
        "memoryInBytesByLabelName": _first(memory, limit),
        "seriesCountByLabelValuePair": _first({f"{n}={v}": number for (n, v), number in pairs.items()}, limit),
    }


def _first(counts: Mapping[str, int], limit: int) -> list[dict[str, Any]]:
    """The largest; those that are equal by name."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:limit]
    return [{"name": name, "value": value} for name, value in ordered]


def _limit(text: str) -> int:
    limit = whole_number(text) if text else 10
    if limit is None or limit < 1:
        raise Refused(BAD_DATA, "limit must be a positive number")
    if limit > MOST:
        raise Refused(BAD_DATA, f"limit must not exceed {MOST}")
    return limit
